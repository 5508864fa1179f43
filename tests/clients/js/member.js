// One member of a consumer group, with kafkajs; the same words and orders as clients/python/member.py.
'use strict'

const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, groupId] = process.argv.slice(2)
const kafka = new Kafka({
  clientId: 'member',
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { retries: 60, initialRetryTime: 200, maxRetryTime: 1000 },
})
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: 10000,
  heartbeatInterval: 500,
  rebalanceTimeout: 20000,
  retry: { retries: 60, initialRetryTime: 200, maxRetryTime: 1000, restartOnFailure: async () => true },
})

const shown = new Map()

async function commit() {
  const offsets = [...shown].sort((a, b) => a[0] - b[0])
  await consumer.commitOffsets(offsets.map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
  console.log('committed', offsets.map(([partition, offset]) => `${partition}:${offset}`).join(','))
}

const acts = {
  commit,
  leave: async () => {
    await commit()
    await consumer.disconnect()
    console.log('left')
    process.exit(0)
  },
}

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  shown.clear()
  console.log('assigned', (payload.memberAssignment[topic] ?? []).join(','))
})

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      console.log('record', partition, message.offset, String(message.value))
      shown.set(partition, Number(message.offset) + 1)
    },
  })
  let previous = Promise.resolve()
  readline.createInterface({ input: process.stdin }).on('line', (line) => {
    previous = previous.then(() => acts[line.trim()]()).catch((error) => {
      console.error(error.stack)
      process.exit(1)
    })
  })
}

main().catch((error) => {
  console.error(error.stack)
  process.exit(1)
})
