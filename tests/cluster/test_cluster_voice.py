"""What the controller says: every broker ends with the controller's picture, whatever happens to the messages.

Histories are random, one seed each. Messages are lost, answers are lost, messages arrive twice or long after later
ones; brokers and controllers die and come back. In between no broker may go back to an older state of a partition, and
in the end all have exactly what the store holds.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from broker_cluster import BrokerCluster, Node
from seeds import seeds
from tidelog.control.configs import ConfigOp, IncrementalChange, OpType
from tidelog.control.controller import Controller
from tidelog.control.image import Image, NodeChange, changes_of_tree
from tidelog.control.leadership import IsrChange
from tidelog.control.model import ResourceType
from tidelog.control.nodes import config_path, encode_config
from tidelog.control.picture import changes_of_image, in_pieces
from tidelog.control.plan import Plan
from tidelog.control.reassignment import WantedReassignment
from tidelog.control.topics import NewPartitions, NewTopic, TopicRef
from tidelog.metadata.store import Create
from tidelog.metadata.watches import Watches
from tidelog.net.memory_network import Weather
from tidelog.node import voice
from tidelog.node.hearing import Ear
from tidelog.node.voice import PURPOSE
from tidelog.peers.requester import Failure, FailureKind, Link, LinkOptions, PeerAddress, Requester
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

STEPS = 40


class Unreliable:
    """Makes the voice of a broker unreliable: its messages are lost, repeated, and delayed beyond later ones."""

    def __init__(self, node: Node, requester: Requester, random: Random, is_calm: Callable[[], bool]) -> None:
        self._node = node
        self._requester = requester
        self._random = random
        self._is_calm = is_calm

    def link(self, peer: PeerAddress, purpose: str, options: LinkOptions = LinkOptions()) -> Link:  # noqa: B008
        link = self._requester.link(peer, purpose, options)
        return link if purpose != PURPOSE else UnreliableLink(self._node, link, self._random, self._is_calm)

    def close(self) -> None:
        pass


class UnreliableLink:
    def __init__(self, node: Node, link: Link, random: Random, is_calm: Callable[[], bool]) -> None:
        self._node = node
        self._link = link
        self._random = random
        self._is_calm = is_calm

    @property
    def peer(self) -> PeerAddress:
        return self._link.peer

    @property
    def unanswered(self) -> int:
        return self._link.unanswered

    def send(self, api_key: int, asked: Any, done: Any, timeout_ms: int, at_most: int = 1) -> None:
        fate = 1.0 if self._is_calm() else self._random.random()
        host = self._node.host
        now_ms = host.clock.monotonic_ms()

        def later(after_ms: int, callback: Callable[[], object]) -> None:
            host.timer.add(now_ms + after_ms, callback)

        def deliver(answer: Callable[[Any], object]) -> None:
            self._link.send(api_key, asked, answer, timeout_ms, at_most)

        lost = Failure(FailureKind.TIMED_OUT, "lost on its way", True)
        if fate < 0.15:
            later(10, lambda: done(lost))
        elif fate < 0.3:  # it arrives, and nobody hears of it
            deliver(lambda answer: None)
            later(20, lambda: done(lost))
        elif fate < 0.5:  # it arrives late: after it was repeated, and after what followed
            later(self._random.randrange(100, 1_000), lambda: deliver(lambda answer: None))
            later(10, lambda: done(lost))
        elif fate < 0.6:  # it arrives twice
            deliver(lambda answer: None)
            deliver(done)
        else:
            deliver(done)

    def close(self) -> None:
        # What is under way may still arrive.
        pass


class History:
    def __init__(self, seed: int, weather: Weather | None = None) -> None:
        self.random = Random(seed)
        self.is_calm = weather is not None
        self.cluster = BrokerCluster(3, seed, weather=weather, wrap_requester=self._wrap)
        self.count = 0
        self._seen: dict[tuple[Node, bytes, int], int] = {}

    def _wrap(self, node: Node, requester: Requester) -> Requester:
        return Unreliable(node, requester, self.random, lambda: self.is_calm)

    def run(self) -> None:
        steps = (
            [self.create] * 3
            + [self.configure] * 2
            + [self.delete, self.grow, self.shrink, self.move, self.elect, self.bounce, self.bounce_controller]
            + [self.write_quota]
        )
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.cluster.run(self.random.randrange(0, 300))
            self.check_epochs()
        self.is_calm = True
        self.cluster.agree()
        self.cluster.check()

    def check_epochs(self) -> None:
        """No broker goes back in time."""
        for node in self.cluster.nodes.values():
            for topic in node.image.topics.values():
                for p in topic.partitions:
                    key = (node, topic.topic_id, p.partition_index)
                    assert p.partition_epoch >= self._seen.get(key, -1), (node.id, p)
                    self._seen[key] = p.partition_epoch

    def decide(self, plan: Callable[[Controller], Plan[Any]]) -> None:
        for node in self.cluster.nodes.values():
            if node.is_controller:
                node.broker.cluster.decide(plan, lambda reply: None)

    def topic(self) -> str | None:
        return self.random.choice(sorted(self.cluster.stored.topics) or [""]) or None

    def create(self) -> None:
        self.count += 1
        wanted = NewTopic(f"t{self.count}", self.random.randrange(1, 4), self.random.randrange(1, 4))
        self.decide(lambda controller: controller.create_topics([wanted]))

    def delete(self) -> None:
        name = self.topic()
        if name is not None:
            self.decide(lambda controller: controller.delete_topics([TopicRef(name)]))

    def grow(self) -> None:
        name = self.topic()
        if name is not None:
            count = len(self.cluster.stored.topics[name].partitions) + 1
            self.decide(lambda controller: controller.create_partitions([NewPartitions(name, count)]))

    def configure(self) -> None:
        name, value = self.topic(), str(self.random.randrange(1_000, 9_000))
        if name is not None and self.random.random() < 0.7:
            op = ConfigOp("retention.ms", OpType.SET, value)
            change = IncrementalChange(ResourceType.TOPIC, name, [op])
        else:
            op = ConfigOp("log.retention.ms", OpType.SET, value)
            change = IncrementalChange(ResourceType.BROKER, self.random.choice(["", "0", "1"]), [op])
        self.decide(lambda controller: controller.incremental_alter_configs([change]))

    def write_quota(self) -> None:
        self.count += 1
        data = encode_config({"producer_byte_rate": str(self.count)})
        told = b'{"version":2,"entity_path":"clients/c%d"}' % self.count
        ops = [
            Create(config_path("clients", f"c{self.count}"), data),
            Create("/config/changes/config_change_", told, sequential=True),
        ]
        self.cluster.ensemble.connect().submit(ops, lambda result: None)

    def shrink(self) -> None:
        name = self.topic()
        if name is None:
            return
        topic = self.cluster.stored.topics[name]
        p = self.random.choice(topic.partitions)
        if p.leader in self.cluster.nodes:
            change = IsrChange(topic.topic_id, p.partition_index, p.leader_epoch, p.partition_epoch, [(p.leader, -1)])
            self.cluster.nodes[p.leader].broker.controller.alter_partition([change], lambda results: None)

    def move(self) -> None:
        name = self.topic()
        if name is not None:
            target = self.random.sample(sorted(self.cluster.nodes), min(2, len(self.cluster.nodes)))
            wanted = WantedReassignment(name, 0, target)
            self.decide(lambda controller: controller.alter_partition_reassignments([wanted]))

    def elect(self) -> None:
        self.decide(lambda controller: controller.elect_leaders(0, None))

    def bounce(self, broker_id: int | None = None) -> None:
        victim = self.random.choice(sorted(self.cluster.nodes)) if broker_id is None else broker_id
        dead = self.cluster.kill(victim, expire=False)
        self.cluster.run(self.random.randrange(0, 500))
        self.cluster.expire(dead)
        self.cluster.run(self.random.randrange(0, 500))
        self.cluster.begin(victim)

    def bounce_controller(self) -> None:
        for node in list(self.cluster.nodes.values()):
            if node.is_controller:
                self.bounce(node.id)
                return


@pytest.mark.parametrize("seed", seeds(range(4), fresh=4))
def test_every_broker_ends_with_the_picture_of_the_store(seed: int) -> None:
    History(seed).run()


@pytest.mark.parametrize("seed", seeds(range(8, 11), fresh=3))
def test_a_picture_in_many_parts_and_a_broker_far_behind_end_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice, "PART_BYTES", 700)
    monkeypatch.setattr(voice, "MOST_CHANGES", 5)
    monkeypatch.setattr(voice, "FAR_BEHIND", 10)
    History(seed).run()


@pytest.mark.parametrize("seed", seeds(range(14, 16), fresh=2))
def test_a_network_that_delays_and_breaks_delays_the_picture_and_does_not_break_it(seed: int) -> None:
    weather = Weather(longest_ms=60, lost_share=0.05, breaking_share=0.03)
    history = History(seed, weather)
    history.run()
    assert history.cluster.network.injected["broken connection"]


def test_a_controller_that_was_deposed_unawares_falls_silent() -> None:
    cluster = BrokerCluster(3)
    former = cluster.controller
    # Its session is over, and it has not heard of it.
    former.store.watches = Watches()
    cluster.expire(former)
    cluster.run_until(lambda: sum(node.is_controller for node in cluster.nodes.values()) == 2)
    latter = next(node for node in cluster.nodes.values() if node.is_controller and node is not former)
    said: list[object] = []
    former.broker.cluster.driver._observe([NodeChange("/config/topics/t", b"{}")])
    former.broker.cluster.when_heard(lambda: said.append(True))
    cluster.run_until(lambda: bool(said))
    cluster.run(2_000)
    for node in (latter, *(each for each in cluster.nodes.values() if not each.is_controller)):
        if node is not former:
            assert node.image == cluster.stored


def test_the_same_seed_gives_the_same_history() -> None:
    def told(seed: int) -> object:
        history = History(seed)
        history.run()
        return history.cluster.clock.now_ms, [str(node.image) for node in history.cluster.nodes.values()]

    assert told(3) == told(3)


def test_an_image_told_in_parts_is_the_image() -> None:
    history = History(1)
    history.run()
    stored = history.cluster.stored
    copy = Image()
    copy.apply(change for piece in in_pieces(changes_of_image(stored), 1_000) for change in piece)
    assert copy == stored
    assert copy.quotas and copy.configs and copy.topics


# --- what is taken of what is said -------------------------------------------------------------------


def said(sequence: int, part: int = 0, parts: int = 0, epoch: int = 5, broker_epoch: int = 9) -> Any:
    return messages.PublishMetadataRequest(
        controller_id=1,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        sequence=sequence,
        part=part,
        parts=parts,
        changes=[messages.PublishMetadataRequest.NodeChange(path=f"/{sequence}", data=b"")],
    )


def paths(ear: Ear, message: Any, controller_epoch: int = 5) -> list[str] | ErrorCode | None:
    taken = ear.take(message, 9, controller_epoch)
    if taken.error is not ErrorCode.NONE:
        return taken.error
    return None if taken.changes is None else [change.path for change in taken.changes]


def test_a_picture_counts_when_all_of_its_parts_have_come() -> None:
    ear = Ear()
    assert paths(ear, said(0, 0, 2)) is None
    assert paths(ear, said(0, 0, 2)) is None
    assert paths(ear, said(1, 1, 2)) == ["/0", "/1"]
    assert paths(ear, said(1, 1, 2)) is None
    assert paths(ear, said(2)) == ["/2"]
    assert paths(ear, said(2)) is None


def test_what_does_not_follow_is_refused_until_a_whole_picture_comes() -> None:
    ear = Ear()
    assert paths(ear, said(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert paths(ear, said(0, 0, 1)) == ["/0"]
    assert paths(ear, said(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert paths(ear, said(1, 1, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert paths(ear, said(3, 0, 2)) is None
    assert paths(ear, said(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert paths(ear, said(4, 1, 2)) == ["/3", "/4"]


def test_a_former_controller_and_a_former_registration_are_not_heard() -> None:
    ear = Ear()
    assert paths(ear, said(0, 0, 1)) == ["/0"]
    assert paths(ear, said(1, broker_epoch=8)) is ErrorCode.STALE_BROKER_EPOCH
    assert paths(ear, said(1), controller_epoch=6) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert paths(ear, said(0, 0, 1, epoch=7)) == ["/0"]
    assert paths(ear, said(1)) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert paths(ear, said(1, epoch=7)) == ["/1"]


def test_a_controller_of_a_store_that_was_restored_from_an_old_copy_is_heard_by_who_registered_there() -> None:
    ear = Ear()
    assert paths(ear, said(0, 0, 1)) == ["/0"]
    assert ear.take(said(0, 0, 1, epoch=2, broker_epoch=4), 4, 2).is_whole


def test_a_new_controller_is_heard_from_its_whole_picture_on() -> None:
    ear = Ear()
    assert paths(ear, said(0, 0, 1)) == ["/0"]
    assert paths(ear, said(1, epoch=6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert paths(ear, said(2, 0, 1, epoch=6)) == ["/2"]


def test_a_picture_of_the_store_and_one_of_the_image_say_the_same() -> None:
    cluster = BrokerCluster(2)
    cluster.create("t", 3, 2, retention_ms="1000")
    from_store, from_image = Image(), Image()
    from_store.apply(changes_of_tree(cluster.ensemble.tree.walk("/")))
    from_image.apply(changes_of_image(cluster.controller.image))
    assert from_store == from_image
    cluster.check()


def test_a_broker_that_missed_something_is_told_the_whole_picture_again() -> None:
    cluster = BrokerCluster(2)
    (other,) = cluster.followers
    cluster.create("a")
    other.broker.hearing._ear = Ear()
    cluster.create("b")
    cluster.agree()
    assert set(other.image.topics) == {"a", "b"}
    cluster.check()


@pytest.mark.parametrize("path", ["", "no path"])
def test_a_message_that_nobody_can_read_does_not_make_a_broker_deaf(path: str) -> None:
    cluster = BrokerCluster(2)
    (other,) = cluster.followers
    request = messages.PublishMetadataRequest
    stranger = request(
        controller_epoch=other.image.controller_epoch,
        broker_epoch=other.broker.cluster.broker_epoch,
        sequence=other.broker.hearing._ear._sequence + 1,
        changes=[request.NodeChange(path=path, data=b"")],
    )
    cluster.send(other.id, stranger)
    cluster.run(1_000)
    cluster.reports.clear()
    cluster.create("a")
    cluster.create("b")
    cluster.agree()
    cluster.check()
