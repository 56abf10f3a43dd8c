"""A whole broker without a socket: requests go in as bytes through the dispatcher, and answers come back decoded.

Time stands still unless a test moves it, workers do their work at once (or when a test says so), and metadata and logs
live in memory. What a handler reports as unforeseen fails the test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from tidelog.api.dispatch import Dispatcher
from tidelog.broker import Broker
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.sources import load
from tidelog.control.nodes import Endpoint
from tidelog.log.memory_disk import MemoryDisk
from tidelog.metadata.memory import MemoryEnsemble
from tidelog.timer.host import Host
from tidelog.timer.wheel import Timer
from tidelog.wire.apis import APIS
from tidelog.wire.batch import InvalidBatch
from tidelog.wire.check import TakesLong
from tidelog.wire.codec import message_class, response_codec, schema_of
from tidelog.wire.frame import decode_response_header, encode_request
from tidelog.wire.malformed import WireError
from tidelog.wire.records import build_batch

BROKER = 0
START_MS = 1_700_000_000_000
UNKNOWN_ID = b"\7" * 16


class StillClock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return START_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Connection:
    listener_name = "PLAINTEXT"
    local_host = "127.0.0.1"
    peer = ("127.0.0.9", 40_000)
    closed = False


class Exchange:
    """What `tidelog.net.exchange` offers, and what became of it."""

    def __init__(self, notices: list[str]) -> None:
        self._notices = notices
        self.connection = Connection()
        self.on_abandoned: Callable[[], object] | None = None
        self.frame: bytes | None = None
        self.closed = False
        self.silent = False

    @property
    def answered(self) -> bool:
        return self.closed or self.silent or self.frame is not None

    def reply(self, parts: Sequence[Any]) -> None:
        assert not self.answered, "answered twice"
        self.frame = b"".join(part.read() if hasattr(part, "size_bytes") else bytes(part) for part in parts)

    def no_reply(self) -> None:
        assert not self.answered, "answered twice"
        self.silent = True

    def close(self) -> None:
        assert not self.answered, "answered twice"
        self.closed = True

    def hang_up(self, why: str) -> None:
        self._notices.append(why)
        self.close()

    def allow_next(self) -> None:
        pass


class Workers:
    """Work is done at once; between `hold` and its end it waits, as on a thread that is slow."""

    def __init__(self, idle: bool = False) -> None:
        self._held: list[tuple[Any, Any]] | None = [] if idle else None
        self._soon: deque[Callable[[], object]] = deque()
        self.turns = 0

    def call_soon(self, callback: Callable[[], object]) -> None:
        """A turn of the loop for each, one after the other; `turns` counts them."""
        self._soon.append(callback)
        if len(self._soon) > 1:
            return
        while self._soon:
            self.turns += 1
            self._soon[0]()
            self._soon.popleft()

    def in_worker(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        if self._held is not None:
            self._held.append((work, done))
        else:
            self._do(work, done)

    @staticmethod
    def _do(work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            result, error = work(), None
        except (OSError, InvalidBatch, TakesLong, WireError) as failure:
            result, error = None, failure
        done(result, error)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._held = []
        yield
        waiting, self._held = self._held, None
        for work, done in waiting:
            self.in_worker(work, done)

    def step(self) -> None:
        """Does what is held by now; what follows from it is held in its turn."""
        assert self._held is not None
        waiting, self._held = self._held, []
        for work, done in waiting:
            self._do(work, done)


class Asked:
    """A request that was sent: its answer, once there is one."""

    def __init__(self, api_key: int, version: int, exchange: Exchange) -> None:
        self.api_key = api_key
        self.version = version
        self.exchange = exchange

    @property
    def answer(self) -> Any:
        assert self.exchange.frame is not None, "not answered yet"
        frame = memoryview(self.exchange.frame)[4:]
        _, at = decode_response_header(self.api_key, self.version, frame)
        message, end = response_codec(self.api_key, self.version).decode(frame, at)
        assert end == len(frame)
        return message


class Site:
    def __init__(self, directory: Path, settings: dict[str, str], dirs: int = 1) -> None:
        self.directory = directory
        self._settings = {
            "broker.id": str(BROKER),
            "log.dirs": ",".join(str(directory / f"data-{at}") for at in range(dirs)),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            **settings,
        }
        self.ensemble = MemoryEnsemble()
        self.disk = MemoryDisk()
        self.clock = StillClock()
        self.reports: list[tuple[str, BaseException | None]] = []
        self.notices: list[str] = []
        self.correlation_id = 0
        #: each draws ids of its own
        self.lives = 0
        self.start()

    def start(self, workers: Workers | None = None) -> None:
        """`workers` that are held make a start whose coordinators are still loading."""
        self.lives += 1
        settings = load(flags=[f"{name}={value}" for name, value in self._settings.items()])
        self.config = BrokerConfig(settings)
        self.timer = Timer(self.clock.monotonic_ms())
        self.workers = workers or Workers()
        self.store = self.ensemble.connect()
        self.broker = Broker(
            self.config,
            self.store,
            self.disk,
            Host(
                self.clock,
                self.timer,
                self.workers,
                lambda what, error: self.reports.append((what, error)),
                self.notices.append,
            ),
            Random(self.lives),
        )
        self.dispatch = Dispatcher(self.broker.doors)
        self.housekeeping = self.broker.housekeeping
        opened: list[str | None] = []
        self.broker.open(opened.append)
        assert opened == [None]
        joined: list[Any] = []
        self.broker.join([Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)], joined.append)
        assert not joined[0].is_failure, joined
        self.housekeeping.start()

    def stop(self, clean: bool = True) -> None:
        """The broker ends; without `clean` its files stay as a crash leaves them."""
        self.housekeeping.stop()
        if clean:
            self.broker.close()
        else:
            self.broker.data.logs._release()
            # What the life that ended has mapped is none of the next one's business.
            self.disk.outlive()
        self.ensemble.expire(self.store)

    def pass_time(self, span_ms: int) -> None:
        self.clock.now_ms += span_ms
        self.timer.advance(self.clock.monotonic_ms())

    # --- asking -------------------------------------------------------------------------------------

    def send(self, api_key: int, version: int, client_id: str | None = "test", **fields: Any) -> Asked:
        """Sends a request given as keyword arguments; structs are dictionaries."""
        name = APIS[api_key].name + "Request"
        self.correlation_id += 1
        message = _build(message_class(name), schema_of(name), fields)
        parts = encode_request(api_key, version, self.correlation_id, client_id, message)
        frame = bytearray(b"".join(bytes(part) for part in parts))
        exchange = Exchange(self.notices)
        self.dispatch(exchange, memoryview(frame)[4:])  # type: ignore[arg-type]
        return Asked(api_key, version, exchange)

    def ask(self, api_key: int, version: int, client_id: str | None = "test", **fields: Any) -> Any:
        return self.send(api_key, version, client_id, **fields).answer

    # --- what most tests need first -----------------------------------------------------------------

    def topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Creates a topic and gives its id."""
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        (created,) = self.ask(19, 7, topics=[wanted], timeout_ms=1000).topics
        assert created.error_code == 0, created
        topic_id: bytes = created.topic_id
        return topic_id

    def produce(
        self, topic: str, records: int | bytes = 1, partition: int = 0, acks: int = -1, version: int = 9
    ) -> Any:
        """Appends so many records, or these bytes; gives the partition's answer."""
        data = batch(records) if isinstance(records, int) else records
        asked = [{"name": topic, "partition_data": [{"index": partition, "records": data}]}]
        answer = self.ask(0, version, acks=acks, timeout_ms=1000, topic_data=asked)
        return answer.responses[0].partition_responses[0]


def batch(records: int = 1, timestamp_ms: int = START_MS, **how: Any) -> bytes:
    return bytes(build_batch([(timestamp_ms + at, b"key", b"value", None) for at in range(records)], **how))


def _build(kind: Any, struct: Any, values: dict[str, Any], top: Any = None) -> Any:
    top = top or kind
    fields = {field.name: field for field in struct.fields}
    made = {}
    for name, value in values.items():
        below = fields[name].struct
        if below is not None and value is not None:
            inner = getattr(top, below.name)
            if fields[name].array:
                value = [_build(inner, below, item, top) for item in value]
            else:
                value = _build(inner, below, value, top)
        made[name] = value
    return kind(**made)
