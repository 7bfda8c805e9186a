// Starts the image with the module kafka of testcontainers-go, and sends records to the address that it returns.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"slices"
	"strconv"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	confluent = "confluentinc/confluent-local:7.99.0"
	clusterID = "abcdefghijklmnopqrstuv"
	records   = 100
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	check(ctx, "kafka.Run", confluent, nil)
	check(ctx, "kafka.Run, cluster id", "barnabas-broker", nil, kafka.WithClusterID(clusterID))

	// Variables of the test override those of the image, and other containers connect to the alias of the network.
	net := must(network.New(ctx))
	settings := testcontainers.WithEnv(map[string]string{"KAFKA_NUM_PARTITIONS": "3"})
	check(ctx, "kafka.Run, network and variables", confluent, useAlias, network.WithNetwork([]string{"kafka"}, net), settings)
	must(0, net.Remove(ctx))
}

func check(ctx context.Context, name, image string, use func(context.Context, *kafka.KafkaContainer, *kgo.Client),
	options ...testcontainers.ContainerCustomizer) {
	began := time.Now()
	container, err := kafka.Run(ctx, image, options...)
	defer testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0))
	seconds := time.Since(began).Seconds()
	must(0, err)
	brokers := must(container.Brokers(ctx))
	client := must(kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation(),
		kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("records"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	defer client.Close()
	for number := range records {
		record := kgo.Record{Topic: "records", Value: []byte(strconv.Itoa(number))}
		must(0, client.ProduceSync(ctx, &record).FirstErr())
	}
	read := consume(ctx, client, records)
	expect(len(read) == records, "read", read)
	if use != nil {
		use(ctx, container, client)
	}
	fmt.Printf("%s %s: ready after %.2f s, %d records\n", name, image, seconds, records)
}

func useAlias(ctx context.Context, container *kafka.KafkaContainer, client *kgo.Client) {
	command := "printf 'one\\ntwo\\n' | kafka-console-producer --bootstrap-server kafka:9092 --topic records"
	status, output, err := container.Exec(ctx, []string{"sh", "-c", command}, exec.Multiplexed())
	text := must(io.ReadAll(output))
	expect(err == nil && status == 0, "exec", err, string(text))
	expect(slices.Equal(consume(ctx, client, 2), []string{"one", "two"}), "the records of the container")
}

// consume returns that many values, sorted: their order is that of each partition.
func consume(ctx context.Context, client *kgo.Client, count int) []string {
	var read []string
	for len(read) < count {
		fetches := client.PollFetches(ctx)
		must(0, fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { read = append(read, string(record.Value)) })
	}
	slices.Sort(read)
	return read
}

func must[T any](value T, err error) T {
	expect(err == nil, err)
	return value
}

func expect(holds bool, what ...any) {
	if !holds {
		log.Panicln(what...)
	}
}
