// A member of a group that says on its output what it is assigned, what it reads and when that is committed.
// Arguments: bootstrap, group, topic, strategy (there is one), session timeout in ms. It leaves when its input ends.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic, , sessionTimeout] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'member', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } })
const consumer = kafka.consumer({
  groupId, sessionTimeout: Number(sessionTimeout), heartbeatInterval: 300, rebalanceTimeout: 10000, maxWaitTimeInMs: 200,
})

async function eachBatch({ batch, resolveOffset, heartbeat, isRunning, isStale }) {
  if (!isRunning() || isStale()) return
  const { partition } = batch
  console.log(['got', ...batch.messages.map(each => `${partition}:${each.offset}`)].join(' '))
  try {
    await consumer.commitOffsets([{ topic, partition, offset: `${BigInt(batch.lastOffset()) + 1n}` }])
  } catch (error) {
    console.log(`# ${error.message}`)
    console.log(`lost ${partition}`)
    throw error
  }
  console.log(`done ${partition}`)
  resolveOffset(batch.lastOffset())
  await heartbeat()
}

async function main() {
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    console.log(['assigned', ...(payload.memberAssignment[topic] || [])].join(' '))
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  process.stdin.on('end', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  process.stdin.resume()
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
