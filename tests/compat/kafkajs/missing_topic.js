// Subscribes to a topic that the broker creates because the consumer requests its metadata.
const { randomUUID } = require('node:crypto')
const { Kafka, logLevel } = require('kafkajs')

async function main() {
  const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
  const consumer = kafka.consumer({ groupId: `missing-${randomUUID()}` })
  await consumer.connect()
  try {
    await consumer.subscribe({ topic: `missing-${randomUUID()}` })
    console.log('subscribed')
  } finally {
    await consumer.disconnect()
  }
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
