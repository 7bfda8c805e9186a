// Transactions: commit, abort, consume-transform-produce, and a fenced producer. One line for what went well.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

type transactions struct {
	bootstrap []string
	version   sarama.KafkaVersion
}

func (t *transactions) producer(id string) sarama.SyncProducer {
	config := configOf(t.version)
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = id
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(t.bootstrap, config)
	must(err)
	return producer
}

func (t *transactions) values(topic string, isolation sarama.IsolationLevel) []string {
	config := configOf(t.version)
	config.Consumer.IsolationLevel = isolation
	consumer, err := sarama.NewConsumer(t.bootstrap, config)
	must(err)
	defer consumer.Close()
	reading, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(err)
	defer reading.Close()
	found := []string{}
	deadline := time.After(60 * time.Second)
	for {
		select {
		case message := <-reading.Messages():
			if string(message.Value) == "last" {
				return found
			}
			found = append(found, string(message.Value))
		case <-deadline:
			panic(fmt.Sprintf("the last record of %s did not come after %v", topic, found))
		}
	}
}

func write(producer sarama.SyncProducer, topic, value string) error {
	_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
	return err
}

// Writes each record that it reads to another topic, in one transaction with its offset.
type copier struct {
	producer sarama.SyncProducer
	group    string
	to       string
	left     int
	isDone   func()
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		must(c.producer.BeginTxn())
		must(write(c.producer, c.to, string(message.Value)))
		must(c.producer.AddMessageToTxn(message, c.group, nil))
		must(c.producer.CommitTxn())
		session.MarkMessage(message, "")
		if c.left--; c.left == 0 {
			c.isDone()
		}
	}
	return nil
}

func (t *transactions) copyOver(from, to string, count int) {
	config := configOf(t.version)
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(t.bootstrap, to, config)
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c := &copier{producer: t.producer(to), group: to, to: to, left: count, isDone: cancel}
	for ctx.Err() == nil {
		must(group.Consume(ctx, []string{from}, c))
	}
	must(group.Close())
	must(c.producer.Close())
}

// Arguments: bootstrap, a topic, a topic to copy it to, whose versions of the protocol.
func runTransactions(args []string) {
	topic, copied := args[1], args[2]
	t := &transactions{bootstrap: args[:1], version: versionOf(args[3])}
	producer := t.producer(topic)
	expected := []string{}
	for number := 0; number < 6; number++ {
		value := fmt.Sprint(number)
		must(producer.BeginTxn())
		must(write(producer, topic, value))
		if number%2 == 1 {
			must(producer.AbortTxn())
			continue
		}
		must(producer.CommitTxn())
		expected = append(expected, value)
	}
	must(producer.BeginTxn())
	must(write(producer, topic, "zombie"))
	heir := t.producer(topic)
	must(heir.BeginTxn())
	must(write(heir, topic, "last"))
	must(heir.CommitTxn())
	isFenced := producer.CommitTxn() != nil
	seen := t.values(topic, sarama.ReadCommitted)
	all := t.values(topic, sarama.ReadUncommitted)
	t.copyOver(topic, copied, len(expected)+1)
	line, _ := json.Marshal(map[string]any{
		"seen": seen, "expected": expected, "all": len(all), "isFenced": isFenced,
		"copied": t.values(copied, sarama.ReadCommitted),
	})
	fmt.Println(string(line))
}
