// A member of a group that says on its output what it is assigned, what it reads and when that is committed.
// Arguments: bootstrap, group, topic, strategy (`roundrobin`), session timeout in ms. It leaves when its input ends.
import { Consumer } from '@platformatic/kafka'

const [bootstrap, groupId, topic, strategy, sessionTimeout] = process.argv.slice(2)
const consumer = new Consumer({
  clientId: 'member', bootstrapBrokers: [bootstrap], groupId, autocommit: false, maxWaitTime: 200,
  protocols: [{ name: strategy, version: 1 }],
  sessionTimeout: Number(sessionTimeout), rebalanceTimeout: 10000, heartbeatInterval: 300,
})

const assigned = () => consumer.assignments?.find(each => each.topic === topic)?.partitions ?? []
const say = (...words) => console.log(words.join(' '))

consumer.on('consumer:group:join', () => say('assigned', ...assigned()))
const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
process.stdin.on('end', async () => {
  await consumer.close(true)
  process.exit(0)
})
process.stdin.resume()
const latest = new Map()
for await (const message of stream) {
  const { partition, offset } = message
  say('got', `${partition}:${offset}`)
  latest.set(partition, message)
  // What there is is committed at once: each commit is a request that is waited for.
  if (stream.readableLength > 0) continue
  for (const each of latest.values()) {
    try {
      await each.commit()
      say('done', each.partition)
    } catch (error) {
      // It was fetched in an earlier generation.
      say('#', error.message)
      say('lost', each.partition)
    }
  }
  latest.clear()
}
