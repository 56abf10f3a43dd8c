"""The names of Kafka's client options, so that a mistyped one is refused, or one with a value that is of another type.

Most of them tune a client that is not there, and do nothing.

They are those of consumer and producer alike: jobs share settings between the two. A test compares them with Apache
Kafka's own. Those of encryption and authentication are told by how they begin.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "kafka."
#: what begins so asks for encryption or authentication
SECURITY: Final = ("sasl.", "ssl.", "security.")
_NUMBERS: Final = """
    auto.commit.interval.ms batch.size buffer.memory compression.gzip.level compression.lz4.level
    compression.zstd.level connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms fetch.max.bytes
    fetch.max.wait.ms fetch.min.bytes heartbeat.interval.ms linger.ms max.block.ms
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
    metrics.num.samples metrics.sample.window.ms partitioner.availability.timeout.ms receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    transaction.timeout.ms
"""
_SWITCHES: Final = """
    allow.auto.create.topics auto.include.jmx.reporter check.crcs enable.auto.commit enable.idempotence
    enable.metrics.push exclude.internal.topics partitioner.adaptive.partitioning.enable partitioner.ignore.keys
    transaction.two.phase.commit.enable
"""
_TEXTS: Final = """
    acks auto.offset.reset bootstrap.servers client.dns.lookup client.id client.rack compression.type
    config.providers group.id group.instance.id group.protocol group.remote.assignor interceptor.classes
    isolation.level key.deserializer key.serializer metadata.recovery.strategy metric.reporters
    metrics.recording.level partition.assignment.strategy partitioner.class share.acknowledgement.mode
    share.acquire.mode transactional.id value.deserializer value.serializer
"""
CLIENT_NUMBERS: Final = frozenset(_NUMBERS.split())
#: auto.include.jmx.reporter is gone in Kafka 4; jobs still have it
CLIENT_SWITCHES: Final = frozenset(_SWITCHES.split())
CLIENT_NAMES: Final = CLIENT_NUMBERS | CLIENT_SWITCHES | frozenset(_TEXTS.split())
