"""Copies a topic, each record at least once: offsets are committed after the target has the records.

    python -m examples.at_least_once --bootstrap localhost:9092 --from orders --to bills

A crash between the write and the commit of the offsets repeats the records being processed; none is ever lost. Use this
if the target can detect repeats, or if they do no harm.

Two things guarantee it: the producer is idempotent, which means acks=all and retries that write nothing twice; and
offsets are committed only after every write was acknowledged.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from examples.interrupt import Interrupt


def check(error: Any, _: Any) -> None:
    """What could not be written must not be marked as done."""
    if error is not None:
        raise KafkaException(error)


def copy(options: argparse.Namespace) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "group.instance.id": options.id,  # after a crash it takes its old place at once
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    producer = Producer({"bootstrap.servers": options.bootstrap, "enable.idempotence": True, "linger.ms": 1})
    consumer.subscribe([options.source])
    copied, heard = 0, time.monotonic()
    interrupted = Interrupt()
    while not interrupted and time.monotonic() - heard < options.idle:
        messages = [message for message in consumer.consume(options.round, timeout=0.2) if not message.error()]
        if not messages:
            continue
        for message in messages:
            producer.produce(options.target, message.value(), message.key(), on_delivery=check)
        producer.flush()  # every write is acknowledged, or `check` has raised
        consumer.commit(asynchronous=False)  # after the work: a crash before this line repeats it
        copied, heard = copied + len(messages), time.monotonic()
    consumer.close()
    return copied


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="localhost:9092", help="default: %(default)s")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC")
    parser.add_argument("--to", dest="target", required=True, metavar="TOPIC")
    parser.add_argument("--group", default="at-least-once", help="the consumer group; default: %(default)s")
    parser.add_argument("--id", default="at-least-once-0", help="ID of this program; keep it the same at every start")
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
