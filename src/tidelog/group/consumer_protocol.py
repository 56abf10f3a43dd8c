"""What consumers of the classic protocol wrap into JoinGroup and SyncGroup: their subscription and their assignment.

Each blob is an int16 version and a message. Every version begins with the fields of version 0, so a newer one than we
know is read as the newest we know, and only the topics are read from version 0. The coordinator looks inside only to
learn which topics a group reads, and when a group changes from one protocol to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct, error
from typing import TypeVar

from tidelog.group.topics_image import TopicsImage
from tidelog.wire import messages
from tidelog.wire.classes import Message
from tidelog.wire.codec import stored_codec
from tidelog.wire.malformed import WireError

CONSUMER_PROTOCOL_TYPE = "consumer"
_NEWEST = 3
_INT16 = Struct(">h")

M = TypeVar("M", bound=Message)


class Malformed(Exception):
    """The blob is not what the consumer protocol says it is."""


def version_of(blob: bytes) -> int:
    try:
        version: int = _INT16.unpack_from(blob, 0)[0]
    except error:
        raise Malformed("no version") from None
    if version < 0:
        raise Malformed(f"version {version}")
    return min(version, _NEWEST)


def _decode(kind: type[M], blob: bytes, version: int) -> M:
    try:
        message: M = stored_codec(kind.__name__, version).decode(blob, 2)[0]
        return message
    except WireError as problem:
        raise Malformed(str(problem)) from None


def subscribed_topics(blob: bytes) -> list[str]:
    version_of(blob)
    return _decode(messages.ConsumerProtocolSubscription, blob, 0).topics


def decode_subscription(blob: bytes) -> messages.ConsumerProtocolSubscription:
    return _decode(messages.ConsumerProtocolSubscription, blob, version_of(blob))


def decode_assignment(blob: bytes) -> messages.ConsumerProtocolAssignment:
    return _decode(messages.ConsumerProtocolAssignment, blob, version_of(blob))


def encode_assignment(partitions: Mapping[bytes, Iterable[int]], image: TopicsImage, version: int) -> bytes:
    """Partitions by topic id; topics that are gone are left out."""
    of_assignment = messages.ConsumerProtocolAssignment
    assignment = of_assignment(
        assigned_partitions=[
            of_assignment.TopicPartition(topic=image.by_id[topic_id].name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if topic_id in image.by_id
        ]
    )
    return _INT16.pack(version) + stored_codec("ConsumerProtocolAssignment", version).encode(assignment)


def by_topic_id(
    topic_partitions: Iterable[
        messages.ConsumerProtocolSubscription.TopicPartition | messages.ConsumerProtocolAssignment.TopicPartition
    ],
    image: TopicsImage,
) -> dict[bytes, set[int]]:
    """Partitions by name, as classic members report them, to partitions by topic id."""
    found: dict[bytes, set[int]] = {}
    for entry in topic_partitions:
        topic = image.by_name.get(entry.topic)
        if topic is not None:
            found.setdefault(topic.topic_id, set()).update(entry.partitions)
    return found
