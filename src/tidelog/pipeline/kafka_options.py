"""The names of Kafka's client options, so that a mistyped one is refused. Most of them tune a client that is not there.

They are those of consumer and producer alike: jobs share settings between the two. A test compares them with Apache
Kafka's own. Those of encryption and authentication are told by how they begin.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "kafka."
#: what begins so asks for encryption or authentication
SECURITY: Final = ("sasl.", "ssl.", "security.")
_NAMES: Final = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.offset.reset batch.size bootstrap.servers
    buffer.memory check.crcs client.dns.lookup client.id client.rack compression.gzip.level compression.lz4.level
    compression.type compression.zstd.level config.providers connections.max.idle.ms default.api.timeout.ms
    delivery.timeout.ms enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level key.deserializer key.serializer
    linger.ms max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms share.acknowledgement.mode
    share.acquire.mode socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.deserializer value.serializer
"""
#: gone in Kafka 4; jobs still have it
_FORMER: Final = "auto.include.jmx.reporter"
CLIENT_NAMES: Final = frozenset((*_NAMES.split(), _FORMER))
