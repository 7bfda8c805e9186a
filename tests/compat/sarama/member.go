// A member of a group that says on its output what it is assigned, what it reads and when that is committed.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type member struct{}

// Arguments: bootstrap, group, topic, strategy, session timeout in ms. It leaves when its input ends.
func runMember(args []string) {
	timeout, err := strconv.Atoi(args[4])
	must(err)
	strategy := map[string]sarama.BalanceStrategy{
		"range": sarama.NewBalanceStrategyRange(), "sticky": sarama.NewBalanceStrategySticky(),
	}[args[3]]
	config := configOf(sarama.MaxVersion)
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	config.Consumer.Group.Session.Timeout = time.Duration(timeout) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	group, err := sarama.NewConsumerGroup([]string{args[0]}, args[1], config)
	must(err)
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		leave()
	}()
	go func() {
		// A commit does not return what went wrong with it, so that nothing may.
		for err := range group.Errors() {
			panic(err)
		}
	}()
	for ctx.Err() == nil {
		must(group.Consume(ctx, []string{args[2]}, member{}))
	}
	must(group.Close())
}

func (member) Setup(session sarama.ConsumerGroupSession) error {
	fmt.Println("assigned", list(session))
	return nil
}

func (member) Cleanup(session sarama.ConsumerGroupSession) error {
	fmt.Println("revoked", list(session))
	fmt.Println("assigned")
	return nil
}

func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			consume(session, claim, message)
		case <-session.Context().Done():
			return nil
		}
	}
}

// Commits what there is at once: each commit is a request that is waited for.
func consume(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, message *sarama.ConsumerMessage) {
	for more := true; more && message != nil; {
		fmt.Printf("got %d:%d\n", message.Partition, message.Offset)
		session.MarkMessage(message, "")
		select {
		case message = <-claim.Messages():
		default:
			more = false
		}
	}
	session.Commit()
	fmt.Println("done", claim.Partition())
}

func list(session sarama.ConsumerGroupSession) string {
	var texts []string
	for _, partitions := range session.Claims() {
		for _, partition := range partitions {
			texts = append(texts, strconv.Itoa(int(partition)))
		}
	}
	return strings.Join(texts, " ")
}
