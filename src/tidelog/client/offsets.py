"""Finding offsets: the first, the end, the first at or after a time, that of the largest timestamp."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from tidelog.client.cluster import Cluster, TopicInfo, no_such_partition
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, Refused, error_for
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MAX_TIMESTAMP: Final = "max-timestamp"
_WORDS: Final = {EARLIEST: -2, LATEST: -1, MAX_TIMESTAMP: -3}
_FIRST_VERSION_WITH_MAX_TIMESTAMP: Final = 7

#: where to look: a word, or a time in milliseconds since 1970
When = int | Literal["earliest", "latest", "max-timestamp"]


class OffsetAt(NamedTuple):
    """`offset` is -1 where no record is that late; `timestamp_ms` is its record's, -1 where none was looked at."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster, topic: str, partitions: Iterable[int] | None, when: When, isolation: str = "read_uncommitted"
) -> dict[int, OffsetAt]:
    """Partition -> offset; of all partitions for None. "latest" is the high watermark, or the last stable offset."""
    if isinstance(when, str) and when not in _WORDS:
        raise Refused(f"there is no offset called {when}", hint=f"one of {', '.join(_WORDS)}, or a time")
    timestamp = _WORDS[when] if isinstance(when, str) else when
    if timestamp < 0 and not isinstance(when, str):
        raise Refused(f"{timestamp} is not a valid time: it is before 1970")
    info = cluster.known_topic(topic) if partitions is None else None
    left = set(info.partitions if info is not None else partitions or ())
    found: dict[int, OffsetAt] = {}

    def attempt() -> None:
        by_leader: dict[Connection, list[tuple[int, int]]] = {}
        for partition in sorted(left):
            connection, _, about = cluster.leader(topic, partition)
            by_leader.setdefault(connection, []).append((partition, about.leader_epoch))
        failure: ClientError | None = None
        for connection, group in by_leader.items():
            answer = _ask(cluster, connection, topic, group, timestamp, isolation)
            for result in answer.topics[0].partitions:
                if result.error_code:
                    # The metadata knows whether the topic exists; a broker that does not have it is only the wrong one.
                    missing = result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if missing else result.error_code
                    failure = error_for(code, f"the offset of {topic}-{result.partition_index}")
                    continue
                found[result.partition_index] = OffsetAt(result.offset, result.timestamp, result.leader_epoch)
                left.discard(result.partition_index)
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # or it would hold this frame, and this frame it

    cluster.retrying(attempt)
    return dict(sorted(found.items()))


def end_offsets(cluster: Cluster, topics: Iterable[TopicInfo]) -> dict[TopicPartition, int]:
    """The high watermarks of many topics, with one request to each leader; what a leader does not tell is left out."""
    request = messages.ListOffsetsRequest
    by_leader: dict[int, dict[str, list[messages.ListOffsetsRequest.ListOffsetsPartition]]] = {}
    for topic in topics:
        for about in topic.partitions.values():
            if about.leader >= 0:
                wanted = request.ListOffsetsPartition(
                    partition_index=about.partition, current_leader_epoch=-1, timestamp=_WORDS[LATEST]
                )
                by_leader.setdefault(about.leader, {}).setdefault(topic.name, []).append(wanted)
    found: dict[TopicPartition, int] = {}
    for leader, wanted_of in by_leader.items():
        listed = [request.ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in wanted_of.items()]
        message = request(replica_id=-1, topics=listed, timeout_ms=int(cluster.request_timeout_s * 800))
        try:
            answer = cluster.broker(leader).call(ApiKey.LIST_OFFSETS, message)
        except ClientError:
            continue
        for answered in answer.topics:
            for result in answered.partitions:
                if not result.error_code:
                    found[TopicPartition(answered.name, result.partition_index)] = result.offset
    return found


def _ask(
    cluster: Cluster,
    connection: Connection,
    topic: str,
    partitions: list[tuple[int, int]],
    timestamp: int,
    isolation: str,
) -> messages.ListOffsetsResponse:
    if timestamp == _WORDS[MAX_TIMESTAMP] and (
        connection.version_of(ApiKey.LIST_OFFSETS) < _FIRST_VERSION_WITH_MAX_TIMESTAMP
    ):
        raise ClientError(
            f"the broker at {connection.address} cannot find the largest timestamp", ErrorCode.UNSUPPORTED_VERSION
        )
    request = messages.ListOffsetsRequest
    wanted = [
        request.ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
        for partition, epoch in partitions
    ]
    return connection.call(
        ApiKey.LIST_OFFSETS,
        request(
            replica_id=-1,
            isolation_level=1 if isolation == "read_committed" else 0,
            topics=[request.ListOffsetsTopic(name=topic, partitions=wanted)],
            timeout_ms=int(cluster.request_timeout_s * 800),
        ),
    )


def check_partitions(info: TopicInfo, partitions: Iterable[int]) -> list[int]:
    """The partitions asked for, each of which must exist."""
    wanted = list(partitions)
    for partition in wanted:
        if partition not in info.partitions:
            raise no_such_partition(info, partition)
    return wanted
