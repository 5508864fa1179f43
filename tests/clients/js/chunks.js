// Carries one large file through a topic with kafkajs; the same task and the same words as
// clients/python/chunks.py. kafkajs knows gzip and no compression without further packages.
'use strict'

const fs = require('node:fs')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const CHUNK_BYTES = [1000, 65536, 300, 200000, 16384, 150001]
// Three for each partition: kafkajs makes one batch of them, which must stay below a topic's usual limit.
const CHUNKS_PER_SEND = 24
const PATIENCE_MS = 150000

function fail(what) {
  console.error(what)
  process.exit(1)
}

const [act, bootstrap, topic, file, codec] = process.argv.slice(2)
const kafka = new Kafka({
  clientId: 'chunks',
  brokers: [bootstrap],
  logLevel: logLevel.ERROR,
  retry: { retries: 60, initialRetryTime: 200, maxRetryTime: 1000 },
})

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[codec]
  const source = fs.readFileSync(file)
  let position = 0
  let count = 0
  while (position < source.length) {
    const messages = []
    while (messages.length < CHUNKS_PER_SEND && position < source.length) {
      const size = CHUNK_BYTES[count % CHUNK_BYTES.length]
      const value = source.subarray(position, position + size)
      // Round robin, so that each partition has chunks in every send.
      messages.push({ key: String(count), value, partition: count % 8, headers: { chunk: String(count) } })
      position += value.length
      count += 1
    }
    await producer.send({ topic, acks: -1, compression, messages })
    console.log('acked', count)
  }
  await producer.disconnect()
  console.log('done', count)
}

async function consume() {
  const admin = kafka.admin()
  await admin.connect()
  const ends = new Map((await admin.fetchTopicOffsets(topic)).map((p) => [p.partition, Number(p.high)]))
  await admin.disconnect()
  const expected = [...ends.values()].reduce((sum, end) => sum + end, 0)
  const consumer = kafka.consumer({ groupId: `chunks-${topic}`, maxBytesPerPartition: 8 << 20 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const chunks = new Map()
  const last = new Map()
  const timer = setTimeout(() => fail(`only ${chunks.size} of ${expected} chunks came`), PATIENCE_MS)
  await new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        const index = Number(message.key)
        if (String(message.headers.chunk) !== String(index)) fail(`chunk ${index} lost its header`)
        if (chunks.has(index)) fail(`chunk ${index} came twice`)
        if (index <= (last.get(partition) ?? -1)) fail(`chunk ${index} came out of order`)
        last.set(partition, index)
        chunks.set(index, message.value)
        if (chunks.size === expected) resolve()
      },
    })
  })
  clearTimeout(timer)
  await consumer.disconnect()
  const out = fs.openSync(file, 'w')
  for (let index = 0; index < chunks.size; index += 1) fs.writeSync(out, chunks.get(index))
  fs.closeSync(out)
  console.log('chunks', chunks.size)
}

const acts = { produce, consume }
acts[act]().catch((error) => fail(error.stack))
