// Reads one record of each partition with the consumer's own defaults, and prints their number and sum of bytes.
// Arguments: bootstrap, topic, number of partitions.
import { Consumer } from '@platformatic/kafka'

const [bootstrap, topic, partitions] = process.argv.slice(2)
const consumer = new Consumer({ clientId: 'backlog', bootstrapBrokers: [bootstrap], groupId: `platformatic-${topic}` })
const stream = await consumer.consume({ topics: [topic], mode: 'earliest' })
let count = 0
let bytes = 0
for await (const { value } of stream) {
  count++
  bytes += value.length
  if (count === Number(partitions)) break
}
console.log(`${count} ${bytes}`)
process.exit(0)
