// Writes numbers to the partitions of a topic in turn, and says on its output which were acknowledged.
// Arguments: bootstrap, topic, partitions. It ends when its input ends.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, count] = process.argv.slice(2)
const partitions = Number(count)
const kafka = new Kafka({
  clientId: 'writer', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, requestTimeout: 5000,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 100 },
})

async function main() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  let isOver = false
  process.stdin.on('end', () => { isOver = true })
  process.stdin.resume()
  await producer.connect()
  for (let number = 0; !isOver; number++) {
    // One partition at a time: of a send to several brokers kafkajs 2.2 takes for done, when it tries again, whatever is
    // led by then by a broker that has answered before, and records of a broker that was lost are never sent.
    const value = `${number}`
    await producer.send({ topic, messages: [{ partition: number % partitions, value }] })
    console.log(`sent ${value}`)
  }
  await producer.disconnect()
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
