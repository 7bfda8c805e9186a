// The scenario of the compatibility table with franz-go: prints one JSON line for each feature.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type scenario struct {
	ctx       context.Context
	bootstrap string
	admin     *kadm.Client
}

func (s *scenario) client(options ...kgo.Opt) *kgo.Client {
	base := []kgo.Opt{
		kgo.SeedBrokers(s.bootstrap), kgo.RetryTimeout(20 * time.Second),
		kgo.FetchMaxWait(500 * time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	client, err := kgo.NewClient(append(base, options...)...)
	must(err)
	return client
}

func (s *scenario) newTopic(partitions int32, configs map[string]*string) string {
	topic := newName()
	created, err := s.admin.CreateTopic(s.ctx, partitions, 1, configs, topic)
	must(err)
	must(created.Err)
	return topic
}

func (s *scenario) send(records []*kgo.Record, options ...kgo.Opt) error {
	client := s.client(options...)
	defer client.Close()
	return client.ProduceSync(s.ctx, records...).FirstErr()
}

func numbered(topic string, count int) []*kgo.Record {
	records := make([]*kgo.Record, count)
	for n := range records {
		value := append([]byte(fmt.Sprintf("value %d ", n)), bytes.Repeat([]byte("."), 100)...)
		records[n] = &kgo.Record{Topic: topic, Key: []byte(fmt.Sprintf("k%d", n)), Value: value}
	}
	return records
}

func (s *scenario) read(partitions map[string]map[int32]kgo.Offset, count int) ([]*kgo.Record, error) {
	client := s.client(kgo.ConsumePartitions(partitions))
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	var got []*kgo.Record
	for len(got) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return got, fmt.Errorf("%d of %d records came: %w", len(got), count, err)
		}
		got = append(got, fetches.Records()...)
	}
	return got, nil
}

func (s *scenario) readFrom(topic string, offset kgo.Offset, count int) []*kgo.Record {
	got, err := s.read(map[string]map[int32]kgo.Offset{topic: {0: offset}}, count)
	must(err)
	return got
}

func (s *scenario) checkSame(sent []*kgo.Record) {
	got := s.readFrom(sent[0].Topic, kgo.NewOffset().At(0), len(sent))
	for n := range sent {
		equal(int64(n), got[n].Offset)
		equal(string(sent[n].Key), string(got[n].Key))
		equal(string(sent[n].Value), string(got[n].Value))
	}
}

func (s *scenario) codec(codec kgo.CompressionCodec) error {
	sent := numbered(s.newTopic(1, nil), 3000)
	must(s.send(sent, kgo.ProducerBatchCompression(codec)))
	s.checkSame(sent)
	return nil
}

func (s *scenario) create() error {
	topic := s.newTopic(3, nil)
	_, err := s.admin.UpdatePartitions(s.ctx, 5, topic)
	must(err)
	details, err := s.admin.ListTopics(s.ctx, topic)
	must(err)
	equal(5, len(details[topic].Partitions))
	again, err := s.admin.CreateTopic(s.ctx, 1, 1, nil, topic)
	if !errors.Is(again.Err, kerr.TopicAlreadyExists) && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("creating a topic twice said %v, %v", err, again.Err)
	}
	deleted, err := s.admin.DeleteTopic(s.ctx, topic)
	must(err)
	return deleted.Err
}

func (s *scenario) acks() error {
	for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		sent := numbered(s.newTopic(1, nil), 50)
		must(s.send(sent, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()))
		s.checkSame(sent)
	}
	return nil
}

func (s *scenario) idempotent() error {
	sent := numbered(s.newTopic(1, nil), 5000)
	must(s.send(sent, kgo.ProducerBatchMaxBytes(4000)))
	s.checkSame(sent)
	return nil
}

func (s *scenario) headers() error {
	record := numbered(s.newTopic(1, nil), 1)
	record[0].Headers = []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}}
	must(s.send(record))
	got := s.readFrom(record[0].Topic, kgo.NewOffset().AtStart(), 1)[0].Headers
	equal(2, len(got))
	equal("1", string(got[0].Value))
	equal(true, got[1].Value == nil)
	return nil
}

func (s *scenario) nulls() error {
	topic := s.newTopic(1, nil)
	must(s.send([]*kgo.Record{{Topic: topic, Value: []byte("v")}, {Topic: topic, Key: []byte("k")}}))
	got := s.readFrom(topic, kgo.NewOffset().AtStart(), 2)
	equal(true, got[0].Key == nil)
	equal(true, got[1].Value == nil)
	return nil
}

func (s *scenario) large() error {
	topic := s.newTopic(1, nil)
	value := make([]byte, 900_000)
	rand.Read(value)
	must(s.send([]*kgo.Record{{Topic: topic, Value: value}}))
	equal(true, bytes.Equal(value, s.readFrom(topic, kgo.NewOffset().AtStart(), 1)[0].Value))
	tooLarge := make([]byte, 2_000_000)
	rand.Read(tooLarge)
	err := s.send([]*kgo.Record{{Topic: topic, Value: tooLarge}}, kgo.ProducerBatchMaxBytes(5_000_000))
	if !errors.Is(err, kerr.MessageTooLarge) {
		return fmt.Errorf("a record above max.message.bytes: %v", err)
	}
	return nil
}

