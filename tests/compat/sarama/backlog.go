package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// Tells the sizes of what it reads.
type reader struct {
	sizes chan int
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case r.sizes <- len(message.Value):
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

// Reads one record of each partition, as a group and with the client's own defaults, and prints their number and sum
// of bytes. Arguments: bootstrap, topic, number of partitions.
func runBacklog(args []string) {
	partitions, err := strconv.Atoi(args[2])
	must(err)
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	group, err := sarama.NewConsumerGroup([]string{args[0]}, newName(), config)
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	r := &reader{sizes: make(chan int)}
	failed := make(chan error, 1)
	go func() { failed <- group.Consume(ctx, []string{args[1]}, r) }()
	count, bytes := 0, 0
	for count < partitions {
		select {
		case size := <-r.sizes:
			count++
			bytes += size
		case err := <-failed:
			panic(fmt.Sprintf("%d of %d records came: %v", count, partitions, err))
		}
	}
	fmt.Println(count, bytes)
	must(group.Close())
}
