"""Administers topics, configurations and groups as a platform engineer's scripts do, with the
AdminClient of confluent-kafka. Prints one JSON object with what it saw; judges nothing."""

import argparse
import json
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec,
)

PATIENCE = 30


def outcome(future):
    """The name of the error a future ended with, or None."""
    try:
        future.result(PATIENCE)
        return None
    except KafkaException as error:
        return error.args[0].name()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--bootstrap", required=True)
    arguments.add_argument("--topic", required=True)
    arguments.add_argument("--group", required=True)
    options = arguments.parse_args()
    topic, group = options.topic, options.group
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    seen = {}

    def create(**what):
        return outcome(admin.create_topics([NewTopic(topic, **what)])[topic])

    seen["create_too_replicated"] = create(num_partitions=1, replication_factor=3)
    seen["create_bad_config"] = create(num_partitions=1, config={"retention.ms": "soon"})
    validated = admin.create_topics([NewTopic(topic, num_partitions=2)], validate_only=True)[topic]
    seen["validate_only"] = outcome(validated)
    seen["after_validate_only"] = topic in admin.list_topics(timeout=PATIENCE).topics
    seen["create"] = create(num_partitions=2, config={"retention.ms": "3600000"})
    seen["create_again"] = create(num_partitions=2)
    seen["create_bad_name"] = outcome(
        admin.create_topics([NewTopic("no spaces allowed", num_partitions=1)])["no spaces allowed"])

    def partitions():
        return len(admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)

    seen["partitions"] = partitions()
    seen["fewer"] = outcome(admin.create_partitions([NewPartitions(topic, 1)])[topic])
    seen["more"] = outcome(admin.create_partitions([NewPartitions(topic, 5)])[topic])
    seen["partitions_after"] = partitions()

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def configs():
        described = admin.describe_configs([resource])[resource].result(PATIENCE)
        return {name: [entry.value, entry.source, entry.is_default] for name, entry in described.items()}

    before = configs()
    seen["retention"] = before["retention.ms"][:2]
    seen["segment_is_default"] = before["segment.bytes"][2]
    seen["keys"] = len(before)

    def alter(name, value, operation):
        changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[
            ConfigEntry(name, value, incremental_operation=operation)])
        return outcome(admin.incremental_alter_configs([changed])[changed])

    seen["set"] = alter("max.message.bytes", "2000", AlterConfigOpType.SET)
    seen["append"] = alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    seen["append_to_number"] = alter("retention.ms", "1", AlterConfigOpType.APPEND)
    seen["unset"] = alter("retention.ms", None, AlterConfigOpType.DELETE)
    seen["unknown_key"] = alter("retention.mss", "1", AlterConfigOpType.SET)
    after = configs()
    seen["altered"] = {name: after[name][0] for name in ["max.message.bytes", "cleanup.policy"]}
    seen["retention_source_after"] = after["retention.ms"][1]
    alter("cleanup.policy", "delete", AlterConfigOpType.SET)

    producer = Producer({"bootstrap.servers": options.bootstrap})
    failures = []
    producer.produce(topic, b"x" * 5000, partition=0,
                     on_delivery=lambda error, _: failures.append(error and error.name()))
    producer.flush(PATIENCE)
    for number in range(10):
        producer.produce(topic, str(number).encode(), partition=0)
    producer.flush(PATIENCE)
    seen["too_large"] = failures[0]
    ends = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    seen["end"] = ends[TopicPartition(topic, 0)].result(PATIENCE).offset
    deleted = admin.delete_records([TopicPartition(topic, 0, 4)])
    seen["low_watermark"] = deleted[TopicPartition(topic, 0)].result(PATIENCE).low_watermark

    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": group,
                         "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received = []
    deadline = time.monotonic() + PATIENCE
    while len(received) < 6 and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            received.append(message.value().decode())
    seen["received"] = received
    consumer.commit(asynchronous=False)
    listed = admin.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE)
    seen["listed"] = [g.state.name for g in listed.valid if g.group_id == group]
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE)
    seen["members"] = len(described.members)
    seen["assigned"] = len(described.members[0].assignment.topic_partitions)
    seen["delete_used_group"] = outcome(admin.delete_consumer_groups([group])[group])
    consumer.close()
    wanted = ConsumerGroupTopicPartitions(group)
    offsets = admin.list_consumer_group_offsets([wanted])[group].result(PATIENCE)
    seen["committed"] = [p.offset for p in offsets.topic_partitions if p.partition == 0]
    seen["delete_group"] = outcome(admin.delete_consumer_groups([group])[group])
    seen["delete_group_again"] = outcome(admin.delete_consumer_groups([group])[group])

    cluster = admin.describe_cluster().result(PATIENCE)
    seen["nodes"] = len(cluster.nodes)
    seen["cluster_id_length"] = len(cluster.cluster_id)
    seen["controller_is_a_node"] = cluster.controller.id in [node.id for node in cluster.nodes]
    seen["delete"] = outcome(admin.delete_topics([topic])[topic])
    seen["delete_again"] = outcome(admin.delete_topics([topic])[topic])
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
