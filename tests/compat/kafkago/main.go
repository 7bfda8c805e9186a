// The scenario of the compatibility table with kafka-go: prints one JSON line for each feature.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

type scenario struct {
	ctx       context.Context
	bootstrap string
	client    *kafka.Client
}

func (s *scenario) newTopic(partitions int, configs ...kafka.ConfigEntry) string {
	topic := newName()
	must(s.createTopic(kafka.TopicConfig{
		Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: configs,
	}))
	return topic
}

func (s *scenario) createTopic(topic kafka.TopicConfig) error {
	answer, err := s.client.CreateTopics(s.ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	must(err)
	return answer.Errors[topic.Topic]
}

// The number of partitions of each topic. A connection asks, since the client answers out of what it knows already.
func (s *scenario) partitionsOf(topics ...string) map[string]int {
	connection, err := kafka.DialContext(s.ctx, "tcp", s.bootstrap)
	must(err)
	defer connection.Close()
	partitions, err := connection.ReadPartitions(topics...)
	must(err)
	counts := map[string]int{}
	for _, partition := range partitions {
		counts[partition.Topic]++
	}
	return counts
}

// Writes each message to the partition that it names.
func (s *scenario) writer(topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(s.bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond,
		MaxAttempts: 3, Balancer: kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
			partition, _ := message.WriterData.(int)
			return partition
		}),
	}
}

func (s *scenario) send(topic string, messages []kafka.Message, change func(*kafka.Writer)) error {
	writer := s.writer(topic)
	defer writer.Close()
	if change != nil {
		change(writer)
	}
	return writer.WriteMessages(s.ctx, messages...)
}

func numbered(count int) []kafka.Message {
	messages := make([]kafka.Message, count)
	for n := range messages {
		value := append([]byte(fmt.Sprintf("value %d ", n)), bytes.Repeat([]byte("."), 100)...)
		messages[n] = kafka.Message{Key: []byte(fmt.Sprintf("k%d", n)), Value: value}
	}
	return messages
}

func (s *scenario) reader(topic string, partition int) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{s.bootstrap}, Topic: topic, Partition: partition, MaxBytes: 10_000_000,
		MaxWait: 100 * time.Millisecond, OffsetOutOfRangeError: true,
	})
}

func (s *scenario) take(reader *kafka.Reader, count int) []kafka.Message {
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	got := make([]kafka.Message, count)
	for n := range got {
		var err error
		if got[n], err = reader.ReadMessage(ctx); err != nil {
			panic(fmt.Sprintf("%d of %d records came: %v", n, count, err))
		}
	}
	return got
}

func (s *scenario) read(topic string, offset int64, count int) []kafka.Message {
	reader := s.reader(topic, 0)
	defer reader.Close()
	must(reader.SetOffset(offset))
	return s.take(reader, count)
}

func (s *scenario) checkSame(topic string, sent []kafka.Message) {
	for n, got := range s.read(topic, 0, len(sent)) {
		equal(int64(n), got.Offset)
		equal(string(sent[n].Key), string(got.Key))
		equal(string(sent[n].Value), string(got.Value))
	}
}

func (s *scenario) codec(codec kafka.Compression) error {
	topic, sent := s.newTopic(1), numbered(3000)
	must(s.send(topic, sent, func(writer *kafka.Writer) { writer.Compression = codec }))
	s.checkSame(topic, sent)
	return nil
}

func (s *scenario) create() error {
	topic := s.newTopic(3)
	added, err := s.client.CreatePartitions(s.ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 5}},
	})
	must(err)
	must(added.Errors[topic])
	equal(5, s.partitionsOf(topic)[topic])
	err = s.createTopic(kafka.TopicConfig{Topic: topic, NumPartitions: 1, ReplicationFactor: 1})
	if !errors.Is(err, kafka.TopicAlreadyExists) {
		return fmt.Errorf("creating a topic twice said %v", err)
	}
	return s.deleteTopics(topic)
}

func (s *scenario) deleteTopics(names ...string) error {
	answer, err := s.client.DeleteTopics(s.ctx, &kafka.DeleteTopicsRequest{Topics: names})
	must(err)
	for _, name := range names {
		must(answer.Errors[name])
	}
	return nil
}

