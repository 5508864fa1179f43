"""Small acts with confluent-kafka or kafka-python, one for each call; results are lines of JSON.

Bytes appear in hexadecimal, so that null and empty stay apart. What is right is decided by the caller.
"""

import argparse
import itertools
import json
import sys

import confluent_kafka as confluent
from confluent_kafka import admin as confluent_admin
import kafka

PATIENCE_S = 60


def bytes_of(text):
    return None if text == "null" else bytes.fromhex(text)


def text_of(value):
    return None if value is None else value.hex()


def headers_of(record):
    return [(name, bytes_of(value)) for name, value in record.get("headers", [])]


def say(**facts):
    print(json.dumps(facts))


def produce(options):
    """Sends the records read as JSON lines from standard input, a flush for each run of one codec."""
    records = [json.loads(line) for line in sys.stdin]
    send = {"confluent": send_confluent, "kafka-python": send_kafka_python}[options.library]
    for codec, run in itertools.groupby(records, lambda record: record.get("codec", "none")):
        send(options, codec, run)


def send_confluent(options, codec, records):
    producer = confluent.Producer({
        "bootstrap.servers": options.bootstrap,
        "compression.type": codec,
        "acks": options.acks,
        "linger.ms": 1000,
        "message.max.bytes": 64 << 20,
        "message.timeout.ms": PATIENCE_S * 1000,
        "queue.buffering.max.kbytes": 256 << 10,
    })

    def delivered(error, message):
        say(error=error.name() if error else None, offset=message.offset())

    for record in records:
        value = bytes_of(record["value"]) if "value" in record else bytes(record["size"])
        producer.produce(
            options.topic, value, key=bytes_of(record.get("key", "null")),
            partition=options.partition, headers=headers_of(record), on_delivery=delivered)
    if producer.flush(PATIENCE_S):
        sys.exit("not everything was delivered")


def send_kafka_python(options, codec, records):
    producer = kafka.KafkaProducer(
        bootstrap_servers=options.bootstrap, linger_ms=100, acks=options.acks,
        compression_type=None if codec == "none" else codec)
    sent = [
        producer.send(
            options.topic, bytes_of(record["value"]), key=bytes_of(record.get("key", "null")),
            partition=options.partition, headers=headers_of(record))
        for record in records
    ]
    producer.flush(PATIENCE_S)
    for future in sent:
        say(error=None, offset=future.get(PATIENCE_S).offset)
    producer.close()


def consume(options):
    """Shows the records of one partition from an offset to the end."""
    if options.library == "kafka-python":
        consume_kafka_python(options)
        return
    consumer = confluent.Consumer({
        "bootstrap.servers": options.bootstrap,
        "group.id": "records",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "auto.offset.reset": "error",
        **json.loads(options.settings),
    })
    consumer.assign([confluent.TopicPartition(options.topic, options.partition, options.offset)])
    while True:
        message = consumer.poll(PATIENCE_S)
        if message is None:
            sys.exit("neither a record nor the end came")
        if message.error():
            if message.error().code() == confluent.KafkaError._PARTITION_EOF:
                return
            sys.exit(str(message.error()))
        say(offset=message.offset(), timestamp=message.timestamp()[1], key=text_of(message.key()),
            value=text_of(message.value()), size=len(message.value() or b""),
            headers=[[name, text_of(value)] for name, value in message.headers() or []])


def consume_kafka_python(options):
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=options.bootstrap, enable_auto_commit=False, auto_offset_reset="none",
        check_crcs=True)
    partition = kafka.TopicPartition(options.topic, options.partition)
    consumer.assign([partition])
    consumer.seek(partition, options.offset)
    end = consumer.end_offsets([partition])[partition]
    while consumer.position(partition) < end:
        polled = consumer.poll(timeout_ms=PATIENCE_S * 1000)
        if not polled:
            sys.exit("neither a record nor the end came")
        for record in polled[partition]:
            say(offset=record.offset, timestamp=record.timestamp, key=text_of(record.key),
                value=text_of(record.value), size=len(record.value or b""),
                headers=[[name, text_of(value)] for name, value in record.headers])
    consumer.close()


def times(options):
    """Looks up the offsets of timestamps; where there is none, librdkafka gives its name of the end."""
    consumer = confluent.Consumer({"bootstrap.servers": options.bootstrap, "group.id": "records"})
    for time in options.times.split(","):
        wanted = [confluent.TopicPartition(options.topic, options.partition, int(time))]
        found = consumer.offsets_for_times(wanted, PATIENCE_S)[0]
        if found.error:
            sys.exit(str(found.error))
        at_end = found.offset == confluent.OFFSET_END
        say(time=int(time), offset=None if at_end else found.offset)


def watermarks(options):
    consumer = confluent.Consumer({"bootstrap.servers": options.bootstrap, "group.id": "records"})
    partition = confluent.TopicPartition(options.topic, options.partition)
    low, high = consumer.get_watermark_offsets(partition, PATIENCE_S)
    say(low=low, high=high)


def trim(options):
    """DeleteRecords: everything before the offset goes."""
    if options.library == "kafka-python":
        admin = kafka.KafkaAdminClient(bootstrap_servers=options.bootstrap)
        partition = kafka.TopicPartition(options.topic, options.partition)
        admin.delete_records({partition: options.offset})
        admin.close()
        say(done=True)
        return
    admin = confluent_admin.AdminClient({"bootstrap.servers": options.bootstrap})
    wanted = [confluent.TopicPartition(options.topic, options.partition, options.offset)]
    for future in admin.delete_records(wanted).values():
        say(low=future.result(PATIENCE_S).low_watermark)


def commit(options):
    """Commits an offset with metadata and leader epoch for a group, without joining it."""
    consumer = confluent.Consumer({"bootstrap.servers": options.bootstrap, "group.id": options.group})
    wanted = confluent.TopicPartition(
        options.topic, options.partition, options.offset, metadata=options.metadata, leader_epoch=0)
    done = consumer.commit(offsets=[wanted], asynchronous=False)[0]
    if done.error:
        sys.exit(str(done.error))
    say(offset=done.offset)


def committed(options):
    consumer = confluent.Consumer({"bootstrap.servers": options.bootstrap, "group.id": options.group})
    wanted = [confluent.TopicPartition(options.topic, options.partition)]
    found = consumer.committed(wanted, PATIENCE_S)[0]
    if found.error:
        sys.exit(str(found.error))
    none = found.offset == confluent.OFFSET_INVALID
    say(offset=None if none else found.offset, metadata=found.metadata, epoch=found.leader_epoch)


parser = argparse.ArgumentParser()
acts = [produce, consume, times, watermarks, trim, commit, committed]
parser.add_argument("act", choices=[act.__name__ for act in acts])
parser.add_argument("--bootstrap", required=True)
parser.add_argument("--topic", required=True)
parser.add_argument("--partition", type=int, default=0)
parser.add_argument("--library", default="confluent", choices=["confluent", "kafka-python"])
parser.add_argument("--offset", type=int, default=0)
parser.add_argument("--acks", default="all")
parser.add_argument("--times")
parser.add_argument("--group")
parser.add_argument("--metadata")
parser.add_argument("--settings", default="{}", help="librdkafka's names and values as JSON")
arguments = parser.parse_args()
globals()[arguments.act](arguments)
