// Transactions: commit, abort, offsets in a transaction, and a fenced producer. One line for what went well.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 5 } })

async function values(isCommitted) {
  const consumer = kafka.consumer({ groupId: `${topic}-${isCommitted}`, readUncommitted: !isCommitted, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const found = []
  await consumer.run({ eachMessage: async ({ message }) => { found.push(message.value.toString()) } })
  const deadline = Date.now() + 20000
  while (!found.includes('last') && Date.now() < deadline) await new Promise((done) => setTimeout(done, 50))
  await consumer.disconnect()
  return found.filter((value) => value !== 'last')
}

// The broker's word for it in the versions that this client speaks, and not what the client says of its own state.
const isFence = (error) => error.type === 'INVALID_PRODUCER_EPOCH'

async function main() {
  const settings = { transactionalId: topic, maxInFlightRequests: 1, idempotent: true }
  const producer = kafka.producer(settings)
  await producer.connect()
  const expected = []
  for (let number = 0; number < 6; number++) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: `${number}`, partition: 0 }] })
    await transaction.sendOffsets({
      consumerGroupId: `${topic}-offsets`,
      topics: [{ topic, partitions: [{ partition: 0, offset: `${number}` }] }],
    })
    if (number % 2) await transaction.abort()
    else {
      await transaction.commit()
      expected.push(`${number}`)
    }
  }
  const heir = kafka.producer(settings)
  await heir.connect()
  const last = await heir.transaction()
  await last.send({ topic, messages: [{ value: 'last', partition: 0 }] })
  await last.commit()
  let isFenced = false
  try {
    const late = await producer.transaction()
    await late.send({ topic, messages: [{ value: 'zombie', partition: 0 }] })
    await late.commit()
  } catch (error) {
    if (!isFence(error)) throw error
    isFenced = true
  }
  const admin = kafka.admin()
  await admin.connect()
  const [committed] = await admin.fetchOffsets({ groupId: `${topic}-offsets`, topics: [topic] })
  const offset = committed.partitions.find((one) => one.partition === 0).offset
  const seen = await values(true)
  const all = await values(false)
  await Promise.all([producer.disconnect(), heir.disconnect(), admin.disconnect()])
  console.log(JSON.stringify({ seen, expected, all: all.length, offset, isFenced }))
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
