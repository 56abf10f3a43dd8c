"""Several whole brokers in one process: one ensemble, one network and one clock, all in memory and driven by one seed.

    cluster = BrokerCluster(3, seed=7)          # three brokers, all of them serving
    cluster.create("t", partitions=2, factor=3)
    cluster.kill(1)                             # its connections break at once, its session when `expire` is called
    cluster.run_until(lambda: cluster.leader("t", 0) != 1)
    cluster.ask(2, messages.MetadataRequest(topics=None))

Time passes only in `run` and `run_until` (and in what waits: `ask`, `start`), from one deadline to the next. What a
broker reports as unforeseen fails in `check`. The same seed gives the same run, in any process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar, cast

from tidelog.api.dispatch import Dispatcher
from tidelog.broker import Broker
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.sources import load
from tidelog.control.errors import ApiError
from tidelog.control.image import Image, changes_of_tree
from tidelog.control.nodes import Endpoint
from tidelog.log.memory_disk import MemoryDisk
from tidelog.metadata.memory import MemoryEnsemble, MemoryStore
from tidelog.metadata.watches import Watches
from tidelog.net.memory_network import MemoryNetwork, Weather
from tidelog.net.requester import PeerRequester
from tidelog.peers.requester import NEWEST, Answered, Failure, Link, LinkOptions, PeerAddress, Requester
from tidelog.timer.host import Host
from tidelog.timer.wheel import Timer, TimerTask
from tidelog.wire import messages
from tidelog.wire.apis import APIS
from tidelog.wire.classes import RequestMessage

R = TypeVar("R")

START_MS = 1_700_000_000_000
PORT = 9092
#: simulated; whatever takes longer hangs
PATIENCE_MS = 120_000
KEY_OF = {f"{api.name}Request": int(key) for key, api in APIS.items()}


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return START_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Life:
    """A process: its timers and its workers end with it."""

    def __init__(self, clock: Clock, timer: Timer) -> None:
        self.is_over = False
        #: how long its workers take for anything
        self.work_ms = 0
        self._clock = clock
        self._timer = timer

    def add(self, deadline_ms: int, callback: Callable[[], object]) -> TimerTask:
        return self._timer.add(deadline_ms, lambda: None if self.is_over else callback())

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.add(self._clock.now_ms, callback)

    def in_worker(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def run() -> None:
            try:
                result, error = work(), None
            except Exception as failure:
                result, error = None, failure
            done(result, error)

        self.add(self._clock.now_ms + self.work_ms, run)


class Node:
    """One broker, from its start to its end; the disk outlives it."""

    def __init__(
        self, cluster: BrokerCluster, broker_id: int, settings: Mapping[str, str], seed: int, machine: str
    ) -> None:
        self.id = broker_id
        self.machine = machine
        self.life = Life(cluster.clock, cluster.timer)
        self.store: MemoryStore = cluster.ensemble.connect()
        self.notices: list[str] = []
        self.fatal: list[str] = []
        self.host = Host(
            cluster.clock,
            cast(Timer, self.life),
            self.life,
            lambda what, error: cluster.reports.append((broker_id, what, error)),
            self.notices.append,
        )
        flags = [f"{name}={value}" for name, value in {"broker.id": str(broker_id), **settings}.items()]
        self.requester = cluster.wrap_requester(
            self,
            PeerRequester(broker_id, self.host, cluster.network.dialler(self.machine), Random(f"requester {seed}")),
        )
        self.broker = Broker(
            BrokerConfig(load(flags=flags)),
            self.store,
            cluster.disks.setdefault(broker_id, MemoryDisk()),
            self.host,
            Random(f"broker {seed}"),
            self.requester,
            is_alone=False,
        )
        self.broker.on_fatal = self.fatal.append
        #: why it did not start
        self.failure: str | ApiError | None = None
        self.is_ready = False

    @property
    def image(self) -> Image:
        return self.broker.cluster.image

    @property
    def is_controller(self) -> bool:
        return self.broker.cluster.controller.is_active

    def start(self, network: MemoryNetwork) -> None:
        network.listen((self.machine, PORT), cast(Any, Dispatcher(self.broker.doors)), self.host)

        def opened(failure: str | None) -> None:
            self.failure = failure
            if failure is None:
                self.broker.join([Endpoint("PLAINTEXT", "PLAINTEXT", self.machine, PORT)], joined)

        def joined(error: ApiError) -> None:
            if error.is_failure:
                self.failure = error
            else:
                self.is_ready = True
                self.broker.start_upkeep()

        self.broker.open(opened)


class BrokerCluster:
    def __init__(
        self,
        brokers: int = 3,
        seed: int = 0,
        settings: Mapping[str, str] | None = None,
        weather: Weather | None = None,
        wrap_requester: Callable[[Node, Requester], Requester] = lambda node, requester: requester,
    ) -> None:
        self.seed = seed
        #: puts something between a broker and its network
        self.wrap_requester = wrap_requester
        self.clock = Clock()
        self.timer = Timer(self.clock.now_ms, self._timer_failed)
        self.network = MemoryNetwork(self.clock, self.timer, Random(f"network {seed}"), weather)
        self.ensemble = MemoryEnsemble()
        self.disks: dict[int, MemoryDisk] = {}
        self.nodes: dict[int, Node] = {}
        self.reports: list[tuple[int, str, BaseException | None]] = []
        self._settings = {
            "log.dirs": "/data",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self._lives = 0
        self._links: dict[tuple[int, str], Link] = {}
        client = Life(self.clock, self.timer)
        client_host = Host(self.clock, cast(Timer, client), client, self._client_failed)
        self._client = PeerRequester(-1, client_host, self.network.dialler("client"), Random(f"client {seed}"))
        for broker_id in range(brokers):
            self.begin(broker_id)
        self.run_until(lambda: all(node.is_ready for node in self.nodes.values()))

    def _timer_failed(self, task: object, error: BaseException) -> None:
        self.reports.append((-1, "a timer failed", error))

    def _client_failed(self, what: str, error: BaseException | None) -> None:
        self.reports.append((-1, what, error))

    # --- time ---------------------------------------------------------------------------------------

    def run(self, span_ms: int = 0) -> None:
        """Lets so much time pass."""
        end_ms = self.clock.now_ms + span_ms
        while (due_ms := self.timer.next_deadline_ms()) is not None and due_ms <= end_ms:
            self._step(due_ms)
        self.clock.now_ms = end_ms
        self.timer.advance(end_ms)

    def run_until(self, condition: Callable[[], bool], most_ms: int = PATIENCE_MS) -> None:
        end_ms = self.clock.now_ms + most_ms
        while not condition():
            due_ms = self.timer.next_deadline_ms()
            assert due_ms is not None and due_ms <= end_ms, f"did not come about; reports: {self.reports}"
            self._step(due_ms)

    def _step(self, due_ms: int) -> None:
        self.clock.now_ms = max(self.clock.now_ms, due_ms)
        self.timer.advance(self.clock.now_ms)

    # --- brokers ------------------------------------------------------------------------------------

    def begin(self, broker_id: int, *, machine: str | None = None, **settings: str) -> Node:
        """Starts a broker, and does not wait until it is ready. `a_b="x"` sets a.b."""
        self._lives += 1
        given = {name.replace("_", "."): value for name, value in settings.items()}
        node = Node(
            self, broker_id, {**self._settings, **given}, self.seed * 1_000 + self._lives, machine or f"b{broker_id}"
        )
        self.nodes[broker_id] = node
        node.start(self.network)
        return node

    def start(self, broker_id: int, **settings: str) -> Node:
        node = self.begin(broker_id, **settings)
        self.run_until(lambda: node.is_ready or node.failure is not None)
        assert node.failure is None, node.failure
        return node

    def kill(self, broker_id: int, expire: bool = True) -> Node:
        """The process dies. Without `expire` its session lives on, until `expire` is called."""
        node = self.nodes.pop(broker_id)
        node.life.is_over = True
        self.network.stop(node.machine)
        node.store.watches = Watches()
        node.broker.data.logs._release()
        # What the life that ended has mapped is none of the next one's business.
        self.disks[broker_id].outlive()
        if expire:
            self.expire(node)
        return node

    def lose(self, broker_id: int) -> Node:
        """The machine is gone: nobody there refuses connections, and its session lives on until `expire` is called."""
        node = self.kill(broker_id, expire=False)
        for other in self.nodes.values():
            self.network.cut(other.machine, node.machine)
        return node

    def expire(self, node: Node) -> None:
        self.ensemble.expire(node.store)

    def stop(self, broker_id: int) -> None:
        """A clean stop: leaders are moved away first."""
        node = self.nodes[broker_id]
        left: list[bool] = []
        node.broker.leave(lambda: left.append(True))
        self.run_until(lambda: bool(left))
        node.broker.close()
        del self.nodes[broker_id]
        node.life.is_over = True
        self.network.stop(node.machine)
        node.store.watches = Watches()
        self.expire(node)

    def check(self) -> None:
        """Nothing was reported as unforeseen."""
        assert not self.reports, self.reports

    # --- looking ------------------------------------------------------------------------------------

    @property
    def controller(self) -> Node:
        (found,) = (node for node in self.nodes.values() if node.is_controller)
        return found

    @property
    def followers(self) -> list[Node]:
        """The brokers that are not the controller."""
        return [node for node in self.nodes.values() if not node.is_controller]

    @property
    def stored(self) -> Image:
        """What the store holds."""
        image = Image()
        image.apply(changes_of_tree(self.ensemble.tree.walk("/")))
        return image

    def leader(self, topic: str, partition: int) -> int:
        found = self.stored.partition(topic, partition)
        assert found is not None
        return found.leader

    def is_agreed(self) -> bool:
        """Whether every broker has the image that the store describes."""
        stored = self.stored
        return all(node.image == stored for node in self.nodes.values())

    def agree(self) -> None:
        self.run_until(self.is_agreed)

    def bring_in_sync(self) -> None:
        """Waits until all live replicas are in their ISR, and everybody knows."""

        def is_in_sync() -> bool:
            stored = self.stored
            return all(
                set(p.isr) == {r for r in p.replicas if r in stored.brokers} and not p.adding
                for topic in stored.topics.values()
                for p in topic.partitions
            )

        self.run_until(is_in_sync)
        self.agree()

    # --- asking -------------------------------------------------------------------------------------

    def send(
        self,
        broker_id: int,
        request: RequestMessage[R],
        version: int = NEWEST,
        timeout_ms: int = 60_000,
        client: str = "test",
    ) -> list[Answered[R] | Failure]:
        """Sends as a client, each of which has a connection of its own; the list gets the outcome."""
        outcome: list[Answered[R] | Failure] = []
        link = self._links.get((broker_id, client))
        if link is None:
            link = self._client.link(PeerAddress(broker_id, f"b{broker_id}", PORT), client)
            self._links[broker_id, client] = link
        link.send(KEY_OF[type(request).__name__], request, outcome.append, timeout_ms, version)
        return outcome

    def ask(self, broker_id: int, request: RequestMessage[R], version: int = NEWEST) -> R:
        outcome = self.send(broker_id, request, version)
        self.run_until(lambda: bool(outcome))
        (got,) = outcome
        assert not isinstance(got, Failure), got
        return got.message

    def create(
        self, name: str, partitions: int = 1, factor: int = -1, broker_id: int | None = None, **configs: str
    ) -> messages.CreateTopicsResponse.CreatableTopicResult:
        """Asks a broker (any) to create a topic."""
        request = messages.CreateTopicsRequest
        wanted = request.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[
                request.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
            ],
        )
        asked = min(self.nodes) if broker_id is None else broker_id
        (result,) = self.ask(asked, request(topics=[wanted], timeout_ms=30_000)).topics
        return result


class WithoutFetching:
    """A broker's way to others on which followers ask in vain: for tests that say themselves who is in sync."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def link(self, peer: PeerAddress, purpose: str, options: LinkOptions = LinkOptions()) -> Link:  # noqa: B008
        return SilentLink(peer) if purpose.startswith("fetcher") else self._requester.link(peer, purpose, options)


class SilentLink:
    def __init__(self, peer: PeerAddress) -> None:
        self.peer = peer
        self.unanswered = 0

    def send(self, api_key: int, asked: Any, done: Any, timeout_ms: int, at_most: int = NEWEST) -> None:
        self.unanswered += 1

    def close(self) -> None:
        pass
