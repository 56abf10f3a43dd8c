"""The one-broker path as a broker runs it: the embedded store on disk, a controller, a restart."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from control_cluster import FewRules

from tidelog.control.configs import ConfigOp, IncrementalChange, OpType
from tidelog.control.controller import Controller, Registration
from tidelog.control.driver import Driver
from tidelog.control.events import Event, TopicCreated
from tidelog.control.nodes import Endpoint
from tidelog.control.topics import NewPartitions, NewTopic, TopicRef
from tidelog.metadata.embedded import EmbeddedStore
from tidelog.wire.errors import ErrorCode


class Broker:
    def __init__(self, directory: Path) -> None:
        self.store = EmbeddedStore(str(directory))
        self.random = Random(7)
        self.controller = Controller(0, FewRules(), self.random, lambda: self.random.randbytes(16))  # type: ignore[arg-type]
        self.events: list[Event] = []
        self.driver = Driver(self.controller, self.store, lambda: 0, self.events.extend)
        answers: list[Any] = []
        self.driver.start(Registration([Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092)]), answers.append)
        assert answers[0].code == ErrorCode.NONE
        assert self.controller.is_active

    def ask(self, decide: Any) -> Any:
        answers: list[Any] = []
        self.driver.request(lambda: decide(self.controller), answers.append)
        return answers[0]

    def stop(self) -> None:
        self.driver.close()
        self.store.close()


def test_topics_configurations_and_ids_survive_a_restart(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    first = broker.controller.image
    broker.ask(lambda c: c.create_topics([NewTopic("a", 3), NewTopic("gone"), NewTopic("b", 2)]))
    broker.ask(lambda c: c.create_partitions([NewPartitions("a", 5)]))
    broker.ask(lambda c: c.delete_topics([TopicRef("gone")]))
    broker.ask(
        lambda c: c.incremental_alter_configs(
            [
                IncrementalChange(2, "a", [ConfigOp("retention.ms", OpType.SET, "5")]),
                IncrementalChange(4, "", [ConfigOp("retention.ms", OpType.SET, "6")]),
                IncrementalChange(32, "my/group", [ConfigOp("retention.ms", OpType.SET, "7")]),
            ]
        )
    )
    assert broker.ask(lambda c: c.allocate_producer_ids(0, -1)).first == 0
    broker.stop()

    broker = Broker(tmp_path)
    second = broker.controller.image
    assert (second.topics, second.configs, second.cluster_id) == (first.topics, first.configs, first.cluster_id)
    assert second.controller_epoch == first.controller_epoch + 1
    assert second.brokers[0].epoch > first.brokers[0].epoch
    assert {e.topic.name for e in broker.events if isinstance(e, TopicCreated)} == {"a", "b"}
    assert [p.leader_epoch for p in second.topics["a"].partitions] == [0] * 5
    assert broker.ask(lambda c: c.allocate_producer_ids(0, -1)).first == 1000
    assert broker.ask(lambda c: c.renew_leadership(0, second.brokers[0].epoch)).code == ErrorCode.NONE
    broker.stop()
    assert [p.leader_epoch for p in Broker(tmp_path).controller.image.topics["a"].partitions] == [1] * 5


def test_a_restart_without_changes_writes_one_frame(tmp_path: Path) -> None:
    """Starting is one transaction, whatever the broker holds: it costs one sync."""
    broker = Broker(tmp_path)
    broker.ask(lambda c: c.create_topics([NewTopic("a", 50)]))
    broker.stop()
    journal = tmp_path / "tidelog-metadata.journal"
    before = journal.read_bytes().count(b"tiDe")
    Broker(tmp_path).stop()
    assert journal.read_bytes().count(b"tiDe") == before + 1