func (s *scenario) partitions() error {
	topic := s.newTopic(30, nil)
	var sent []*kgo.Record
	all := map[int32]kgo.Offset{}
	for partition := int32(0); partition < 30; partition++ {
		all[partition] = kgo.NewOffset().AtStart()
		for n := 0; n < 20; n++ {
			value := []byte(fmt.Sprintf("%d-%d", partition, n))
			sent = append(sent, &kgo.Record{Topic: topic, Partition: partition, Value: value})
		}
	}
	must(s.send(sent))
	got, err := s.read(map[string]map[int32]kgo.Offset{topic: all}, 600)
	must(err)
	for _, record := range got {
		equal(fmt.Sprintf("%d-%d", record.Partition, record.Offset), string(record.Value))
	}
	return nil
}

func (s *scenario) offsets() error {
	topic := s.newTopic(1, nil)
	must(s.send(numbered(topic, 100)))
	equal(int64(0), s.readFrom(topic, kgo.NewOffset().AtStart(), 1)[0].Offset)
	equal(int64(42), s.readFrom(topic, kgo.NewOffset().At(42), 1)[0].Offset)
	equal(int64(97), s.readFrom(topic, kgo.NewOffset().AtEnd().Relative(-3), 3)[0].Offset)
	ends, err := s.admin.ListEndOffsets(s.ctx, topic)
	must(err)
	end, _ := ends.Lookup(topic, 0)
	equal(int64(100), end.Offset)
	client := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(1000)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	if err := client.PollFetches(ctx).Err(); !errors.Is(err, kerr.OffsetOutOfRange) {
		return fmt.Errorf("an offset out of range: %v", err)
	}
	return nil
}

func (s *scenario) timestamps() error {
	topic := s.newTopic(1, nil)
	start := time.Now().Add(-100 * time.Second).Truncate(time.Millisecond)
	sent := numbered(topic, 50)
	for n := range sent {
		sent[n].Timestamp = start.Add(time.Duration(n) * time.Second)
	}
	must(s.send(sent))
	listed, err := s.admin.ListOffsetsAfterMilli(s.ctx, start.UnixMilli()+20_500, topic)
	must(err)
	found, _ := listed.Lookup(topic, 0)
	equal(int64(21), found.Offset)
	equal(int64(30), s.readFrom(topic, kgo.NewOffset().AfterMilli(start.UnixMilli()+30_000), 1)[0].Offset)
	return nil
}

func (s *scenario) deleteRecords() error {
	topic := s.newTopic(1, nil)
	must(s.send(numbered(topic, 10)))
	asked := kadm.Offsets{}
	asked.AddOffset(topic, 0, 4, -1)
	answer, err := s.admin.DeleteRecords(s.ctx, asked)
	must(err)
	must(answer.Error())
	starts, err := s.admin.ListStartOffsets(s.ctx, topic)
	must(err)
	start, _ := starts.Lookup(topic, 0)
	equal(int64(4), start.Offset)
	return nil
}

func (s *scenario) config(topic, key string) string {
	described, err := s.admin.DescribeTopicConfigs(s.ctx, topic)
	must(err)
	for _, entry := range described[0].Configs {
		if entry.Key == key {
			return entry.MaybeValue()
		}
	}
	panic("no config " + key)
}

func (s *scenario) configs() error {
	first, second := "1000000", "2000"
	topic := s.newTopic(1, map[string]*string{"retention.ms": &first})
	equal(first, s.config(topic, "retention.ms"))
	equal("delete", s.config(topic, "cleanup.policy"))
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &second}}
	answers, err := s.admin.AlterTopicConfigs(s.ctx, change, topic)
	must(err)
	must(answers[0].Err)
	equal(second, s.config(topic, "max.message.bytes"))
	equal(first, s.config(topic, "retention.ms"))
	return nil
}

func (s *scenario) topics() error {
	var names []string
	for n := 0; n < 100; n++ {
		names = append(names, s.newTopic(1, nil))
	}
	listed, err := s.admin.ListTopics(s.ctx)
	must(err)
	for _, name := range names {
		equal(true, listed.Has(name))
	}
	_, err = s.admin.DeleteTopics(s.ctx, names...)
	return err
}

func main() {
	if os.Args[1] == "member" {
		runMember(os.Args[2:])
		return
	}
	if os.Args[1] == "share" {
		runShareMember(os.Args[2:])
		return
	}
	if os.Args[1] == "transactions" {
		runTransactions(os.Args[2:])
		return
	}
	if os.Args[1] == "backlog" {
		runBacklog(os.Args[2:])
		return
	}
	if os.Args[1] == "secured" {
		runSecured(os.Args[2:])
		return
	}
	s := &scenario{ctx: context.Background(), bootstrap: os.Args[1]}
	s.admin = kadm.NewClient(s.client())
	feature("create", s.create)
	feature("none", func() error { return s.codec(kgo.NoCompression()) })
	feature("gzip", func() error { return s.codec(kgo.GzipCompression()) })
	feature("snappy", func() error { return s.codec(kgo.SnappyCompression()) })
	feature("lz4", func() error { return s.codec(kgo.Lz4Compression()) })
	feature("zstd", func() error { return s.codec(kgo.ZstdCompression()) })
	feature("acks", s.acks)
	feature("idempotent", s.idempotent)
	feature("headers", s.headers)
	feature("nulls", s.nulls)
	feature("large", s.large)
	feature("partitions", s.partitions)
	feature("offsets", s.offsets)
	feature("timestamps", s.timestamps)
	feature("delete-records", s.deleteRecords)
	feature("configs", s.configs)
	feature("topics", s.topics)
}
