"""Several brokers with their controllers on one ensemble in memory, driven by lines of text.

A script is a list of commands, each with its outcome indented below it. `run_script` runs the commands and gives the
script back with the outcomes that it saw, so a test is: the script is equal to itself run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Any

from tidelog.control.configs import ConfigOp, IncrementalChange, OpType, Replacement
from tidelog.control.controller import Controller, Registration
from tidelog.control.driver import Driver
from tidelog.control.errors import ApiError
from tidelog.control.events import (
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ControllerChanged,
    Event,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from tidelog.control.image import Image, changes_of_tree
from tidelog.control.leadership import IsrChange
from tidelog.control.model import NO_LEADER, NO_STATE, ConfigResource, Partition, ResourceType
from tidelog.control.nodes import Endpoint, broker_path, encode_broker
from tidelog.control.reassignment import WantedReassignment
from tidelog.control.settings import ControllerSettings
from tidelog.control.topics import NewPartitions, NewTopic, TopicRef
from tidelog.metadata.memory import MemoryEnsemble, MemoryStore
from tidelog.metadata.store import Create
from tidelog.wire.errors import ErrorCode


class FewRules:
    """Two keys, so that a test sees what the rules are asked."""

    def validate(self, resource: ConfigResource, values: dict[str, str], before: dict[str, str]) -> ApiError | None:
        for name in values:
            if name not in ("cleanup.policy", "retention.ms", "unclean.leader.election.enable"):
                return ApiError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
        return None

    def is_list(self, resource: ConfigResource, name: str) -> bool:
        return name == "cleanup.policy"

    def default(self, resource: ConfigResource, name: str) -> str | None:
        return "delete" if name == "cleanup.policy" else None


class NoChance(Random):
    """Always the first."""

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return 0


class Cluster:
    def __init__(self, max_ops: int | None = None) -> None:
        self.ensemble = MemoryEnsemble()
        self.settings = ControllerSettings(max_ops=max_ops or sys.maxsize)
        self.stores: dict[int, MemoryStore] = {}
        self.controllers: dict[int, Controller] = {}
        self.drivers: dict[int, Driver] = {}
        #: what the brokers were told, in words: topics go on changing afterwards
        self.told: list[str] = []
        self._ids = 0

    def new_id(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    # Brokers

    def start(self, broker: int, rack: str | None = None, store: MemoryStore | None = None) -> ApiError | None:
        self.stores[broker] = store or self.ensemble.connect()
        controller = Controller(broker, FewRules(), NoChance(), self.new_id, self.settings)  # type: ignore[arg-type]
        self.controllers[broker] = controller

        def on_events(events: list[Event]) -> None:
            self.told.extend(text for event in events if (text := describe(broker, event)))

        driver = self.drivers[broker] = Driver(controller, self.stores[broker], lambda: 0, on_events)
        answers: list[ApiError] = []
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"host{broker}", 9092)
        driver.start(Registration([endpoint], rack), answers.append)
        return answers[0] if answers else None

    def kill(self, broker: int) -> None:
        store = self.stores.pop(broker)
        del self.controllers[broker], self.drivers[broker]
        self.ensemble.expire(store)

    @property
    def leader(self) -> Controller:
        """The one that is elected."""
        active = [c for c in self.controllers.values() if c.is_active]
        assert len(active) == 1, f"{len(active)} controllers are active"
        return active[0]

    def ask(self, decide: Callable[[Controller], Any]) -> Any:
        controller = self.leader
        answers: list[Any] = []
        self.drivers[controller.broker_id].request(lambda: decide(controller), answers.append)
        assert len(answers) == 1
        return answers[0]

    def fresh_image(self) -> Image:
        image = Image()
        image.apply(changes_of_tree(self.ensemble.tree.walk("/")))
        return image


class Invariants:
    """What holds after every step, whatever happened."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[bytes, int], tuple[int, int]] = {}
        self._controller_epoch = 0

    def check(self, cluster: Cluster) -> None:
        fresh = cluster.fresh_image()
        active = [c for c in cluster.controllers.values() if c.is_active]
        assert len(active) <= 1
        assert fresh.controller_epoch >= self._controller_epoch
        self._controller_epoch = fresh.controller_epoch
        if active:
            assert active[0].image == fresh, "the image differs from what the store holds"
            assert active[0].work() is None, "something was left undone"
        for topic in fresh.topics.values():
            assert fresh.topic_by_id(topic.topic_id) is topic
            for partition in topic.partitions:
                self._check_partition(topic.topic_id, partition)
                if active:
                    self._check_against_brokers(partition, active[0])

    def _check_against_brokers(self, p: Partition, controller: Controller) -> None:
        brokers = controller.image.brokers
        if p.leader == NO_LEADER:
            sound = [r for r in p.isr if controller.is_broker_active(r)]
            assert not sound, f"{p} has no leader, though {sound} could lead"
        else:
            assert p.leader in brokers, f"{p} is led by a broker that is not there"
            assert set(p.isr) <= set(brokers), f"{p} counts on brokers that are not there"
        intact = [r for r in p.isr if r in brokers and brokers[r].epoch <= p.state_zxid]
        if intact and p.leader != NO_LEADER:
            assert p.leader in intact, f"{p} is led by a broker that was away, though {intact} were not"

    def _check_partition(self, topic_id: bytes, p: Partition) -> None:
        assert len(set(p.replicas)) == len(p.replicas) > 0
        assert set(p.adding) <= set(p.replicas) and set(p.removing) <= set(p.replicas)
        if p.partition_epoch == NO_STATE:
            return
        assert p.isr and set(p.isr) <= set(p.replicas), p
        assert p.leader == NO_LEADER or p.leader in p.isr, p
        key = (topic_id, p.partition_index)
        before = self._epochs.get(key, (0, 0))
        now = (p.leader_epoch, p.partition_epoch)
        assert now[0] >= before[0] and now[1] >= before[1], f"{p}: an epoch went back from {before}"
        self._epochs[key] = now


