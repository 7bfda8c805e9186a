// The scenario of the compatibility table with Sarama: prints one JSON line for each feature.
package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

type scenario struct {
	bootstrap []string
	version   sarama.KafkaVersion
	client    sarama.Client
	admin     sarama.ClusterAdmin
}

// The versions of the protocol that the client speaks: those of its default, or all that it knows.
func versionOf(name string) sarama.KafkaVersion {
	return map[string]sarama.KafkaVersion{"default": sarama.DefaultVersion, "max": sarama.MaxVersion}[name]
}

// Prints Kafka's version that a name stands for.
func printVersion(args []string) {
	fmt.Println(versionOf(args[0]))
}

func configOf(version sarama.KafkaVersion) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = version
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	// Who stops reading waits for the answer to its last fetch.
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	return config
}

func newScenario(bootstrap, version string) *scenario {
	s := &scenario{bootstrap: []string{bootstrap}, version: versionOf(version)}
	var err error
	s.client, err = sarama.NewClient(s.bootstrap, configOf(s.version))
	must(err)
	s.admin, err = sarama.NewClusterAdminFromClient(s.client)
	must(err)
	return s
}

func (s *scenario) newTopic(partitions int32, configs map[string]*string) string {
	topic := newName()
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: configs}
	must(s.admin.CreateTopic(topic, detail, false))
	return topic
}

func (s *scenario) send(messages []*sarama.ProducerMessage, change func(*sarama.Config)) error {
	config := configOf(s.version)
	if change != nil {
		change(config)
	}
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	must(err)
	defer producer.Close()
	return producer.SendMessages(messages)
}

func numbered(topic string, count int) []*sarama.ProducerMessage {
	messages := make([]*sarama.ProducerMessage, count)
	for n := range messages {
		value := append([]byte(fmt.Sprintf("value %d ", n)), bytes.Repeat([]byte("."), 100)...)
		key := sarama.StringEncoder(fmt.Sprintf("k%d", n))
		messages[n] = &sarama.ProducerMessage{Topic: topic, Key: key, Value: sarama.ByteEncoder(value)}
	}
	return messages
}

func (s *scenario) read(topic string, partition int32, offset int64, count int) []*sarama.ConsumerMessage {
	consumer, err := sarama.NewConsumerFromClient(s.client)
	must(err)
	defer consumer.Close()
	reading, err := consumer.ConsumePartition(topic, partition, offset)
	must(err)
	defer reading.Close()
	deadline := time.After(20 * time.Second)
	var got []*sarama.ConsumerMessage
	for len(got) < count {
		select {
		case message := <-reading.Messages():
			got = append(got, message)
		case <-deadline:
			panic(fmt.Sprintf("%d of %d records came", len(got), count))
		}
	}
	return got
}

func (s *scenario) checkSame(sent []*sarama.ProducerMessage) {
	got := s.read(sent[0].Topic, 0, 0, len(sent))
	for n := range sent {
		key, _ := sent[n].Key.Encode()
		value, _ := sent[n].Value.Encode()
		equal(int64(n), got[n].Offset)
		equal(string(key), string(got[n].Key))
		equal(string(value), string(got[n].Value))
	}
}

func (s *scenario) codec(codec sarama.CompressionCodec) error {
	sent := numbered(s.newTopic(1, nil), 3000)
	must(s.send(sent, func(config *sarama.Config) { config.Producer.Compression = codec }))
	s.checkSame(sent)
	return nil
}

func (s *scenario) create() error {
	topic := s.newTopic(3, nil)
	must(s.admin.CreatePartitions(topic, 5, nil, false))
	listed, err := s.admin.ListTopics()
	must(err)
	equal(int32(5), listed[topic].NumPartitions)
	err = s.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	if !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("creating a topic twice said %v", err)
	}
	return s.admin.DeleteTopic(topic)
}

func (s *scenario) acks() error {
	for _, acks := range []sarama.RequiredAcks{sarama.NoResponse, sarama.WaitForLocal, sarama.WaitForAll} {
		sent := numbered(s.newTopic(1, nil), 50)
		must(s.send(sent, func(config *sarama.Config) { config.Producer.RequiredAcks = acks }))
		s.checkSame(sent)
	}
	return nil
}

