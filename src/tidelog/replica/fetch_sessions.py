"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changed.

A session holds the ordered partitions of one fetcher and what it was last told of each. Request metadata:

    session id  epoch  meaning
    0           -1     one full fetch, no session
    id          -1     close session `id`, one full fetch
    any         0      (re)start: close `id` if it lives, full fetch, a new session if there is room
    id          n > 0  incremental: only changed partitions are in the request and in the response

An incremental response holds the partitions with records, an error, or a high watermark or log start offset
that the fetcher has not heard of. A partition that returned records goes to the end of the order, so that a
full response never starves the ones behind it. Sessions are soft state: after a restart the client is told
FETCH_SESSION_ID_NOT_FOUND and starts anew. All of them together hold a bounded number of partitions; a fetch that finds
no room is answered without a session, in full, each time.

A follower's session holds thousands of partitions, and a few of them have something new. It keeps a list of those: a
partition is on it from when something happened to it (`stir`) until a fetch has looked at it and found nothing new.
That is for speed alone. Once in a while, and when leaders have changed, a fetch looks at all of them (`must_sweep`): it
finds what nobody tells of, such as a log that was cut at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1
NO_SESSION: Final = 0
#: at least so often all partitions of a follower's session are looked at
SWEEP_MS: Final = 1_000
#: that all sessions may hold together: a hundred megabytes' worth
MAX_PARTITIONS: Final = 150_000

#: a topic by its id (16 bytes) where the fetcher speaks in ids, else by its name, and the partition index
PartitionKey = tuple[bytes | str, int]