# Scripts


def run_script(script: str, max_ops: int | None = None) -> str:
    cluster, invariants = Cluster(max_ops), Invariants()
    seen = []
    for line in script.splitlines():
        if line.startswith("    "):
            continue
        seen.append(line)
        if line and not line.startswith("#"):
            seen += ["    " + outcome for outcome in run_line(cluster, line)]
            invariants.check(cluster)
    return "\n".join(seen) + "\n"


def run_line(cluster: Cluster, line: str) -> list[str]:
    cluster.told = []
    words = line.split()
    if words[0].isdigit():
        replies = run_broker_command(cluster, int(words[0]), words[1], words[2:])
    else:
        replies = COMMANDS[words[0]](cluster, words[1:])
    return cluster.told + replies


def run_broker_command(cluster: Cluster, broker: int, verb: str, rest: list[str]) -> list[str]:
    options = dict(word.split("=") for word in rest)
    if verb == "starts":
        error = cluster.start(broker, options.get("rack"))
        return [] if error is None or not error.is_failure else [f"refused: {error.code}"]
    if verb == "bounces":
        # Gone and back before anyone looked.
        with cluster.ensemble.delayed():
            cluster.kill(broker)
            store = cluster.ensemble.connect()
            endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"host{broker}", 9092)
            store.submit([Create(broker_path(broker), encode_broker([endpoint], None, 0, {}), True)], lambda r: None)
        cluster.start(broker, store=store)
        return []
    if verb == "recovers":
        return [outcome(cluster.ask(lambda c: c.renew_leadership(broker, -1)), "ok")]
    if verb == "dies":
        cluster.kill(broker)
        return []
    if verb == "shuts":
        reply = cluster.ask(lambda c: c.controlled_shutdown(broker, int(options.get("epoch", -1))))
        return [f"error {reply.error.code}"] if reply.error.is_failure else [f"still leads {list(reply.remaining)}"]
    assert verb == "wants", verb
    block = cluster.ask(lambda c: c.allocate_producer_ids(broker, int(options.get("epoch", -1))))
    return [f"error {block.error.code}"] if block.error.is_failure else [f"ids {block.first}..+{block.size}"]