func (s *scenario) idempotent() error {
	sent := numbered(s.newTopic(1, nil), 5000)
	must(s.send(sent, func(config *sarama.Config) {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Flush.MaxMessages = 40
		config.Net.MaxOpenRequests = 1
	}))
	s.checkSame(sent)
	return nil
}

func (s *scenario) headers() error {
	sent := numbered(s.newTopic(1, nil), 1)
	sent[0].Headers = []sarama.RecordHeader{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("a"), Value: nil}}
	must(s.send(sent, nil))
	got := s.read(sent[0].Topic, 0, sarama.OffsetOldest, 1)[0].Headers
	equal(2, len(got))
	equal("1", string(got[0].Value))
	equal(true, got[1].Value == nil)
	return nil
}

func (s *scenario) nulls() error {
	topic := s.newTopic(1, nil)
	must(s.send([]*sarama.ProducerMessage{
		{Topic: topic, Value: sarama.StringEncoder("v")}, {Topic: topic, Key: sarama.StringEncoder("k")},
		{Topic: topic, Key: sarama.StringEncoder(""), Value: sarama.StringEncoder("")},
	}, nil))
	got := s.read(topic, 0, sarama.OffsetOldest, 3)
	equal(true, got[0].Key == nil)
	equal(true, got[1].Value == nil)
	equal(true, got[2].Key != nil && got[2].Value != nil)
	return nil
}

func (s *scenario) large() error {
	topic := s.newTopic(1, nil)
	value := make([]byte, 900_000)
	rand.Read(value)
	must(s.send([]*sarama.ProducerMessage{{Topic: topic, Value: sarama.ByteEncoder(value)}}, nil))
	equal(true, bytes.Equal(value, s.read(topic, 0, sarama.OffsetOldest, 1)[0].Value))
	config := configOf(s.version)
	config.Producer.MaxMessageBytes = 5_000_000
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	must(err)
	defer producer.Close()
	tooLarge := make([]byte, 2_000_000)
	rand.Read(tooLarge)
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(tooLarge)})
	if !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
		return fmt.Errorf("a record above max.message.bytes: %v", err)
	}
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("small")})
	return err
}

func (s *scenario) partitions() error {
	topic := s.newTopic(30, nil)
	var sent []*sarama.ProducerMessage
	for partition := int32(0); partition < 30; partition++ {
		for n := 0; n < 20; n++ {
			value := sarama.StringEncoder(fmt.Sprintf("%d-%d", partition, n))
			sent = append(sent, &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: value})
		}
	}
	must(s.send(sent, nil))
	consumer, err := sarama.NewConsumerFromClient(s.client)
	must(err)
	defer consumer.Close()
	var all []sarama.PartitionConsumer
	for partition := int32(0); partition < 30; partition++ {
		reading, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		must(err)
		defer reading.AsyncClose()
		all = append(all, reading)
	}
	deadline := time.After(20 * time.Second)
	for partition, reading := range all {
		for n := 0; n < 20; n++ {
			select {
			case message := <-reading.Messages():
				equal(fmt.Sprintf("%d-%d", partition, n), string(message.Value))
			case <-deadline:
				return fmt.Errorf("partition %d: %d of 20 records came", partition, n)
			}
		}
	}
	return nil
}

func (s *scenario) offsets() error {
	topic := s.newTopic(1, nil)
	must(s.send(numbered(topic, 100), nil))
	equal(int64(0), s.read(topic, 0, sarama.OffsetOldest, 1)[0].Offset)
	equal(int64(42), s.read(topic, 0, 42, 1)[0].Offset)
	end, err := s.client.GetOffset(topic, 0, sarama.OffsetNewest)
	must(err)
	equal(int64(100), end)
	equal(int64(97), s.read(topic, 0, end-3, 3)[0].Offset)
	return s.checkOutOfRange(topic, 1000)
}

