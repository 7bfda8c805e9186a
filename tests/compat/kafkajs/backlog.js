// Reads one record of each partition with the consumer's own defaults, and prints their number and sum of bytes.
// Arguments: bootstrap, topic, number of partitions.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, partitions] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'backlog', brokers: [bootstrap], logLevel: logLevel.ERROR })
const consumer = kafka.consumer({ groupId: `backlog-${topic}`, maxWaitTimeInMs: 200 })
let count = 0
let bytes = 0

async function eachMessage({ message }) {
  count++
  bytes += message.value.length
  if (count === Number(partitions)) {
    console.log(`${count} ${bytes}`)
    process.exit(0)
  }
}

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage })
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