class FetchPartition:
    """One partition of a fetch: where the fetcher stands, and what a session last told it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "is_forgotten",
        "is_settled",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, requested: messages.FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = requested.partition
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        #: it was in a session, and is not any more
        self.is_forgotten = False
        self.update(requested)

    def update(self, requested: messages.FetchRequest.FetchPartition) -> None:
        #: it was answered as the fetcher stands now: only what has changed since needs another look
        self.is_settled = False
        self.fetch_offset = requested.fetch_offset
        self.max_bytes = requested.partition_max_bytes
        #: -1 where the fetcher knows none; any other negative number says the same
        epoch = requested.current_leader_epoch
        self.current_leader_epoch = epoch if epoch >= 0 else -1
        self.last_fetched_epoch = requested.last_fetched_epoch
        self.log_start_offset = requested.log_start_offset

    def must_tell(self, high_watermark: int, log_start_offset: int, has_news: bool) -> bool:
        """Whether an incremental response has to carry this partition: it `has_news` (records, an error, a
        divergence), or its offsets are not those that the fetcher was last told. Remembers what it told."""
        changed = (
            has_news or high_watermark != self.told_high_watermark or log_start_offset != self.told_log_start_offset
        )
        self.told_high_watermark = high_watermark
        self.told_log_start_offset = log_start_offset
        return changed


def _nothing_parked() -> None:
    """For a session that has no fetch waiting."""


class FetchSession:
    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "interrupt",
        "last_used_ms",
        "must_sweep",
        "partitions",
        "privileged",
        "stirred",
        "stirs",
        "swept_ms",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        #: followers are privileged: a consumer's session never evicts theirs
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        #: the epoch that the next incremental request must carry
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        #: has the fetch that is parked answered, if one is
        self.interrupt: Callable[[], None] = _nothing_parked
        #: in the order in which partitions are read
        self.partitions: dict[PartitionKey, FetchPartition] = {}
        #: of a follower's: those that may have something new, in the order in which they are read
        self.stirred: dict[FetchPartition, None] = {}
        #: how often something happened to one of them
        self.stirs = 0
        self.must_sweep = True
        self.swept_ms = now_ms

    def due(self) -> list[FetchPartition]:
        """Whatever has to be looked at now."""
        if self.must_sweep or not self.privileged:
            self.must_sweep = False
            return list(self.partitions.values())
        return list(self.stirred)

    def forget(self, key: PartitionKey) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.is_forgotten = True
            self.stirred.pop(partition, None)

    def advance_epoch(self) -> None:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def move_to_end(self, key: PartitionKey) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self.partitions[key] = partition
            if partition in self.stirred:
                del self.stirred[partition]
                self.stirred[partition] = None


class FetchContext:
    """One fetch request resolved against its session: what to read, and how to answer."""

    __slots__ = ("error_code", "incremental", "partitions", "session")

    def __init__(
        self,
        partitions: list[FetchPartition],
        session: FetchSession | None = None,
        incremental: bool = False,
        error_code: int = 0,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.incremental = incremental
        self.error_code = error_code

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


def key_of(partition: FetchPartition, uses_topic_ids: bool) -> PartitionKey:
    return (partition.topic_id if uses_topic_ids else partition.topic, partition.index)


class FetchSessions:
    """All sessions of a broker, bounded by `max.incremental.fetch.session.cache.slots`."""

    def __init__(self, max_sessions: int, eviction_ms: int, random_id: Callable[[], int]) -> None:
        self.max_sessions = max_sessions
        self.eviction_ms = eviction_ms
        self.max_partitions = MAX_PARTITIONS
        self._random_id = random_id
        #: least recently used first: a session moves to the end whenever it is used
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: messages.FetchRequest, uses_topic_ids: bool, topic_name: Callable[[bytes], str], now_ms: int
    ) -> FetchContext:
        """Resolves a Fetch request. `topic_name` maps a topic id to a name, or to "" where it is unknown.

        A fetch of the same session that is parked is answered first: a follower that has something to tell does not
        wait for the answer to what it asked before.
        """
        known = self._sessions.get(request.session_id)
        if known is not None:
            known.interrupt()
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            partitions = list(_requested(request, uses_topic_ids, topic_name))
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            session = self._create(request.replica_id >= 0, uses_topic_ids, len(partitions), now_ms)
            if session is not None:
                session.partitions = {key_of(p, uses_topic_ids): p for p in partitions}
                partitions = list(session.partitions.values())
            return FetchContext(partitions, session)
        return self._continue(request, uses_topic_ids, topic_name, now_ms)

    def _continue(
        self, request: messages.FetchRequest, uses_topic_ids: bool, topic_name: Callable[[bytes], str], now_ms: int
    ) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.partitions)
        for partition in _requested(request, uses_topic_ids, topic_name, session.partitions):
            partition = session.partitions.setdefault(key_of(partition, uses_topic_ids), partition)
            if session.privileged:
                session.stirred[partition] = None
        for forgotten in request.forgotten_topics_data:
            topic = forgotten.topic_id if uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                session.forget((topic, index))
        if not session.partitions:
            del self._sessions[session.id]
            return FetchContext([], error_code=0)
        if len(session.partitions) > before and self._partitions() > self.max_partitions:
            del self._sessions[session.id]
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.advance_epoch()
        self._touch(session, now_ms)
        if now_ms - session.swept_ms >= SWEEP_MS:
            session.must_sweep = True
            session.swept_ms = now_ms
        partitions = session.due()
        if uses_topic_ids:
            for known in partitions:
                # A topic that was unknown when it joined the session may exist by now, and the reverse.
                known.topic = topic_name(known.topic_id)
        return FetchContext(partitions, session, incremental=True)

    def of_followers(self) -> list[FetchSession]:
        return [session for session in self._sessions.values() if session.privileged]

    def _partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session

    def _create(self, privileged: bool, uses_topic_ids: bool, size: int, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self.max_sessions and not self._evict(privileged, size, now_ms):
            return None
        if not privileged and self._partitions() + size > self.max_partitions:
            return None
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        session = FetchSession(session_id, privileged, uses_topic_ids, now_ms)
        self._sessions[session_id] = session
        return session

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Makes room: evicts a session that was not used for long, or else a smaller one that has had its time."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self.eviction_ms:
            del self._sessions[oldest.id]
            return True
        candidates = [
            s
            for s in self._sessions.values()
            if (privileged and not s.privileged)
            or (s.privileged == privileged and now_ms - s.created_ms > self.eviction_ms)
        ]
        least = min(candidates, key=lambda s: (s.privileged, len(s.partitions)), default=None)
        if least is None or (privileged, size) < (least.privileged, len(least.partitions)):
            return False
        del self._sessions[least.id]
        return True


def _requested(
    request: messages.FetchRequest,
    uses_topic_ids: bool,
    topic_name: Callable[[bytes], str],
    known: dict[PartitionKey, FetchPartition] | None = None,
) -> Iterable[FetchPartition]:
    """The partitions that the request names: those already known, which are updated in place, and new ones."""
    for topic in request.topics:
        name = topic_name(topic.topic_id) if uses_topic_ids else topic.topic
        topic_key = topic.topic_id if uses_topic_ids else name
        for partition in topic.partitions:
            present = known.get((topic_key, partition.partition)) if known is not None else None
            if present is None:
                yield FetchPartition(name, topic.topic_id, partition)
            else:
                present.update(partition)
                yield present