def create(cluster: Cluster, words: list[str]) -> list[str]:
    topics, validate = [], False
    for word in words:
        if word == "--validate":
            validate = True
            continue
        name, _, rest = word.partition(":")
        partitions, _, factor = rest.partition("x")
        if "[" in rest:
            hand = rest.strip("[]").split("/")
            topics.append(NewTopic(name, assignments=[(i, numbers(brokers)) for i, brokers in enumerate(hand)]))
        elif "=" in rest:
            key, _, value = rest.partition("=")
            topics.append(NewTopic(name, configs={key: value}))
        else:
            topics.append(NewTopic(name, int(partitions or -1), int(factor or -1)))
    replies = cluster.ask(lambda c: c.create_topics(topics, validate))
    return [f"{r.name}: {outcome(r.error, f'{r.num_partitions} x {r.replication_factor}')}" for r in replies]


def delete(cluster: Cluster, words: list[str]) -> list[str]:
    image = cluster.leader.image
    refs = []
    for word in words:
        if word.startswith("id:"):
            known = image.topics.get(word[3:])
            refs.append(TopicRef(topic_id=known.topic_id if known else b"?" * 16))
        else:
            refs.append(TopicRef(word))
    return [f"{r.name}: {outcome(r.error, 'ok')}" for r in cluster.ask(lambda c: c.delete_topics(refs))]


def grow(cluster: Cluster, words: list[str]) -> list[str]:
    hand = [numbers(brokers) for brokers in words[2].strip("[]").split("/")] if len(words) > 2 else None
    replies = cluster.ask(lambda c: c.create_partitions([NewPartitions(words[0], int(words[1]), hand)]))
    return [f"{r.name}: {outcome(r.error, 'ok')}" for r in replies]


def alter(cluster: Cluster, words: list[str]) -> list[str]:
    """alter topic t a=1 a+=2 a-=3 -a   or   alter broker "" …"""
    kind, name = ResourceType[words[0].upper()], words[1].strip('"')
    ops = []
    for word in words[2:]:
        if word.startswith("-"):
            ops.append(ConfigOp(word[1:], OpType.DELETE, None))
            continue
        key, _, value = word.partition("=")
        op = {"+": OpType.APPEND, "-": OpType.SUBTRACT}.get(key[-1], OpType.SET)
        ops.append(ConfigOp(key.rstrip("+-"), op, value))
    replies = cluster.ask(lambda c: c.incremental_alter_configs([IncrementalChange(kind, name, ops)]))
    return [outcome(r.error, "ok") for r in replies]


def replace(cluster: Cluster, words: list[str]) -> list[str]:
    kind, name = ResourceType[words[0].upper()], words[1].strip('"')
    values: list[tuple[str, str | None]] = []
    for word in words[2:]:
        key, _, value = word.partition("=")
        values.append((key, value))
    replies = cluster.ask(lambda c: c.alter_configs([Replacement(kind, name, values)]))
    return [outcome(r.error, "ok") for r in replies]


def isr(cluster: Cluster, words: list[str]) -> list[str]:
    """isr t-0 1,2 [by=1] [leader_epoch=0] [partition_epoch=0] [epoch_of_2=5]"""
    name, index = partition_name(words[0])
    options = dict(word.split("=") for word in words[2:])
    topic = cluster.leader.image.topics[name]
    p = topic.partitions[index]
    change = IsrChange(
        topic.topic_id,
        index,
        int(options.get("leader_epoch", p.leader_epoch)),
        int(options.get("partition_epoch", p.partition_epoch)),
        [(b, int(options.get(f"epoch_of_{b}", -1))) for b in numbers(words[1])],
    )
    replies = cluster.ask(lambda c: c.alter_partition(int(options.get("by", p.leader)), -1, [change]))
    return [outcome(r.error, "ok") for r in replies]


