"""The driver: order of plans, and what it does when the store says no, says nothing, or says that it is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from control_cluster import Cluster, FewRules, NoChance

from tidelog.control import nodes
from tidelog.control.configs import ConfigOp, IncrementalChange
from tidelog.control.controller import Controller, Registration
from tidelog.control.draft import Draft
from tidelog.control.driver import Driver
from tidelog.control.events import TopicCreated
from tidelog.control.image import NodeChange
from tidelog.control.nodes import Endpoint
from tidelog.control.topics import NewTopic, TopicRef
from tidelog.metadata.memory import MemoryEnsemble, MemoryStore
from tidelog.metadata.store import (
    ConnectionLoss,
    Create,
    Delete,
    Op,
    RefusedByEnsemble,
    SetData,
    StoreFailed,
    StoreRefusal,
    SubmitResult,
    TransactionTooLarge,
)
from tidelog.wire.errors import ErrorCode

HERE = Registration([Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092)])


class Flaky(MemoryStore):
    """Says what the test wants to the next submits; `lose_answer` applies the transaction first."""

    def __init__(self, ensemble: MemoryEnsemble, session_id: int) -> None:
        super().__init__(ensemble, session_id)
        self.refusals: list[StoreRefusal] = []
        self.lose_answer = False

    def submit(self, ops: Sequence[Op], done: Callable[[SubmitResult], None]) -> None:
        if self.lose_answer:
            self.lose_answer = False
            super().submit(ops, lambda result: done(ConnectionLoss("somewhere")))
        elif self.refusals:
            refusal = self.refusals.pop(0)
            self._answer(done, refusal)
        else:
            super().submit(ops, done)


class Broker:
    def __init__(self, ensemble: MemoryEnsemble, broker_id: int = 1) -> None:
        self.store = Flaky(ensemble, 100 + broker_id)
        ensemble._sessions[self.store.session_id] = self.store
        self.controller = Controller(broker_id, FewRules(), NoChance(), lambda: b"0123456789abcdef")  # type: ignore[arg-type]
        self.log: list[Any] = []
        self.failures: list[StoreRefusal] = []
        self.driver = Driver(self.controller, self.store, lambda: 0, self.log.extend, self.failures.append)

    def start(self) -> int:
        answers: list[Any] = []
        self.driver.start(HERE, answers.append)
        return int(answers[0].code)

    def create(self, *names: str) -> None:
        for name in names:
            topics = [NewTopic(name, 1, 1)]
            self.driver.request(lambda topics=topics: self.controller.create_topics(topics), self.log.append)

    def codes(self) -> list[int]:
        return [result.error.code for entry in self.log if isinstance(entry, list) for result in entry]


def started() -> tuple[MemoryEnsemble, Broker]:
    ensemble = MemoryEnsemble()
    broker = Broker(ensemble)
    assert broker.start() == ErrorCode.NONE
    broker.log.clear()
    return ensemble, broker


def test_events_come_before_the_reply_and_plans_one_after_the_other() -> None:
    _, broker = started()
    order: list[str] = []
    decide = broker.controller.create_topics

    def reply(name: str) -> Callable[[Any], None]:
        def done(result: Any) -> None:
            order.append(f"{name} answered {result[0].error.code}")
            if name == "a":
                broker.driver.request(lambda: decide([NewTopic("late")]), reply("late"))

        return done

    broker.driver._on_events = lambda events: order.extend(
        f"{event.topic.name} created" for event in events if isinstance(event, TopicCreated)
    )
    broker.driver.request(lambda: decide([NewTopic("a")]), reply("a"))
    broker.driver.request(lambda: decide([NewTopic("a")]), reply("a again"))
    assert order == [
        "a created",
        "a answered 0",
        "late created",
        "late answered 0",
        f"a again answered {ErrorCode.TOPIC_ALREADY_EXISTS}",
    ]


def test_a_caller_that_raises_does_not_stop_the_queue() -> None:
    _, broker = started()

    def fail(result: object) -> None:
        raise LookupError("of the caller")

    with pytest.raises(LookupError):
        broker.driver.request(lambda: broker.controller.create_topics([NewTopic("a")]), fail)
    broker.create("b")
    assert broker.codes() == [ErrorCode.NONE]


def test_a_plan_that_cannot_be_made_does_not_stop_the_queue() -> None:
    _, broker = started()

    def fail() -> Any:
        raise AssertionError("an invariant does not hold")

    with pytest.raises(AssertionError):
        broker.driver.request(fail, broker.log.append)
    broker.create("b")
    assert broker.codes() == [ErrorCode.NONE]


def test_no_state_is_written_whose_epochs_fall_or_whose_leader_is_not_in_sync() -> None:
    _, broker = started()
    broker.create("a")
    image = broker.controller.image
    (partition,) = image.topics["a"].partitions
    for broken in (
        partition._replace(leader_epoch=partition.leader_epoch - 1),
        partition._replace(partition_epoch=partition.partition_epoch - 1),
        partition._replace(isr=(2,), leader=2),
        partition._replace(isr=(), leader=1),
        partition._replace(controller_epoch=image.controller_epoch + 1),
    ):
        draft = Draft(image)
        draft.change(broken)
        with pytest.raises(AssertionError):
            draft.finish()


def test_a_long_queue_does_not_grow_the_stack() -> None:
    _, broker = started()
    broker.driver._steps.is_busy = True
    for i in range(3000):
        broker.create(f"t{i}")
    broker.driver._next()
    assert len(broker.controller.image.topics) == 3000


def test_a_request_is_planned_again_when_someone_wrote_past_the_controller() -> None:
    ensemble, broker = started()
    broker.create("a")
    other = ensemble.connect()
    # The topic's configuration changes behind the controller's back.
    other.submit(
        [SetData(nodes.config_path("topics", "a"), nodes.encode_config({"retention.ms": "1"}))], lambda r: None
    )
    change = [IncrementalChange(2, "a", [ConfigOp("cleanup.policy", 0, "compact")])]
    answers: list[Any] = []
    broker.driver.request(lambda: broker.controller.incremental_alter_configs(change), answers.append)
    assert answers[0][0].error.code == ErrorCode.NONE
    node = ensemble.tree.get(nodes.config_path("topics", "a"))
    assert node is not None
    assert nodes.decode_config(node.data) == {"retention.ms": "1", "cleanup.policy": "compact"}


def test_metadata_that_changes_again_and_again_ends_in_an_error() -> None:
    _, broker = started()
    broker.store.refusals = [StoreRefusal("/x", 1)] * 50
    broker.create("a")
    assert broker.codes() == [ErrorCode.UNKNOWN_SERVER_ERROR]
    broker.store.refusals = []
    broker.create("b")
    assert broker.codes() == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


@pytest.mark.parametrize("kind", [TransactionTooLarge, RefusedByEnsemble])
def test_what_the_store_will_never_take_is_refused_at_once_with_its_reason(kind: type[StoreRefusal]) -> None:
    _, broker = started()
    broker.store.refusals = [kind("2000000 bytes"), StoreFailed("must not be tried again")]
    broker.create("a")
    assert broker.codes() == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "2000000 bytes" in broker.log[-1][0].error.message
    assert broker.store.refusals == [StoreFailed("must not be tried again")]


@pytest.mark.parametrize("kind", [TransactionTooLarge, RefusedByEnsemble])
def test_work_that_the_store_will_never_take_keeps_nobody_waiting(kind: type[StoreRefusal]) -> None:
    ensemble, broker = started()
    broker.create("a")
    broker.store.refusals = [kind("2000000 bytes")] * 3
    ensemble.connect().submit([Create(nodes.delete_topic_path("a"))], lambda result: None)
    assert broker.store.refusals == [kind("2000000 bytes")] * 2
    broker.store.refusals = []
    broker.create("b")
    assert broker.codes()[-1] == ErrorCode.NONE
    assert "a" not in broker.controller.image.topics


def test_a_controller_that_was_replaced_changes_nothing_and_says_so() -> None:
    ensemble, broker = started()
    usurper = ensemble.connect()
    with ensemble.delayed():
        usurper.submit(
            [
                Delete(nodes.CONTROLLER),
                Create(nodes.CONTROLLER, nodes.encode_controller(9, 0), ephemeral=True),
                SetData(nodes.CONTROLLER_EPOCH, b"2"),
            ],
            lambda r: None,
        )
        assert broker.controller.is_active
        broker.create("a", "b")
    assert broker.codes() == [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER]
    assert ensemble.tree.get(nodes.topic_path("a")) is None
    assert not broker.controller.is_active
    # The usurper goes: the first one is elected again, in a higher epoch.
    ensemble.expire(usurper)
    assert broker.controller.is_active
    assert broker.controller.image.controller_epoch == 3
    broker.create("c")
    assert broker.codes()[-1] == ErrorCode.NONE


def test_a_broker_that_is_not_the_controller_refuses_requests() -> None:
    ensemble, _ = started()
    other = Broker(ensemble, 2)
    assert other.start() == ErrorCode.NONE
    other.create("a")
    assert other.codes() == [ErrorCode.NOT_CONTROLLER]


def test_a_second_broker_with_the_same_id_is_refused() -> None:
    ensemble, _ = started()
    twin = Broker(ensemble, 2)
    twin.controller.broker_id = 1
    assert twin.start() == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert not twin.controller.is_active


def test_after_a_lost_answer_the_image_is_right_and_the_client_is_told_to_look() -> None:
    _, broker = started()
    broker.store.lose_answer = True
    broker.create("a")
    assert broker.codes() == [ErrorCode.REQUEST_TIMED_OUT]
    assert "a" in broker.controller.image.topics
    broker.create("a")
    assert broker.codes() == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_an_election_whose_answer_was_lost_is_recognised() -> None:
    broker = Broker(MemoryEnsemble())
    broker.store.lose_answer = True
    assert broker.start() == ErrorCode.NONE
    assert broker.controller.is_active
    assert broker.controller.image.controller_epoch == 1
    broker.create("a")
    assert broker.codes() == [ErrorCode.NONE]


def test_a_store_that_fails_is_reported_once_and_every_request_is_answered() -> None:
    _, broker = started()
    broker.store.refusals = [StoreFailed("disk full")] * 3
    broker.create("a", "b")
    assert broker.failures == [StoreFailed("disk full")]
    assert broker.codes() == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_CONTROLLER]
    assert not broker.controller.is_active


def test_a_session_that_expires_is_reported() -> None:
    ensemble, broker = started()
    ensemble.expire(broker.store)
    assert len(broker.failures) == 1
    assert not broker.controller.is_active


def test_what_was_said_in_a_session_that_is_over_is_not_heard_when_its_turn_comes() -> None:
    ensemble, elected = started()
    broker = Broker(ensemble, 2)
    assert broker.start() == ErrorCode.NONE
    held: list[Callable[[], None]] = []
    broker.driver._on_events = lambda events: held.append
    epoch, heard = elected.controller.image.controller_epoch, list[str]()

    def say(name: str, driver: Driver) -> None:
        data = nodes.encode_topic(nodes.TopicNode(name.encode() * 16, [(1,)], {}, {}))
        driver.hear(epoch, [NodeChange(nodes.topic_path("t"), data)], False, lambda: heard.append(name))

    say("a", broker.driver)
    say("b", broker.driver)
    ensemble.expire(broker.store)
    # Meanwhile the broker has joined again, and was told of what came later.
    say("c", Driver(broker.controller, ensemble.connect(), lambda: 0, lambda events: None))
    assert heard == ["c"]
    held.pop()()
    assert heard == ["c", "a", "b"] and not held
    assert broker.controller.image.topics["t"].topic_id == b"c" * 16


def test_a_topic_marked_for_deletion_by_hand_is_deleted() -> None:
    ensemble, broker = started()
    broker.create("a", "b")
    ensemble.connect().submit([Create(nodes.delete_topic_path("a"))], lambda r: None)
    assert set(broker.controller.image.topics) == {"b"}
    assert ensemble.tree.get(nodes.delete_topic_path("a")) is None
    assert ensemble.tree.get(nodes.config_path("topics", "a")) is None


def test_a_topic_made_by_hand_gets_its_leaders_when_a_controller_takes_over() -> None:
    cluster = Cluster()
    cluster.start(1)
    data = nodes.encode_topic(nodes.TopicNode(b"i" * 16, [(2, 1), (1, 2)], {}, {}))
    cluster.ensemble.connect().submit([Create(nodes.topic_path("a"), data)], lambda r: None)
    cluster.start(2)
    cluster.kill(1)
    states = [(p.leader, p.isr) for p in cluster.leader.image.topics["a"].partitions]
    assert states == [(2, (2,)), (2, (2,))]


def test_a_store_that_takes_few_operations_gets_big_topics_in_steps() -> None:
    cluster = Cluster(max_ops=10)
    cluster.start(1)
    cluster.ask(lambda c: c.create_topics([NewTopic("big", 100, 1)]))
    assert [p.leader for p in cluster.leader.image.topics["big"].partitions] == [1] * 100
    assert cluster.ask(lambda c: c.delete_topics([TopicRef("big")]))[0].error.code == ErrorCode.NONE
    assert cluster.leader.image.topics == {}
    assert cluster.ensemble.tree.children(nodes.TOPICS) == []
    assert cluster.ensemble.tree.children(nodes.DELETE_TOPICS) == []
