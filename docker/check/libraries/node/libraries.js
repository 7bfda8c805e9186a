// Starts the image with KafkaContainer of @testcontainers/kafka, and sends records to the address that it returns.
import assert from "node:assert/strict";
import { KafkaContainer } from "@testcontainers/kafka";
import { Kafka, logLevel } from "kafkajs";
import { Network, Wait } from "testcontainers";

const CONFLUENT_7 = "confluentinc/cp-kafka:7.99.0";
const CONFLUENT_8 = "confluentinc/cp-kafka:8.99.0";
const SERVES = Wait.forLogMessage("Kafka Server started");
const RECORDS = Array.from({ length: 100 }, (_, number) => String(number));

async function consume(client, topic, records) {
  const consumer = client.consumer({ groupId: "readers" });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const read = [];
  await new Promise((resolve, reject) => {
    const timeout = setTimeout(() => reject(new Error(`${read.length} records read`)), 60_000);
    consumer.run({
      eachMessage: async ({ message }) => {
        if (read.push(message.value.toString()) === records) {
          clearTimeout(timeout);
          resolve();
        }
      },
    });
  });
  await consumer.disconnect();
  return read;
}

async function check(name, image, container, use = async () => {}) {
  const began = performance.now();
  const kafka = await container.start();
  const seconds = ((performance.now() - began) / 1000).toFixed(2);
  try {
    const brokers = [`${kafka.getHost()}:${kafka.getMappedPort(9093)}`];
    const client = new Kafka({ brokers, logLevel: logLevel.NOTHING });
    const producer = client.producer();
    await producer.connect();
    await producer.send({ topic: "records", messages: RECORDS.map((value) => ({ value })) });
    await producer.disconnect();
    const read = await consume(client, "records", RECORDS.length);
    assert.equal(new Set(read).size, RECORDS.length); // the order is that of each partition
    await use(kafka, client);
    console.log(`${name} ${image}: ready after ${seconds} s, ${RECORDS.length} records`);
  } finally {
    await kafka.stop();
  }
}

for (const image of [CONFLUENT_7, CONFLUENT_8]) {
  await check("KafkaContainer, KRaft", image, new KafkaContainer(image).withKraft().withWaitStrategy(SERVES));
}
await check("KafkaContainer, ZooKeeper", CONFLUENT_7, new KafkaContainer(CONFLUENT_7).withWaitStrategy(SERVES));
// Without a wait strategy, this version of the library returns before the broker listens: the client tries again.
await check("KafkaContainer, no wait,", CONFLUENT_8, new KafkaContainer(CONFLUENT_8));

// Variables of the test override those of the image, and other containers connect to the alias of the network.
const network = await new Network().start();
try {
  const container = new KafkaContainer(CONFLUENT_8)
    .withNetwork(network)
    .withNetworkAliases("kafka")
    .withEnvironment({ KAFKA_NUM_PARTITIONS: "3" })
    .withWaitStrategy(SERVES);
  await check("KafkaContainer, network and variables,", CONFLUENT_8, container, async (kafka, client) => {
    const command = "printf 'one\\ntwo\\n' | kafka-console-producer --bootstrap-server kafka:9092 --topic others";
    const { exitCode, output } = await kafka.exec(["sh", "-c", command]);
    assert.equal(exitCode, 0, output);
    const admin = client.admin();
    await admin.connect();
    const { topics } = await admin.fetchTopicMetadata({ topics: ["others"] });
    await admin.disconnect();
    assert.equal(topics[0].partitions.length, 3);
    assert.deepEqual((await consume(client, "others", 2)).sort(), ["one", "two"]);
  });
} finally {
  await network.stop();
}
