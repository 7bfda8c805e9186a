// The scenario of the compatibility table with kafkajs: prints one JSON line for each feature.
const assert = require('node:assert')
const { randomUUID, randomBytes } = require('node:crypto')
const { Kafka, CompressionTypes, CompressionCodecs, Partitioners, ConfigResourceTypes, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const kafka = new Kafka({
  clientId: 'compat',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { retries: 5, initialRetryTime: 50 },
})
const admin = kafka.admin()

async function feature(name, check) {
  let problem = null
  try {
    await check()
  } catch (error) {
    problem = `${error.stack || error}`.split('\n').slice(0, 6).join(' | ')
  }
  console.log(`{"feature": ${JSON.stringify(name)}, "ok": ${problem === null}, "detail": ${JSON.stringify(problem)}}`)
}

async function newTopic(numPartitions = 1, configEntries = []) {
  const topic = `js-${randomUUID().slice(0, 8)}`
  await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }], waitForLeaders: true })
  return topic
}

async function send(topic, messages, { acks = -1, compression = CompressionTypes.None, idempotent = false } = {}) {
  const producer = kafka.producer({ idempotent, createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  try {
    return await producer.send({ topic, acks, compression, messages })
  } finally {
    await producer.disconnect()
  }
}

// kafkajs has no consumer without a group, so records are read through the cluster object that its consumer stands on.
async function read(topic, offset, count, partition = 0) {
  const createCluster = Object.getOwnPropertySymbols(kafka).find(each => each.description.endsWith('createCluster'))
  const cluster = kafka[createCluster]({ metadataMaxAge: 300000, isolationLevel: 0 })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    const metadata = cluster.findTopicPartitionMetadata(topic).find(each => each.partitionId === partition)
    const broker = await cluster.findBroker({ nodeId: String(metadata.leader) })
    const got = []
    let next = BigInt(offset)
    const deadline = Date.now() + 20000
    while (got.length < count && Date.now() < deadline) {
      const { responses } = await broker.fetch({
        maxWaitTime: 500, minBytes: 1, maxBytes: 10485760, isolationLevel: 0, rackId: '',
        topics: [{ topic, partitions: [{ partition, fetchOffset: next.toString(), maxBytes: 1048576 }] }],
      })
      for (const message of responses[0].partitions[0].messages) {
        if (BigInt(message.offset) >= next) {
          got.push(message)
          next = BigInt(message.offset) + 1n
        }
      }
    }
    assert.ok(got.length >= count, `${got.length} of ${count} records came`)
    return got.slice(0, count)
  } finally {
    await cluster.disconnect()
  }
}

async function checkCodec(compression) {
  const topic = await newTopic()
  const messages = Array.from({ length: 1000 }, (_, n) => ({ key: `k${n}`, value: `value ${n} ${' '.repeat(100)}` }))
  await send(topic, messages, { compression })
  const got = await read(topic, 0, 1000)
  assert.deepStrictEqual(got.map(each => each.value.toString()), messages.map(each => each.value))
  assert.deepStrictEqual(got.map(each => Number(each.offset)), messages.map((_, n) => n))
}

async function main() {
  await admin.connect()
  await feature('create', async () => {
    const topic = await newTopic(3)
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.strictEqual(topics[0].partitions.length, 5)
    assert.strictEqual(await admin.createTopics({ topics: [{ topic }] }), false)
    assert.strictEqual((await admin.describeCluster()).brokers.length, 1)
    await admin.deleteTopics({ topics: [topic] })
  })
  await feature('none', () => checkCodec(CompressionTypes.None))
  await feature('gzip', () => checkCodec(CompressionTypes.GZIP))
  await feature('snappy', () => checkCodec(CompressionTypes.Snappy))
  await feature('acks', async () => {
    for (const acks of [0, 1, -1]) {
      const topic = await newTopic()
      await send(topic, [{ value: 'a' }, { value: 'b' }], { acks })
      assert.deepStrictEqual((await read(topic, 0, 2)).map(each => each.value.toString()), ['a', 'b'])
    }
  })
  await feature('idempotent', async () => {
    const topic = await newTopic()
    await send(topic, Array.from({ length: 100 }, (_, n) => ({ value: `${n}` })), { idempotent: true })
    assert.deepStrictEqual((await read(topic, 0, 100)).map(each => each.value.toString()), Array.from({ length: 100 }, (_, n) => `${n}`))
  })
  await feature('headers', async () => {
    const topic = await newTopic()
    await send(topic, [{ value: 'v', headers: { a: '1', b: ['2', '3'] } }])
    const { headers } = (await read(topic, 0, 1))[0]
    assert.strictEqual(headers.a.toString(), '1')
    assert.deepStrictEqual(headers.b.map(String), ['2', '3'])
  })
  await feature('nulls', async () => {
    const topic = await newTopic()
    await send(topic, [{ key: null, value: 'v' }, { key: 'k', value: null }])
    const got = await read(topic, 0, 2)
    assert.strictEqual(got[0].key, null)
    assert.strictEqual(got[1].value, null)
  })
  await feature('large', async () => {
    const topic = await newTopic()
    const value = randomBytes(900000)
    await send(topic, [{ value }])
    assert.ok((await read(topic, 0, 1))[0].value.equals(value))
    await assert.rejects(send(topic, [{ value: randomBytes(2000000) }]), /larger than|too large|MESSAGE_TOO_LARGE/i)
  })
  await feature('partitions', async () => {
    const topic = await newTopic(30)
    const messages = Array.from({ length: 300 }, (_, n) => ({ value: `${n}`, partition: n % 30 }))
    assert.strictEqual((await send(topic, messages)).length, 30)
    for (const partition of [0, 17, 29]) {
      assert.strictEqual((await read(topic, 0, 10, partition))[9].value.toString(), `${270 + partition}`)
    }
  })
  await feature('offsets', async () => {
    const topic = await newTopic()
    await send(topic, Array.from({ length: 50 }, (_, n) => ({ value: `${n}` })))
    const [offsets] = await admin.fetchTopicOffsets(topic)
    assert.deepStrictEqual([offsets.low, offsets.high], ['0', '50'])
    assert.strictEqual((await read(topic, 42, 1))[0].value.toString(), '42')
    await assert.rejects(read(topic, 1000, 1), { type: 'OFFSET_OUT_OF_RANGE' })
  })
  await feature('timestamps', async () => {
    const topic = await newTopic()
    const start = Date.now() - 100000
    await send(topic, Array.from({ length: 50 }, (_, n) => ({ value: `${n}`, timestamp: `${start + n * 1000}` })))
    const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, start + 20500)
    assert.strictEqual(found.offset, '21')
  })
  await feature('delete-records', async () => {
    const topic = await newTopic()
    await send(topic, Array.from({ length: 10 }, (_, n) => ({ value: `${n}` })))
    // kafkajs looks the leader up in what it knows already, and does not ask.
    await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
    assert.strictEqual((await admin.fetchTopicOffsets(topic))[0].low, '4')
  })
  await feature('configs', async () => {
    const topic = await newTopic(1, [{ name: 'retention.ms', value: '1000000' }])
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const described = await admin.describeConfigs({ includeSynonyms: true, resources: [resource] })
    const value = name => described.resources[0].configEntries.find(each => each.configName === name).configValue
    assert.strictEqual(value('retention.ms'), '1000000')
    assert.strictEqual(value('cleanup.policy'), 'delete')
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '2000' }] }] })
    const again = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })
    assert.strictEqual(again.resources[0].configEntries[0].configValue, '2000')
  })
  await feature('topics', async () => {
    const names = Array.from({ length: 100 }, () => `js-${randomUUID()}`)
    await admin.createTopics({ topics: names.map(topic => ({ topic })) })
    const listed = new Set(await admin.listTopics())
    assert.ok(names.every(name => listed.has(name)))
    await admin.deleteTopics({ topics: names })
  })
  await admin.disconnect()
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
