// Transactions: commit, abort, offsets in a transaction, and a fenced producer. One line for what went well.
import { Admin, Consumer, Producer } from '@platformatic/kafka'

const [bootstrap, topic] = process.argv.slice(2)
const connection = { clientId: 'transactions', bootstrapBrokers: [bootstrap], retries: 5, retryDelay: 50 }

// The broker's word for it, and not what the client says of its own state.
const isFence = error => Boolean(error.findBy?.('apiId', 'PRODUCER_FENCED'))

async function main() {
  // Left to itself it claims to have been producer 0 before, which fences all who are not.
  const settings = { ...connection, transactionalId: topic, idempotent: true, producerId: -1n, producerEpoch: -1 }
  const producer = new Producer(settings)
  const send = (transaction, value) =>
    transaction.send({ messages: [{ topic, partition: 0, value: Buffer.from(value) }], acks: -1 })
  const groupId = `${topic}-offsets`
  const consumer = new Consumer({ ...connection, groupId, autocommit: false, maxWaitTime: 200 })
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest' })
  // Reads along, so that no answer holds more than one aborted transaction.
  const written = stream[Symbol.asyncIterator]()
  let before = null
  for (let number = 0; number < 6; number++) {
    const transaction = await producer.beginTransaction()
    await send(transaction, `${number}`)
    // The offset of what was committed before goes into this transaction, too.
    if (before !== null) {
      await transaction.addConsumer(consumer)
      await transaction.addOffset(before)
    }
    if (number % 2) await transaction.abort()
    else {
      await transaction.commit()
      before = (await written.next()).value
    }
  }
  const heir = new Producer(settings)
  const last = await heir.beginTransaction()
  await send(last, 'last')
  await last.commit()
  let isFenced = false
  try {
    const late = await producer.beginTransaction()
    await send(late, 'zombie')
    await late.commit()
  } catch (error) {
    if (!isFence(error)) throw error
    isFenced = true
  }
  const admin = new Admin(connection)
  const asked = { groupId, topics: [{ name: topic, partitionIndexes: [0] }] }
  const [committed] = await admin.listConsumerGroupOffsets({ groups: [asked] })
  const offset = `${committed.topics[0].partitions[0].committedOffset}`
  console.log(JSON.stringify({ offset, isFenced }))
}

main().then(() => process.exit(0), error => { console.error(error); process.exit(1) })
