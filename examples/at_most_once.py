"""Copies a topic, each record at most once: offsets are committed before the records are processed.

    python -m examples.at_most_once --bootstrap localhost:9092 --from orders --to bills

A crash between the commit of the offsets and the write loses the records being processed; none is ever written twice.
Use this for measurements where a gap does no harm but a repeat does, or where speed matters more than either.

Two things guarantee it: offsets are committed before the work, and the producer does not retry, because retrying a
write whose response was lost could write it twice.
"""

from __future__ import annotations

import argparse
import sys
import time

from confluent_kafka import Consumer, Producer

from examples.interrupt import Interrupt


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
    producer = Producer({"bootstrap.servers": options.bootstrap, "acks": 0, "retries": 0, "linger.ms": 1})
    consumer.subscribe([options.source])
    copied, heard = 0, time.monotonic()
    interrupted = Interrupt()
    while not interrupted and time.monotonic() - heard < options.idle:
        messages = [message for message in consumer.consume(options.round, timeout=0.2) if not message.error()]
        if not messages:
            continue
        consumer.commit(asynchronous=False)  # before the work: from here on, a crash loses it
        for message in messages:
            producer.produce(options.target, message.value(), message.key())
        producer.flush()
        copied, heard = copied + len(messages), time.monotonic()
    consumer.close()
    return copied


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="localhost:9092", help="default: %(default)s")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC")
    parser.add_argument("--to", dest="target", required=True, metavar="TOPIC")
    parser.add_argument("--group", default="at-most-once", help="the consumer group; default: %(default)s")
    parser.add_argument("--id", default="at-most-once-0", help="ID of this program; keep it the same at every start")
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