def elect(cluster: Cluster, words: list[str]) -> list[str]:
    wanted = None if words[1] == "all" else [partition_name(word) for word in words[1:]]
    kind = {"preferred": 0, "unclean": 1, "other": 7}[words[0]]
    replies = cluster.ask(lambda c: c.elect_leaders(kind, wanted))
    return [f"{r.topic}-{r.partition}: {outcome(r.error, 'ok')}" for r in replies]


def move(cluster: Cluster, words: list[str]) -> list[str]:
    name, index = partition_name(words[0])
    target = None if words[1] == "cancel" else numbers(words[1])
    allow = "--same-factor" not in words
    replies = cluster.ask(lambda c: c.alter_partition_reassignments([WantedReassignment(name, index, target)], allow))
    return [outcome(r.error, "ok") for r in replies]


def show(cluster: Cluster, words: list[str]) -> list[str]:
    controller = cluster.leader
    if words == ["moves"]:
        return [describe_partition(p) for p in controller.list_partition_reassignments()]
    if words == ["offline"]:
        found = [p for topic in controller.image.topics.values() for p in topic.partitions if p.leader == NO_LEADER]
        return [f"{p.topic}-{p.partition_index}" for p in found]
    if words[0] in ("topic", "broker"):
        resource = ConfigResource(ResourceType[words[0].upper()], words[1].strip('"'))
        return [f"{name}={value}" for name, value in sorted(controller.image.config(resource).items())]
    return [describe_partition(p) for p in controller.image.topics[words[0]].partitions]


def balance(cluster: Cluster, words: list[str]) -> list[str]:
    cluster.ask(lambda c: c.balance_leaders())
    return []


COMMANDS = {
    "create": create,
    "delete": delete,
    "grow": grow,
    "alter": alter,
    "replace": replace,
    "isr": isr,
    "elect": elect,
    "move": move,
    "show": show,
    "balance": balance,
}


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def partition_name(text: str) -> tuple[str, int]:
    name, _, index = text.rpartition("-")
    return name, int(index)


def outcome(error: ApiError, otherwise: str) -> str:
    if not error.is_failure:
        return otherwise
    return f"error {error.code}" + (f" ({error.message})" if error.message else "")


def join(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "-"


def describe_partition(p: Partition) -> str:
    leader = "none" if p.leader == NO_LEADER else p.leader
    text = f"{p.topic}-{p.partition_index}: replicas {join(p.replicas)} leader {leader} isr {join(p.isr)}"
    text += f" epochs {p.leader_epoch}/{p.partition_epoch}"
    if p.is_reassigning:
        text += f" adding {join(p.adding)} removing {join(p.removing)}"
    return text + (" recovering" if p.recovering else "")


def describe(broker: int, event: Event) -> str:
    if isinstance(event, ControllerChanged):
        return f"{broker} sees controller {event.controller_id}, epoch {event.controller_epoch}"
    if isinstance(event, BrokerRegistered):
        return f"{broker} sees broker {event.broker.broker_id} come" + (" back" if event.before else "")
    if isinstance(event, BrokerUnregistered):
        return f"{broker} sees broker {event.broker.broker_id} go"
    if isinstance(event, TopicCreated):
        return "\n    ".join(map(describe_partition, event.topic.partitions))
    if isinstance(event, PartitionsAdded):
        return "\n    ".join(map(describe_partition, event.partitions))
    if isinstance(event, TopicDeleted):
        return f"{event.topic.name} deleted"
    if isinstance(event, PartitionChanged):
        return describe_partition(event.after)
    if isinstance(event, ConfigChanged) and (event.before or event.after):
        return f"{event.resource.type.name.lower()} {event.resource.name or 'default'} has {event.after}"
    return ""
