// Transactions: commit, abort, consume-transform-produce, and a fenced producer. One line for what went well.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func transactional(bootstrap, id string, options ...kgo.Opt) []kgo.Opt {
	base := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(20 * time.Second),
	}
	return append(base, options...)
}

func values(ctx context.Context, bootstrap, topic string, isolation kgo.IsolationLevel) []string {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start), kgo.FetchIsolationLevel(isolation),
	)
	must(err)
	defer client.Close()
	found := []string{}
	for len(found) == 0 || found[len(found)-1] != "last" {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	return found[:len(found)-1]
}

func copyOver(ctx context.Context, bootstrap, from, to string, count int) {
	session, err := kgo.NewGroupTransactSession(transactional(
		bootstrap, to, kgo.ConsumerGroup(to), kgo.ConsumeTopics(from), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)...)
	must(err)
	defer session.Close()
	for copied := 0; copied < count; {
		fetches := session.PollFetches(ctx)
		must(fetches.Err())
		must(session.Begin())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: to, Value: record.Value}, nil)
		})
		isCommitted, err := session.End(ctx, kgo.TryCommit)
		must(err)
		if isCommitted {
			copied += fetches.NumRecords()
		}
	}
}

func end(ctx context.Context, client *kgo.Client, how kgo.TransactionEndTry) error {
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return client.EndTransaction(ctx, how)
}

func write(ctx context.Context, client *kgo.Client, topic, value string, how kgo.TransactionEndTry) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		return err
	}
	return end(ctx, client, how)
}

func runTransactions(args []string) {
	bootstrap, topic, copied := args[0], args[1], args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := kgo.NewClient(transactional(bootstrap, topic)...)
	must(err)
	defer client.Close()
	expected := []string{}
	for number := 0; number < 6; number++ {
		value := fmt.Sprint(number)
		if number%2 == 1 {
			must(write(ctx, client, topic, value, kgo.TryAbort))
			continue
		}
		must(write(ctx, client, topic, value, kgo.TryCommit))
		expected = append(expected, value)
	}
	must(client.BeginTransaction())
	must(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("zombie")}).FirstErr())
	heir, err := kgo.NewClient(transactional(bootstrap, topic)...)
	must(err)
	defer heir.Close()
	must(write(ctx, heir, topic, "last", kgo.TryCommit))
	isFenced := end(ctx, client, kgo.TryCommit) != nil
	seen := values(ctx, bootstrap, topic, kgo.ReadCommitted())
	all := values(ctx, bootstrap, topic, kgo.ReadUncommitted())
	copyOver(ctx, bootstrap, topic, copied, len(expected)+1)
	line, _ := json.Marshal(map[string]any{
		"seen": seen, "expected": expected, "all": len(all), "isFenced": isFenced,
		"copied": values(ctx, bootstrap, copied, kgo.ReadCommitted()),
	})
	fmt.Println(string(line))
}
