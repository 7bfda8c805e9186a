// A member of a group that says on its output what it is assigned, what it reads and when that is committed.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type member struct {
	assigned    map[int32]bool
	uncommitted bool
}

// Arguments: bootstrap, group, topic, strategy, session timeout in ms. It leaves when its input ends.
func runMember(args []string) {
	timeout, err := strconv.Atoi(args[4])
	must(err)
	balancer := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}[args[3]]
	m := &member{assigned: map[int32]bool{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(args[0]), kgo.ConsumerGroup(args[1]), kgo.ConsumeTopics(args[2]), kgo.Balancers(balancer),
		kgo.SessionTimeout(time.Duration(timeout)*time.Millisecond), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(m.onAssigned), kgo.OnPartitionsRevoked(m.onRevoked), kgo.OnPartitionsLost(m.onLost),
	)
	must(err)
	over := make(chan bool)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	for {
		select {
		case <-over:
			client.CloseAllowingRebalance()
			return
		default:
			m.step(client)
		}
	}
}

func (m *member) step(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	records := client.PollFetches(ctx).Records()
	if len(records) > 0 {
		line := make([]string, len(records))
		for n, record := range records {
			line[n] = fmt.Sprintf("%d:%d", record.Partition, record.Offset)
		}
		fmt.Println("got", strings.Join(line, " "))
		m.uncommitted = true
	}
	m.commit(client)
	client.AllowRebalance()
}

func (m *member) commit(client *kgo.Client) bool {
	if m.uncommitted {
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			fmt.Println("#", err)
			return false
		}
		m.uncommitted = false
		fmt.Println("done")
	}
	return true
}

func (m *member) onAssigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	for _, numbers := range partitions {
		for _, number := range numbers {
			m.assigned[number] = true
		}
	}
	m.say()
}

func (m *member) onRevoked(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
	fmt.Println("revoked", list(partitions))
	if !m.commit(client) {
		fmt.Println("lost", list(partitions))
		m.uncommitted = false
	}
	m.remove(partitions)
}

func (m *member) onLost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	fmt.Println("lost", list(partitions))
	m.uncommitted = false
	m.remove(partitions)
}

func (m *member) remove(partitions map[string][]int32) {
	for _, numbers := range partitions {
		for _, number := range numbers {
			delete(m.assigned, number)
		}
	}
	m.say()
}

func (m *member) say() {
	var numbers []int32
	for number := range m.assigned {
		numbers = append(numbers, number)
	}
	fmt.Println("assigned", list(map[string][]int32{"": numbers}))
}

func list(partitions map[string][]int32) string {
	var texts []string
	for _, numbers := range partitions {
		for _, number := range numbers {
			texts = append(texts, strconv.Itoa(int(number)))
		}
	}
	sort.Strings(texts)
	return strings.Join(texts, " ")
}