func (s *scenario) acks() error {
	for _, acks := range []kafka.RequiredAcks{kafka.RequireNone, kafka.RequireOne, kafka.RequireAll} {
		topic, sent := s.newTopic(1), numbered(50)
		must(s.send(topic, sent, func(writer *kafka.Writer) { writer.RequiredAcks = acks }))
		s.checkSame(topic, sent)
	}
	return nil
}

func (s *scenario) headers() error {
	topic, sent := s.newTopic(1), numbered(1)
	sent[0].Headers = []kafka.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}}
	must(s.send(topic, sent, nil))
	got := s.read(topic, kafka.FirstOffset, 1)[0].Headers
	equal(2, len(got))
	equal("1", string(got[0].Value))
	equal(true, got[1].Value == nil)
	return nil
}

func (s *scenario) nulls() error {
	topic := s.newTopic(1)
	sent := []kafka.Message{{Value: []byte("v")}, {Key: []byte("k")}, {Key: []byte{}, Value: []byte{}}}
	must(s.send(topic, sent, nil))
	// A reader makes no difference between null and empty, who fetches does.
	got, err := s.client.Fetch(s.ctx, &kafka.FetchRequest{Topic: topic, MinBytes: 1, MaxBytes: 1_000_000})
	must(err)
	must(got.Error)
	for _, one := range sent {
		record, err := got.Records.ReadRecord()
		must(err)
		equal(one.Key == nil, record.Key == nil)
		equal(one.Value == nil, record.Value == nil)
	}
	return nil
}

// A record above the topic's max.message.bytes is refused, and the writer goes on to write.
func (s *scenario) checkTooLarge(topic string, value []byte) error {
	writer := s.writer(topic)
	defer writer.Close()
	writer.BatchBytes = 5_000_000
	err := writer.WriteMessages(s.ctx, kafka.Message{Value: value})
	if each, is := errors.AsType[kafka.WriteErrors](err); !is || !errors.Is(each[0], kafka.MessageSizeTooLarge) {
		return fmt.Errorf("a record above max.message.bytes: %v", err)
	}
	return writer.WriteMessages(s.ctx, kafka.Message{Value: []byte("small")})
}

func (s *scenario) large() error {
	topic := s.newTopic(1)
	value := make([]byte, 900_000)
	rand.Read(value)
	must(s.send(topic, []kafka.Message{{Value: value}}, nil))
	equal(true, bytes.Equal(value, s.read(topic, kafka.FirstOffset, 1)[0].Value))
	tooLarge := make([]byte, 2_000_000)
	rand.Read(tooLarge)
	return s.checkTooLarge(topic, tooLarge)
}

func (s *scenario) partitions() error {
	topic := s.newTopic(30)
	var sent []kafka.Message
	for partition := range 30 {
		for n := range 20 {
			value := []byte(fmt.Sprintf("%d-%d", partition, n))
			sent = append(sent, kafka.Message{Value: value, WriterData: partition})
		}
	}
	must(s.send(topic, sent, nil))
	readers := make([]*kafka.Reader, 30)
	var closing sync.WaitGroup
	defer closing.Wait()
	for partition := range readers {
		readers[partition] = s.reader(topic, partition)
		defer closing.Go(func() { readers[partition].Close() })
	}
	for partition, reader := range readers {
		for n, message := range s.take(reader, 20) {
			equal(fmt.Sprintf("%d-%d", partition, n), string(message.Value))
		}
	}
	return nil
}

func (s *scenario) listed(topic string, request kafka.OffsetRequest) kafka.PartitionOffsets {
	answer, err := s.client.ListOffsets(s.ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {request}},
	})
	must(err)
	must(answer.Topics[topic][0].Error)
	return answer.Topics[topic][0]
}

func (s *scenario) offsets() error {
	topic := s.newTopic(1)
	must(s.send(topic, numbered(100), nil))
	equal(int64(0), s.read(topic, kafka.FirstOffset, 1)[0].Offset)
	equal(int64(42), s.read(topic, 42, 1)[0].Offset)
	end := s.listed(topic, kafka.LastOffsetOf(0)).LastOffset
	equal(int64(100), end)
	equal(int64(97), s.read(topic, end-3, 3)[0].Offset)
	reader := s.reader(topic, 0)
	defer reader.Close()
	must(reader.SetOffset(1000))
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	if _, err := reader.ReadMessage(ctx); !errors.Is(err, kafka.OffsetOutOfRange) {
		return fmt.Errorf("an offset out of range: %v", err)
	}
	return nil
}

