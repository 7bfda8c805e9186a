// A member of a group that says on its output what it is assigned, what it reads and when that is committed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

type member struct {
	bootstrap []string
	topic     string
}

// Arguments: bootstrap, group, topic, strategy, session timeout in ms. It leaves when its input ends.
func runMember(args []string) {
	timeout, err := strconv.Atoi(args[4])
	must(err)
	balancer := map[string]kafka.GroupBalancer{
		"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
	}[args[3]]
	m := &member{bootstrap: args[:1], topic: args[2]}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: args[1], Brokers: m.bootstrap, Topics: []string{m.topic}, GroupBalancers: []kafka.GroupBalancer{balancer},
		SessionTimeout: time.Duration(timeout) * time.Millisecond, HeartbeatInterval: 300 * time.Millisecond,
		JoinGroupBackoff: 100 * time.Millisecond,
	})
	must(err)
	left := make(chan bool)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		must(group.Close())
		close(left)
	}()
	for {
		generation, err := group.Next(context.Background())
		if errors.Is(err, kafka.ErrGroupClosed) {
			<-left
			return
		}
		if err != nil {
			fmt.Println("#", err)
			continue
		}
		m.take(generation)
	}
}

// Has all partitions of a generation read until it ends.
func (m *member) take(generation *kafka.Generation) {
	var texts []string
	for _, assigned := range generation.Assignments[m.topic] {
		texts = append(texts, strconv.Itoa(assigned.ID))
	}
	list := strings.Join(texts, " ")
	fmt.Println("assigned", list)
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		fmt.Println("revoked", list)
		fmt.Println("assigned")
	})
	for _, assigned := range generation.Assignments[m.topic] {
		generation.Start(func(ctx context.Context) { m.read(ctx, generation, assigned) })
	}
}

func (m *member) read(ctx context.Context, generation *kafka.Generation, assigned kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: m.bootstrap, Topic: m.topic, Partition: assigned.ID, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	must(reader.SetOffset(assigned.Offset))
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			if ctx.Err() == nil {
				panic(err)
			}
			fmt.Println("lost", assigned.ID)
			return
		}
		fmt.Printf("got %d:%d\n", message.Partition, message.Offset)
		if message.Offset+1 < message.HighWaterMark {
			continue // What there is is committed at once: each commit is a request that is waited for.
		}
		next := map[string]map[int]int64{m.topic: {message.Partition: message.Offset + 1}}
		if err := generation.CommitOffsets(next); err != nil {
			fmt.Println("#", err)
			fmt.Println("lost", message.Partition)
			return
		}
		fmt.Println("done", message.Partition)
	}
}