// The consumer compares an offset with the ends of the log before it fetches; who fetches sees the broker's answer.
func (s *scenario) checkOutOfRange(topic string, offset int64) error {
	leader, err := s.client.Leader(topic, 0)
	must(err)
	request := &sarama.FetchRequest{Version: 4, MaxBytes: 1_000_000, MinBytes: 1}
	request.AddBlock(topic, 0, offset, 1_000_000, -1)
	answer, err := leader.Fetch(request)
	must(err)
	equal(sarama.ErrOffsetOutOfRange, answer.GetBlock(topic, 0).Err)
	return nil
}

func (s *scenario) timestamps() error {
	topic := s.newTopic(1, nil)
	start := time.Now().Add(-100 * time.Second).Truncate(time.Millisecond)
	sent := numbered(topic, 50)
	for n := range sent {
		sent[n].Timestamp = start.Add(time.Duration(n) * time.Second)
	}
	must(s.send(sent, nil))
	found, err := s.client.GetOffset(topic, 0, start.UnixMilli()+20_500)
	must(err)
	equal(int64(21), found)
	equal(start.Add(21*time.Second).UnixMilli(), s.read(topic, 0, found, 1)[0].Timestamp.UnixMilli())
	none, err := s.client.GetOffset(topic, 0, start.UnixMilli()+50_000)
	must(err)
	equal(int64(-1), none)
	return nil
}

func (s *scenario) deleteRecords() error {
	topic := s.newTopic(1, nil)
	must(s.send(numbered(topic, 10), nil))
	must(s.admin.DeleteRecords(topic, map[int32]int64{0: 4}))
	start, err := s.client.GetOffset(topic, 0, sarama.OffsetOldest)
	must(err)
	equal(int64(4), start)
	return s.checkOutOfRange(topic, 3)
}

func (s *scenario) config(topic, key string) string {
	entries, err := s.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	must(err)
	for _, entry := range entries {
		if entry.Name == key {
			return entry.Value
		}
	}
	panic("no config " + key)
}

func (s *scenario) configs() error {
	first, second := "1000000", "2000"
	topic := s.newTopic(1, map[string]*string{"retention.ms": &first})
	equal(first, s.config(topic, "retention.ms"))
	equal("delete", s.config(topic, "cleanup.policy"))
	change := map[string]sarama.IncrementalAlterConfigsEntry{
		"max.message.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &second},
	}
	must(s.admin.IncrementalAlterConfig(sarama.TopicResource, topic, change, false))
	equal(second, s.config(topic, "max.message.bytes"))
	equal(first, s.config(topic, "retention.ms"))
	value := sarama.ByteEncoder(make([]byte, 3000))
	err := s.send([]*sarama.ProducerMessage{{Topic: topic, Value: value}}, nil)
	each, is := errors.AsType[sarama.ProducerErrors](err)
	if !is || !errors.Is(each[0], sarama.ErrMessageSizeTooLarge) {
		return fmt.Errorf("a record above the changed max.message.bytes: %v", err)
	}
	return nil
}

func (s *scenario) topics() error {
	var names []string
	for n := 0; n < 100; n++ {
		names = append(names, s.newTopic(1, nil))
	}
	listed, err := s.admin.ListTopics()
	must(err)
	for _, name := range names {
		_, isListed := listed[name]
		equal(true, isListed)
		must(s.admin.DeleteTopic(name))
	}
	return nil
}

func main() {
	command := map[string]func([]string){
		"version": printVersion, "member": runMember, "transactions": runTransactions, "backlog": runBacklog,
	}
	if run, is := command[os.Args[1]]; is {
		run(os.Args[2:])
		return
	}
	s := newScenario(os.Args[1], os.Args[2])
	feature("create", s.create)
	feature("none", func() error { return s.codec(sarama.CompressionNone) })
	feature("gzip", func() error { return s.codec(sarama.CompressionGZIP) })
	feature("snappy", func() error { return s.codec(sarama.CompressionSnappy) })
	feature("lz4", func() error { return s.codec(sarama.CompressionLZ4) })
	feature("zstd", func() error { return s.codec(sarama.CompressionZSTD) })
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
