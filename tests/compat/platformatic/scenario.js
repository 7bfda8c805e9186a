// The scenario of the compatibility table with @platformatic/kafka: prints one JSON line for each feature.
import assert from 'node:assert'
import { randomBytes, randomUUID } from 'node:crypto'
import zlib from 'node:zlib'
import {
  Admin, ConfigResourceTypes, Consumer, IncrementalAlterConfigOperationTypes, ListOffsetTimestamps, Producer,
} from '@platformatic/kafka'

const connection = { clientId: 'compat', bootstrapBrokers: [process.argv[2]], retries: 5, retryDelay: 50 }
const admin = new Admin(connection)

async function feature(name, check) {
  let problem = null
  try {
    await check()
  } catch (error) {
    problem = `${error.stack || error}`.split('\n').slice(0, 6).join(' | ')
  }
  console.log(`{"feature": ${JSON.stringify(name)}, "ok": ${problem === null}, "detail": ${JSON.stringify(problem)}}`)
}

async function newTopic(partitions = 1, configs = []) {
  const topic = `js-${randomUUID().slice(0, 8)}`
  await admin.createTopics({ topics: [topic], partitions, replicas: 1, configs })
  return topic
}

const buffer = value => (typeof value === 'string' ? Buffer.from(value) : value)
const message = ({ key, value, ...rest }, topic) =>
  ({ topic, partition: 0, key: buffer(key), value: buffer(value), ...rest })
const numbered = count =>
  Array.from({ length: count }, (_, n) => ({ key: `k${n}`, value: `value ${n} ${' '.repeat(100)}` }))

async function withProducer(options, use) {
  const producer = new Producer({ ...connection, ...options })
  try {
    return await use(producer)
  } finally {
    await producer.close()
  }
}

const send = (topic, messages, options = {}) =>
  withProducer(options, producer =>
    producer.send({ messages: messages.map(each => message(each, topic)), acks: -1, ...options }))

async function withConsumer(use) {
  const consumer = new Consumer({ ...connection, groupId: randomUUID(), maxWaitTime: 100, autocommit: false })
  try {
    return await use(consumer)
  } finally {
    await consumer.close(true)
  }
}

const read = (topic, start, count) => withConsumer(async consumer => {
  const stream = await consumer.consume({ topics: [topic], ...start })
  const deadline = setTimeout(() => stream.destroy(new Error(`${got.length} of ${count} records came`)), 20000)
  const got = []
  for await (const each of stream) {
    got.push(each)
    if (got.length === count) break
  }
  clearTimeout(deadline)
  return got
})

const EARLIEST = { mode: 'earliest' }
const readFrom = (topic, offset, count) =>
  read(topic, { mode: 'manual', offsets: [{ topic, partition: 0, offset: BigInt(offset) }] }, count)

async function checkSame(topic, sent) {
  const got = await read(topic, EARLIEST, sent.length)
  assert.deepStrictEqual(got.map(each => `${each.key}`), sent.map(each => each.key))
  assert.deepStrictEqual(got.map(each => `${each.value}`), sent.map(each => each.value))
  assert.deepStrictEqual(got.map(each => Number(each.offset)), sent.map((_, n) => n))
}

async function checkCodec(compression) {
  const topic = await newTopic()
  const sent = numbered(1000)
  await send(topic, sent, { compression })
  await checkSame(topic, sent)
}

async function offsetAt(topic, timestamp) {
  const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp }] }] })
  return found.partitions[0]
}

const isKafkas = id => error => error.findBy('apiId', id) !== null

// The stream of a consumer that is out of range begins anew; who fetches sees the broker's answer.
const checkOutOfRange = (topic, offset) => withConsumer(async consumer => {
  const metadata = await consumer.metadata({ topics: [topic] })
  const { id, partitions } = metadata.topics.get(topic)
  const place = { partition: 0, fetchOffset: BigInt(offset), partitionMaxBytes: 1e6 }
  const topics = [{ topicId: id, partitions: [{ ...place, currentLeaderEpoch: -1, lastFetchedEpoch: -1 }] }]
  await assert.rejects(consumer.fetch({ node: partitions[0].leader, topics }), isKafkas('OFFSET_OUT_OF_RANGE'))
})

