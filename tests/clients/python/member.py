"""One member of a consumer group, with confluent-kafka.

Says `assigned P,P,..` after each change of its partitions, `record P O V` for each record, and, when told
`commit` on standard input, commits all it has shown and says `committed P:O,P:O,..`. Told `leave`,
it commits, leaves the group and ends.
"""

import argparse
import queue
import sys
import threading

from confluent_kafka import Consumer, TopicPartition

parser = argparse.ArgumentParser()
parser.add_argument("--bootstrap", required=True)
parser.add_argument("--topic", required=True)
parser.add_argument("--group", required=True)
arguments = parser.parse_args()

orders = queue.SimpleQueue()
threading.Thread(target=lambda: [orders.put(line.strip()) for line in sys.stdin], daemon=True).start()

shown = {}


def commit(consumer):
    if not shown:
        print("committed")
        return
    wanted = [TopicPartition(arguments.topic, p, o) for p, o in sorted(shown.items())]
    done = consumer.commit(offsets=wanted, asynchronous=False)
    failed = [str(partition) for partition in done if partition.error]
    if failed:
        sys.exit(f"not committed: {failed}")
    print("committed", ",".join(f"{p.partition}:{p.offset}" for p in done))


def assigned(_consumer, partitions):
    print("assigned", ",".join(str(p.partition) for p in sorted(partitions, key=str)))


def revoked(consumer, _partitions):
    # What was shown belongs to this member until now; afterwards others will start from it.
    commit(consumer)
    shown.clear()


def lost(_consumer, _partitions):
    shown.clear()


consumer = Consumer({
    "bootstrap.servers": arguments.bootstrap,
    "group.id": arguments.group,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 500,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 1_000,
})
consumer.subscribe([arguments.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
while True:
    message = consumer.poll(0.1)
    if message is not None:
        if message.error():
            print("# error", message.error())
        else:
            print("record", message.partition(), message.offset(), message.value().decode())
            shown[message.partition()] = message.offset() + 1
    while not orders.empty():
        order = orders.get()
        if order == "commit":
            commit(consumer)
        elif order == "leave":
            # Closing revokes, and revoking commits.
            consumer.close()
            print("left")
            sys.exit(0)
        else:
            sys.exit(f"unknown order {order!r}")
