"""Apache Kafka's own client behind the face of `stock`."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from bench.systems.java import JavaShell
from stock import READ_TIMEOUT_S, Message, Produce, ProduceFailed, Read, ReadTimeout, Record, StockClient


class JavaClient(StockClient):
    """Apache Kafka's own client, in a JVM that all tests of a worker share."""

    name = "java"
    shell: ClassVar[JavaShell] = JavaShell()

    def _call(self, what: str, **command: Any) -> Any:
        command["settings"] = {"bootstrap.servers": self.bootstrap, **command["settings"]}
        result = self.shell.run("tidelog.judge.Client", what, stdin=json.dumps(command), timeout=READ_TIMEOUT_S + 60)
        return result.check().json()

    def write(self, topic: str, messages: Sequence[Message], how: Produce) -> list[tuple[int, int]]:
        settings = {
            "acks": how.acks,
            "compression.type": how.codec,
            "enable.idempotence": str(how.idempotent).lower(),
            "max.request.size": how.max_request_bytes,
            "linger.ms": how.linger_ms,
        }
        described = [
            {
                "partition": message.partition,
                "timestamp_ms": message.timestamp_ms,
                "key": _base64(message.key),
                "value": _base64(message.value),
                "headers": [(name, _base64(value)) for name, value in message.headers],
            }
            for message in messages
        ]
        answer = self._call("produce", settings=settings, topic=topic, messages=described)
        if "error" in answer:
            raise ProduceFailed(answer["error"], answer["text"])
        return [(partition, offset) for partition, offset in answer["placed"]]

    def fetch(self, topic: str, count: int, how: Read) -> list[Record]:
        answer = self._call(
            "read",
            settings={"isolation.level": how.isolation, "max.partition.fetch.bytes": how.max_partition_bytes},
            topic=topic,
            count=count,
            partitions=list(how.partitions),
            offset=how.offset,
            timeout_ms=READ_TIMEOUT_S * 1_000,
        )
        records = [
            Record(
                partition,
                offset,
                _from_base64(key),
                _from_base64(value),
                tuple((name, _from_base64(one)) for name, one in headers),
                timestamp_ms,
                timestamp_type,
            )
            for partition, offset, key, value, headers, timestamp_ms, timestamp_type in answer["records"]
        ]
        if len(records) < count:
            raise ReadTimeout(f"{len(records)} of {count} records came")
        return records

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        answer = self._call("offsets", settings={}, topic=topic, partition=partition)
        return answer["begin"], answer["end"]

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        found: int | None = self._call(
            "offsets", settings={}, topic=topic, partition=partition, timestamp_ms=timestamp_ms
        )["offset"]
        return found


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _from_base64(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