async function main() {
  await feature('create', async () => {
    const topic = await newTopic(3)
    await admin.createPartitions({ topics: [{ name: topic, count: 5 }] })
    const { topics, brokers } = await admin.metadata({ topics: [topic], forceUpdate: true })
    assert.strictEqual(topics.get(topic).partitionsCount, 5)
    assert.strictEqual(brokers.size, 1)
    await assert.rejects(admin.createTopics({ topics: [topic] }), isKafkas('TOPIC_ALREADY_EXISTS'))
    await admin.deleteTopics({ topics: [topic] })
  })
  await feature('none', () => checkCodec('none'))
  await feature('gzip', () => checkCodec('gzip'))
  await feature('snappy', () => checkCodec('snappy'))
  await feature('lz4', () => checkCodec('lz4'))
  if (zlib.zstdCompressSync) await feature('zstd', () => checkCodec('zstd'))
  await feature('acks', async () => {
    for (const acks of [0, 1, -1]) {
      const topic = await newTopic()
      const sent = numbered(50)
      await send(topic, sent, { acks })
      await checkSame(topic, sent)
    }
  })
  await feature('idempotent', async () => {
    const topic = await newTopic()
    const sent = numbered(5000)
    await withProducer({ idempotent: true }, async producer => {
      for (let n = 0; n < sent.length; n += 40) {
        await producer.send({ messages: sent.slice(n, n + 40).map(each => message(each, topic)), acks: -1 })
      }
    })
    await checkSame(topic, sent)
  })
  await feature('headers', async () => {
    const topic = await newTopic()
    await send(topic, [{ value: 'v', headers: new Map([[buffer('a'), buffer('1')], [buffer('a'), null]]) }])
    const [{ headers }] = await read(topic, EARLIEST, 1)
    const got = [...headers].map(([name, value]) => [`${name}`, value && `${value}`])
    assert.deepStrictEqual(got, [['a', '1'], ['a', undefined]])
  })
  await feature('nulls', async () => {
    const topic = await newTopic()
    await send(topic, [{ key: null, value: 'v' }, { key: 'k', value: null }, { key: '', value: '' }])
    const got = await read(topic, EARLIEST, 3)
    const lengths = got.map(({ key, value }) => [key?.length, value?.length])
    assert.deepStrictEqual(lengths, [[undefined, 1], [1, undefined], [0, 0]])
  })
  await feature('large', async () => {
    const topic = await newTopic()
    const value = randomBytes(900000)
    await withProducer({}, async producer => {
      const write = each => producer.send({ messages: [{ topic, value: each }], acks: -1 })
      await write(value)
      await assert.rejects(write(randomBytes(2000000)), isKafkas('MESSAGE_TOO_LARGE'))
      await write(value)
    })
    for (const each of await read(topic, EARLIEST, 2)) assert.ok(each.value.equals(value))
  })
  await feature('partitions', async () => {
    const topic = await newTopic(30)
    const place = n => ({ partition: n % 30, value: `${n % 30}-${Math.floor(n / 30)}` })
    // Where one partition has no leader yet it sends again to all of them, so that only who is idempotent writes once.
    await send(topic, Array.from({ length: 600 }, (_, n) => place(n)), { idempotent: true })
    for (const { partition, offset, value } of await read(topic, EARLIEST, 600)) {
      assert.strictEqual(`${value}`, `${partition}-${offset}`)
    }
  })
  await feature('offsets', async () => {
    const topic = await newTopic()
    await send(topic, numbered(100))
    assert.strictEqual((await read(topic, EARLIEST, 1))[0].offset, 0n)
    assert.strictEqual((await readFrom(topic, 42, 1))[0].offset, 42n)
    const { offset } = await offsetAt(topic, ListOffsetTimestamps.LATEST)
    assert.strictEqual(offset, 100n)
    assert.strictEqual((await readFrom(topic, offset - 3n, 3))[0].offset, 97n)
    await checkOutOfRange(topic, 1000)
  })
  await feature('timestamps', async () => {
    const topic = await newTopic()
    const start = BigInt(Date.now() - 100000)
    await send(topic, numbered(50).map((each, n) => ({ ...each, timestamp: start + BigInt(n * 1000) })))
    const { offset, timestamp } = await offsetAt(topic, start + 20500n)
    assert.deepStrictEqual([offset, timestamp], [21n, start + 21000n])
    assert.strictEqual((await offsetAt(topic, start + 50000n)).offset, -1n)
  })
  await feature('delete-records', async () => {
    const topic = await newTopic()
    await send(topic, numbered(10))
    await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 4n }] }] })
    assert.strictEqual((await offsetAt(topic, ListOffsetTimestamps.EARLIEST)).offset, 4n)
    await checkOutOfRange(topic, 3)
  })
  await feature('configs', async () => {
    const topic = await newTopic(1, [{ name: 'retention.ms', value: '1000000' }])
    const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
    const config = async name => {
      const [{ configs }] = await admin.describeConfigs({ resources: [resource] })
      return configs.find(each => each.name === name).value
    }
    assert.strictEqual(await config('retention.ms'), '1000000')
    assert.strictEqual(await config('cleanup.policy'), 'delete')
    const change = { name: 'max.message.bytes', value: '2000' }
    const configs = [{ ...change, configOperation: IncrementalAlterConfigOperationTypes.SET }]
    await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs }] })
    assert.strictEqual(await config('max.message.bytes'), '2000')
    assert.strictEqual(await config('retention.ms'), '1000000')
    await assert.rejects(send(topic, [{ value: randomBytes(3000) }]), isKafkas('MESSAGE_TOO_LARGE'))
  })
  await feature('topics', async () => {
    const names = Array.from({ length: 100 }, () => `js-${randomUUID()}`)
    await admin.createTopics({ topics: names, partitions: 1, replicas: 1 })
    const listed = new Set(await admin.listTopics())
    assert.ok(names.every(name => listed.has(name)))
    await admin.deleteTopics({ topics: names })
  })
  await admin.close()
}

main().then(() => process.exit(0), error => { console.error(error); process.exit(1) })
