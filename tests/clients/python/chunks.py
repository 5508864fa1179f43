"""Carries one large file through a topic with confluent-kafka.

`produce` cuts the file into chunks of changing size and sends each keyed by its index; it says
`acked N` on the way and `done N` at the end. `consume` reads all partitions to their ends, checks that
every chunk came exactly once and in order within its partition, and writes the file anew.
"""

import argparse
import itertools
import sys
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

CHUNK_BYTES = itertools.cycle([1_000, 65_536, 300, 200_000, 16_384, 150_001])
# How long the producer goes on trying over a restart, and the consumer waits for a record.
PATIENCE_MS = 150_000


def produce(options):
    failures = []
    acked = itertools.count(1)

    def delivered(error, message):
        if error is not None:
            failures.append(f"chunk {message.key()}: {error}")
            return
        count = next(acked)
        if count % 20 == 0:
            print("acked", count)

    producer = Producer({
        "bootstrap.servers": options.bootstrap,
        "enable.idempotence": True,
        "compression.type": options.codec,
        "linger.ms": 5,
        "partitioner": "murmur2_random",
        "message.timeout.ms": PATIENCE_MS,
        # Few enough that the acknowledgements seen tell how far the transfer is.
        "queue.buffering.max.messages": 200,
        "reconnect.backoff.max.ms": 500,
    })
    count = 0
    with open(options.file, "rb") as file:
        while chunk := file.read(next(CHUNK_BYTES)):
            while True:
                try:
                    producer.produce(
                        options.topic, chunk, key=b"%d" % count,
                        headers={"chunk": b"%d" % count}, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
            producer.poll(0)
    left = producer.flush(PATIENCE_MS / 1000)
    if left or failures:
        sys.exit(f"{left} chunks were not delivered; {failures[:5]}")
    if next(acked) != count + 1:
        sys.exit("not every chunk was acknowledged once")
    print("done", count)


def consume(options):
    consumer = Consumer({
        "bootstrap.servers": options.bootstrap,
        "group.id": "chunks",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "isolation.level": "read_committed",
    })
    partitions = list(consumer.list_topics(options.topic, 30).topics[options.topic].partitions)
    consumer.assign([TopicPartition(options.topic, partition, 0) for partition in partitions])
    chunks, last, next_offset, ended = {}, {}, {}, set()
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while len(ended) < len(partitions):
        if time.monotonic() > deadline:
            sys.exit(f"only {sorted(ended)} of {partitions} came to their ends")
        for message in consumer.consume(500, 1.0):
            partition = message.partition()
            if message.error():
                if message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
                    continue
                sys.exit(f"partition {partition}: {message.error()}")
            index = int(message.key())
            if message.headers() != [("chunk", message.key())]:
                sys.exit(f"chunk {index} has the headers {message.headers()}")
            if index in chunks:
                sys.exit(f"chunk {index} came twice, again at {partition}:{message.offset()}")
            if index <= last.get(partition, -1):
                sys.exit(f"chunk {index} came after {last[partition]} in partition {partition}")
            if message.offset() != next_offset.get(partition, 0):
                sys.exit(f"offset {message.offset()} came after {next_offset.get(partition)}")
            next_offset[partition] = message.offset() + 1
            last[partition] = index
            chunks[index] = message.value()
    if len(last) != len(partitions):
        sys.exit(f"only the partitions {sorted(last)} hold anything")
    with open(options.file, "wb") as file:
        for index in range(len(chunks)):
            file.write(chunks[index])
    print("chunks", len(chunks))


parser = argparse.ArgumentParser()
parser.add_argument("act", choices=["produce", "consume"])
parser.add_argument("--bootstrap", required=True)
parser.add_argument("--topic", required=True)
parser.add_argument("--file", required=True)
parser.add_argument("--codec", default="none")
arguments = parser.parse_args()
{"produce": produce, "consume": consume}[arguments.act](arguments)
