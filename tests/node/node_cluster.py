"""Several brokers in one process, on one metadata store, one network and one clock, all in memory.

Time moves only when a test says so, and everything happens in an order that the seed decides. The controller's word
reaches the others as the whole tree, after every change, unless a test holds it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tidelog.api.dispatch import Dispatcher
from tidelog.broker import Broker
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.sources import load
from tidelog.control.leadership import IsrChange, IsrResult
from tidelog.control.nodes import Endpoint
from tidelog.log.memory_disk import MemoryDisk
from tidelog.metadata.memory import MemoryEnsemble
from tidelog.net.memory_network import MemoryNetwork
from tidelog.net.requester import PeerRequester
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host
from tidelog.timer.wheel import Timer
from tidelog.wire.apis import APIS
from tidelog.wire.batch import InvalidBatch
from tidelog.wire.codec import message_class, response_codec, schema_of
from tidelog.wire.frame import decode_response_header, encode_request
from tidelog.wire.records import build_batch, iter_records

START_MS = 1_700_000_000_000
PORT = 9092


class SharedClock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return START_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Turns:
    """What is to be done soon, and what workers do: all of it in the order in which it was asked for."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.waiting.append(callback)

    def in_worker(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def do() -> None:
            try:
                result, error = work(), None
            except (OSError, InvalidBatch) as failure:
                result, error = None, failure
            done(result, error)

        self.waiting.append(do)


class ClientConnection:
    listener_name = "PLAINTEXT"
    local_host = "client"
    peer = ("client", 40_000)
    closed = False


class ClientExchange:
    def __init__(self) -> None:
        self.connection = ClientConnection()
        self.on_abandoned: Callable[[], object] | None = None
        self.frame: bytes | None = None
        self.closed = False

    @property
    def answered(self) -> bool:
        return self.closed or self.frame is not None

    def reply(self, parts: Sequence[Any]) -> None:
        assert not self.answered, "answered twice"
        self.frame = b"".join(part.read() if hasattr(part, "size_bytes") else bytes(part) for part in parts)

    def no_reply(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def allow_next(self) -> None:
        pass


class Asked:
    """A client's request: its answer, once there is one."""

    def __init__(self, api_key: int, version: int, exchange: ClientExchange) -> None:
        self.api_key = api_key
        self.version = version
        self.exchange = exchange

    @property
    def is_answered(self) -> bool:
        return self.exchange.answered

    @property
    def answer(self) -> Any:
        assert self.exchange.frame is not None, "not answered yet"
        frame = memoryview(self.exchange.frame)[4:]
        _, at = decode_response_header(self.api_key, self.version, frame)
        return response_codec(self.api_key, self.version).decode(frame, at)[0]


class Site:
    """One broker and its disk; it can be killed and started again."""

    def __init__(self, cluster: Cluster, broker_id: int, settings: dict[str, str]) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.machine = f"b{broker_id}"
        self.disk = MemoryDisk()
        self.notices: list[str] = []
        self.lives = 0
        self._settings = {
            "broker.id": str(broker_id),
            "log.dirs": "/data",
            "replica.lag.time.max.ms": "1000",
            "replica.fetch.backoff.ms": "100",
            **settings,
        }
        self.is_alive = False

    def start(self) -> None:
        cluster = self.cluster
        self.lives += 1
        self.is_alive = True
        host = Host(cluster.clock, cluster.timer, cluster.turns, self._report, self.notices.append)
        self.host = host
        self.config = BrokerConfig(load(flags=[f"{name}={value}" for name, value in self._settings.items()]))
        self.store = cluster.ensemble.connect()
        self.requester = PeerRequester(self.id, host, cluster.network.dialler(self.machine), Random(self.lives))
        self.broker = Broker(
            self.config, self.store, self.disk, host, Random(self.id * 100 + self.lives), self.requester
        )
        self.broker.replication.isr_changes._alter_partition = self._alter_partition
        self.dispatch = Dispatcher(self.broker.doors)
        opened: list[str | None] = []
        self.broker.open(opened.append)
        cluster.settle()
        assert opened == [None]
        cluster.network.listen((self.machine, PORT), self.dispatch, host)
        joined: list[Any] = []
        self.broker.join([Endpoint("PLAINTEXT", "PLAINTEXT", self.machine, PORT)], joined.append)
        self.broker.start_upkeep()
        cluster.settle()
        assert joined

    def _report(self, what: str, error: BaseException | None) -> None:
        if self.is_alive:
            self.cluster.reports.append((self.id, what, error))

    def _alter_partition(self, changes: Sequence[IsrChange], done: Callable[[list[IsrResult]], None]) -> None:
        """To the controller, whoever that is, by way of nothing that could fail, unless `cut_from_controller`."""
        epoch = self.broker.cluster.broker_epoch
        changes = list(changes)
        if self.cluster.isr_is_stuck:
            return
        controller = self.cluster.controller
        controller.broker.cluster.decide(lambda room: room.alter_partition(self.id, epoch, changes), done)

    def kill(self, expire: bool = True) -> None:
        """As `kill -9` does: sockets are reset at once, the session ends, and files stay as they are."""
        self.is_alive = False
        self.cluster.network.stop(self.machine)
        self.requester.close()
        self.broker.replication.stop()
        self.broker.housekeeping.stop()
        self.broker.cleaning.stop()
        self.broker.data.logs._release()
        if expire:
            self.cluster.ensemble.expire(self.store)
        self.cluster.settle()

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.broker.data.replicas.partitions[topic, index]

    def send(self, api_key: int, version: int, **fields: Any) -> Asked:
        name = APIS[api_key].name + "Request"
        message = _build(message_class(name), schema_of(name), fields)
        parts = encode_request(api_key, version, 1, "test", message)
        exchange = ClientExchange()
        self.dispatch(exchange, memoryview(bytearray(b"".join(bytes(part) for part in parts)))[4:])  # type: ignore[arg-type]
        return Asked(api_key, version, exchange)

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Sends a request and lets time pass until it is answered."""
        asked = self.send(api_key, version, **fields)
        self.cluster.run_until(lambda: asked.is_answered)
        return asked.answer

    def produce(self, records: int | bytes = 1, acks: int = -1, topic: str = "t", timeout_ms: int = 30_000) -> Asked:
        data = batch(records) if isinstance(records, int) else records
        wanted = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]
        return self.send(0, 9, acks=acks, timeout_ms=timeout_ms, topic_data=wanted)

    def fetch(self, offset: int, topic: str = "t", version: int = 12, **fields: Any) -> Any:
        """What a consumer gets at once."""
        wanted = [
            {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]}
        ]
        answer = self.ask(1, version, max_wait_ms=0, min_bytes=1, topics=wanted, **fields)
        return answer.responses[0].partitions[0]


class Cluster:
    def __init__(self, brokers: int = 3, racks: Sequence[str] = (), seed: int = 0, **settings: str) -> None:
        self.clock = SharedClock()
        self.timer = Timer(self.clock.monotonic_ms())
        self.turns = Turns()
        self.ensemble = MemoryEnsemble()
        self.network = MemoryNetwork(self.clock, self.timer, Random(seed))
        self.reports: list[tuple[int, str, BaseException | None]] = []
        #: brokers that do not hear what the controller says
        self.deaf: set[int] = set()
        #: nothing comes back from the controller about an ISR
        self.isr_is_stuck = False
        self._heard: dict[int, tuple[int, int]] = {}
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.sites = {
            broker: Site(self, broker, {**named, **({"broker.rack": racks[broker - 1]} if racks else {})})
            for broker in range(1, brokers + 1)
        }
        for site in self.sites.values():
            site.start()

    def __getitem__(self, broker: int) -> Site:
        return self.sites[broker]

    @property
    def living(self) -> list[Site]:
        return [site for site in self.sites.values() if site.is_alive]

    @property
    def controller(self) -> Site:
        return next(site for site in self.living if site.broker.cluster.controller.is_active)

    def leader(self, topic: str = "t", index: int = 0) -> Site:
        assigned = self.controller.broker.cluster.image.partition(topic, index)
        assert assigned is not None
        return self.sites[assigned.leader]

    # --- time -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Has everything done that can be done without waiting."""
        while True:
            while self.turns.waiting:
                self.turns.waiting.popleft()()
            due = self.timer.next_deadline_ms()
            if due is not None and due <= self.clock.now_ms:
                self.timer.advance(self.clock.now_ms)
            elif not self._spread() and not self.turns.waiting:
                return

    def _spread(self) -> bool:
        """The controller's word, for who has not heard it; whether there was any."""
        tree = self.ensemble.tree
        news = False
        for site in self.living:
            state = (site.lives, tree.zxid)
            if self._heard.get(site.id) == state or site.id in self.deaf:
                continue
            self._heard[site.id] = state
            if not site.broker.cluster.controller.is_active:
                news = True
                walked = tree.walk("/")
                assert walked is not None
                events = site.broker.cluster.controller.load(walked)
                later = site.broker.assignments.carry_out(events)
                if later is not None:
                    later(lambda: None)
        return news

    def run(self, span_ms: int) -> None:
        self.run_until(lambda: False, span_ms, must=False)

    def run_until(self, is_so: Callable[[], bool], most_ms: int = 20_000, must: bool = True) -> None:
        end_ms = self.clock.now_ms + most_ms
        self.settle()
        while not is_so():
            due = self.timer.next_deadline_ms()
            if due is None or due > end_ms:
                self.clock.now_ms = end_ms
                self.settle()
                assert is_so() or not must, "it has not come about"
                return
            self.clock.now_ms = max(due, self.clock.now_ms)
            self.settle()

    # --- what most tests need ----------------------------------------------------------------------------

    def topic(self, name: str = "t", replicas: Sequence[Sequence[int]] = ((1, 2, 3),), **configs: str) -> None:
        """Creates a topic whose partitions have these replicas, and waits until their leaders have followers."""
        wanted = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": list(brokers)} for index, brokers in enumerate(replicas)
            ],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        (created,) = self.controller.ask(19, 7, topics=[wanted], timeout_ms=1000).topics
        assert created.error_code == 0, created
        self.settle()

    def isr(self, topic: str = "t", index: int = 0) -> tuple[int, ...]:
        assigned = self.controller.broker.cluster.image.partition(topic, index)
        assert assigned is not None
        return tuple(sorted(assigned.isr))

    def assert_identical(self, topic: str = "t", index: int = 0, brokers: Sequence[int] = (1, 2, 3)) -> None:
        """All replicas have the same bytes."""
        contents = {content(self[broker].partition(topic, index)) for broker in brokers}
        assert len(contents) == 1

    def close(self) -> None:
        for site in self.living:
            site.kill()


def batch(records: int = 1, value: bytes = b"value", **how: Any) -> bytes:
    return bytes(build_batch([(START_MS, b"key", value, None)] * records, **how))


def content(partition: Partition) -> bytes:
    log = partition.log
    found, at = b"", log.log_start_offset
    while at < log.log_end_offset and (piece := log.read(at, 1 << 20, log.log_end_offset)) is not None:
        found += piece.read()
        at = piece.next_offset
    return found


def values(partition: Partition) -> list[bytes | None]:
    return [record.value for record in iter_records(content(partition))]


def _build(kind: Any, struct: Any, given: dict[str, Any], top: Any = None) -> Any:
    top = top or kind
    fields = {field.name: field for field in struct.fields}
    made = {}
    for name, value in given.items():
        below = fields[name].struct
        if below is not None and value is not None:
            inner = getattr(top, below.name)
            if fields[name].array:
                value = [_build(inner, below, item, top) for item in value]
            else:
                value = _build(inner, below, value, top)
        made[name] = value
    return kind(**made)