func (s *scenario) timestamps() error {
	topic, sent := s.newTopic(1), numbered(50)
	start := time.Now().Add(-100 * time.Second).Truncate(time.Millisecond)
	for n := range sent {
		sent[n].Time = start.Add(time.Duration(n) * time.Second)
	}
	must(s.send(topic, sent, nil))
	// In place of a record's time the client tells the one that was asked for.
	for wanted, after := range map[int64]time.Duration{21: 20_500 * time.Millisecond, -1: 50 * time.Second} {
		_, isFound := s.listed(topic, kafka.TimeOffsetOf(0, start.Add(after))).Offsets[wanted]
		equal(true, isFound)
	}
	reader := s.reader(topic, 0)
	defer reader.Close()
	must(reader.SetOffsetAt(s.ctx, start.Add(30*time.Second)))
	equal(int64(30), s.take(reader, 1)[0].Offset)
	return nil
}

func (s *scenario) config(topic, key string) string {
	answer, err := s.client.DescribeConfigs(s.ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	must(err)
	must(answer.Resources[0].Error)
	for _, entry := range answer.Resources[0].ConfigEntries {
		if entry.ConfigName == key {
			return entry.ConfigValue
		}
	}
	panic("no config " + key)
}

func (s *scenario) configs() error {
	topic := s.newTopic(1, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "1000000"})
	equal("1000000", s.config(topic, "retention.ms"))
	equal("delete", s.config(topic, "cleanup.policy"))
	change := kafka.IncrementalAlterConfigsRequestConfig{
		Name: "max.message.bytes", Value: "2000", ConfigOperation: kafka.ConfigOperationSet,
	}
	answer, err := s.client.IncrementalAlterConfigs(s.ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{change},
		}},
	})
	must(err)
	must(answer.Resources[0].Error)
	equal("2000", s.config(topic, "max.message.bytes"))
	equal("1000000", s.config(topic, "retention.ms"))
	return s.checkTooLarge(topic, make([]byte, 3000))
}

func (s *scenario) topics() error {
	var names []string
	for range 100 {
		names = append(names, s.newTopic(1))
	}
	listed := s.partitionsOf()
	for _, name := range names {
		equal(1, listed[name])
	}
	return s.deleteTopics(names...)
}

// Reads one record of each partition, as a group and with the client's own defaults, and prints their number and sum
// of bytes. Arguments: bootstrap, topic, number of partitions.
func runBacklog(args []string) {
	partitions, err := strconv.Atoi(args[2])
	must(err)
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: args[:1], Topic: args[1], GroupID: newName(), StartOffset: kafka.FirstOffset,
	})
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	count, size := 0, 0
	for ; count < partitions; count++ {
		message, err := reader.ReadMessage(ctx)
		must(err)
		size += len(message.Value)
	}
	// It is not closed, which would wait 10 s for a fetch to end.
	fmt.Println(count, size)
}

func main() {
	command := map[string]func([]string){"member": runMember, "backlog": runBacklog}
	if run, is := command[os.Args[1]]; is {
		run(os.Args[2:])
		return
	}
	s := &scenario{ctx: context.Background(), bootstrap: os.Args[1]}
	s.client = &kafka.Client{Addr: kafka.TCP(s.bootstrap), Timeout: 20 * time.Second}
	feature("create", s.create)
	feature("none", func() error { return s.codec(0) })
	feature("gzip", func() error { return s.codec(kafka.Gzip) })
	feature("snappy", func() error { return s.codec(kafka.Snappy) })
	feature("lz4", func() error { return s.codec(kafka.Lz4) })
	feature("zstd", func() error { return s.codec(kafka.Zstd) })
	feature("acks", s.acks)
	feature("headers", s.headers)
	feature("nulls", s.nulls)
	feature("large", s.large)
	feature("partitions", s.partitions)
	feature("offsets", s.offsets)
	feature("timestamps", s.timestamps)
	feature("configs", s.configs)
	feature("topics", s.topics)
}
