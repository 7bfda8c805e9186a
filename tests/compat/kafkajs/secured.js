// Writes a record for each attempt that its input names, all at once, and says what came of them, as one list in JSON.
// An attempt: {bootstrap, topic, ssl: {ca, own} with paths, sasl}; the mechanism oauthbearer has a token.
const { readFileSync } = require('node:fs')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

async function attempt({ bootstrap, topic, ssl, sasl }) {
  const own = ssl.own && readFileSync(ssl.own)
  const kafka = new Kafka({
    clientId: 'secured', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 2, initialRetryTime: 50 },
    connectionTimeout: 30000, authenticationTimeout: 30000,
    ssl: { ca: [readFileSync(ssl.ca)], ...(own && { cert: own, key: own }) },
    ...(sasl && { sasl: { ...sasl, oauthBearerProvider: async () => ({ value: sasl.token }) } }),
  })
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, retry: { retries: 2 } })
  try {
    await producer.connect()
    await producer.send({ topic, messages: [{ value: 'v' }] })
    return 'written'
  } catch (error) {
    return `${error.name}: ${error.message}`
  } finally {
    await producer.disconnect()
  }
}

Promise.all(JSON.parse(process.argv[2]).map(attempt))
  .then((outcomes) => { console.log(JSON.stringify(outcomes)); process.exit(0) })
