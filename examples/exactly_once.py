"""Copies a topic, each record exactly once: records and offsets are committed together, or not at all.

    python -m examples.exactly_once --bootstrap localhost:9092 --from orders --to bills

Each round is one transaction with the records of the round and the offsets after them. A crash leaves an open
transaction, which is aborted by the next program with the same ID or by its timeout. The offsets do not change, and the
records of the round are read again. Consumers of the target use isolation.level=read_committed, and see neither aborted
records nor those of an open transaction.

Run up to one program per partition, each with its own --id, and keep that ID when you restart it. When partitions move
from one member to another, the group's coordinator refuses the offsets of a member that no longer owns them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from examples.interrupt import Interrupt


def insist(step: Callable[[], None]) -> None:
    """Repeats a step of the transaction while it fails with something that passes, such as a broker that restarts."""
    while True:
        try:
            return step()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def transact(consumer: Consumer, producer: Producer, messages: list[Message], target: str) -> None:
    after = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in after.items()]
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value(), message.key())
    insist(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata()))
    insist(producer.commit_transaction)


def rewind(consumer: Consumer) -> None:
    """Back to what was committed last: the records of a round that was aborted are read again."""
    for place in consumer.committed(consumer.assignment(), timeout=30):
        if place.offset < 0:
            place.offset = consumer.get_watermark_offsets(place, timeout=30)[0]
        consumer.seek(place)


def copy(options: argparse.Namespace) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "group.instance.id": options.id,  # after a crash it takes its old place at once
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "transactional.id": options.id,
            "linger.ms": 1,
            # Otherwise librdkafka 2.16 may wait for ever when all brokers were away: confluentinc/librdkafka#5511
            "metadata.recovery.strategy": "none",
        }
    )
    insist(producer.init_transactions)  # fences an earlier program of this id, and aborts what it left open
    # With a callback, partitions come and go only within `consume`, never in the middle of a transaction.
    consumer.subscribe([options.source], on_revoke=lambda *_: None)
    copied, heard = 0, time.monotonic()
    interrupted = Interrupt()
    while not interrupted and time.monotonic() - heard < options.idle:
        messages = [message for message in consumer.consume(options.round, timeout=0.2) if not message.error()]
        if not messages:
            continue
        try:
            transact(consumer, producer, messages, options.target)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise  # fenced by another program of this id, or beyond repair
            insist(producer.abort_transaction)
            rewind(consumer)
        else:
            copied, heard = copied + len(messages), time.monotonic()
    consumer.close()
    return copied


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="localhost:9092", help="default: %(default)s")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC")
    parser.add_argument("--to", dest="target", required=True, metavar="TOPIC")
    parser.add_argument("--group", default="exactly-once", help="the consumer group; default: %(default)s")
    parser.add_argument("--id", default="exactly-once-0", help="ID of this program; keep it the same at every start")
    parser.add_argument(
        "--round",
        type=int,
        default=500,
        metavar="RECORDS",
        help="maximum number of records per round; default: %(default)s",
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=10,
        metavar="SECONDS",
        help="how long to wait for a record before the program ends",
    )
    options = parser.parse_args()
    print(f"copying {options.source} to {options.target}, until nothing comes any more or Ctrl-C", flush=True)
    print(f"copied {copy(options)} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
