package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Reads one record of each partition with the client's own defaults, and prints their number and sum of bytes.
// Arguments: bootstrap, topic, number of partitions.
func runBacklog(args []string) {
	partitions, err := strconv.Atoi(args[2])
	must(err)
	client, err := kgo.NewClient(kgo.SeedBrokers(args[0]), kgo.ConsumeTopics(args[1]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	count, bytes := 0, 0
	for count < partitions && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			panic(errs[0].Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			count++
			bytes += len(record.Value)
		})
	}
	fmt.Println(count, bytes)
}
