"""The options of a write to topics: those of Spark's Kafka connector, and ours, which begin with `tidelog.`.

    kafka.bootstrap.servers             the brokers
    topic                               the topic of all rows; otherwise the column `topic` says
    kafka.compression.type              none, gzip, snappy, lz4 or zstd
    kafka.batch.size                    bytes of a batch before compression; large by default
    kafka.max.request.size              no record may be larger
    kafka.acks, kafka.enable.idempotence
                                        without exactly-once only; with it, acks=all and idempotence go without saying
    kafka.transaction.timeout.ms        how long a batch may take, from its first row to its commit
    kafka.delivery.timeout.ms           how long brokers may be away before a task gives up
    kafka.client.id
    tidelog.exactly.once                true: a transaction per task, nothing twice for readers of committed records
    tidelog.write.id                    names a batch write, so that it is done once however often it is run
    tidelog.write.version               a number that grows from write to write of one id (0)
    tidelog.write.note                  text that is kept with the write in the ledger
    tidelog.timestamp.column            the column with the records' times; otherwise they are of now
    tidelog.transactional.id.prefix     what transactional ids begin with
    tidelog.ledger.topic                where it is kept what was written

Other options of Kafka's clients, as `kafka.*`, tune what is not there, and do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.pipeline.options.given import LEDGER_TOPIC, BadOption, Given, bootstrap_of
from tidelog.wire.compression import CODEC_NAMES

DEFAULT_PREFIX: Final = "tidelog-spark"
#: the most that brokers allow by default (transaction.max.timeout.ms)
TRANSACTION_TIMEOUT_MS: Final = 900_000
DELIVERY_TIMEOUT_MS: Final = 120_000
BATCH_BYTES: Final = 512 * 1024
MAX_REQUEST_BYTES: Final = 1024 * 1024

_OURS: Final = (
    "tidelog.exactly.once",
    "tidelog.write.id",
    "tidelog.write.version",
    "tidelog.write.note",
    "tidelog.timestamp.column",
    "tidelog.transactional.id.prefix",
    "tidelog.ledger.topic",
)
_KNOWN: Final = ("kafka.bootstrap.servers", "topic", "includeHeaders", "checkpointLocation", "queryName", *_OURS)
_REFUSED: Final = {
    "kafka.key.serializer": "keys are written as the bytes that they are",
    "kafka.value.serializer": "values are written as the bytes that they are",
    "kafka.partitioner.class": "partitioners are Java classes; give rows a column 'partition' instead",
    "kafka.interceptor.classes": "interceptors are Java classes, and may change what is written",
    "kafka.transactional.id": "every task has one of its own; tidelog.transactional.id.prefix is what they begin with",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: str
    topic: str | None = None
    timestamp_column: str | None = None
    exactly_once: bool = True
    write_id: str | None = None
    write_version: int = 0
    write_note: str | None = None
    prefix: str = DEFAULT_PREFIX
    ledger_topic: str = LEDGER_TOPIC
    compression: str = "none"
    batch_bytes: int = BATCH_BYTES
    max_request_bytes: int = MAX_REQUEST_BYTES
    acks: str = "all"
    idempotent: bool = True
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    client_id: str = "tidelog-spark"


def parse_sink(options: Mapping[str, str], streaming: bool) -> SinkOptions:
    """`BadOption` for the first that cannot work."""
    given = Given(options, _KNOWN, _REFUSED)
    exactly_once = given.switch("tidelog.exactly.once", True)
    acks = given.word("kafka.acks", ("all", "-1", "1", "0"), "all")
    idempotent = given.switch("kafka.enable.idempotence", acks in ("all", "-1"))
    if exactly_once and (acks not in ("all", "-1") or not idempotent):
        raise BadOption(
            "exactly-once writes need acks=all and idempotence: leave kafka.acks and kafka.enable.idempotence out, "
            "or set tidelog.exactly.once to false"
        )
    write_id = _write_id(given, streaming, exactly_once)
    return SinkOptions(
        bootstrap_of(given),
        topic=given.text("topic"),
        timestamp_column=given.text("tidelog.timestamp.column"),
        exactly_once=exactly_once,
        write_id=write_id,
        write_version=given.number("tidelog.write.version", 0) or 0,
        write_note=given.text("tidelog.write.note"),
        prefix=given.text("tidelog.transactional.id.prefix") or DEFAULT_PREFIX,
        ledger_topic=given.text("tidelog.ledger.topic") or LEDGER_TOPIC,
        compression=given.word("kafka.compression.type", CODEC_NAMES, "none"),
        batch_bytes=given.number("kafka.batch.size", 1) or BATCH_BYTES,
        max_request_bytes=given.number("kafka.max.request.size", 100) or MAX_REQUEST_BYTES,
        acks=acks,
        idempotent=idempotent,
        transaction_timeout_ms=given.number("kafka.transaction.timeout.ms", 1) or TRANSACTION_TIMEOUT_MS,
        delivery_timeout_ms=given.number("kafka.delivery.timeout.ms", 1) or DELIVERY_TIMEOUT_MS,
        client_id=given.text("kafka.client.id") or "tidelog-spark",
    )


def _write_id(given: Given, streaming: bool, exactly_once: bool) -> str | None:
    named = given.named("tidelog.write.id", "tidelog.write.version", "tidelog.write.note")
    if not named:
        return None
    if streaming:
        raise BadOption(f"option {named[0]} is for batch writes: a stream is known by its checkpoint")
    write_id = given.text("tidelog.write.id")
    if not write_id:
        raise BadOption(f"option {named[0]} needs a tidelog.write.id, the name of the write")
    if "/" in write_id:
        raise BadOption(f"option tidelog.write.id is {write_id!r}: it is a name, and has no slash")
    if not exactly_once:
        raise BadOption("option tidelog.write.id makes a write happen once, which needs tidelog.exactly.once")
    return write_id
