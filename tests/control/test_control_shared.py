"""A store that brokers share: what the controller does otherwise there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from control_cluster import Cluster, run_line

from tidelog.control import nodes
from tidelog.control.leadership import IsrChange
from tidelog.control.parts import in_parts
from tidelog.control.plan import bytes_of
from tidelog.control.reassignment import WantedReassignment
from tidelog.control.topics import NewPartitions, NewTopic
from tidelog.metadata.store import Create, Delete, Op, SubmitResult
from tidelog.wire.errors import ErrorCode


def measure(cluster: Cluster, note: Callable[[Sequence[Op]], None]) -> None:
    """`note` gets every transaction that the controller submits from now on."""
    store = cluster.stores[cluster.leader.broker_id]
    submit = store.submit

    def noting(ops: Sequence[Op], done: Callable[[SubmitResult], None]) -> None:
        note(ops)
        submit(ops, done)

    store.submit = noting  # type: ignore[method-assign]


def test_a_sole_replica_that_came_back_unseen_leads_in_a_new_epoch_where_brokers_share_the_store() -> None:
    for is_shared, epochs in ((False, "0/0"), (True, "1/1")):
        cluster = Cluster()
        cluster.settings.renews_returned_leaders = is_shared
        cluster.start(1)
        cluster.start(2)
        run_line(cluster, "create t:[2]")
        run_line(cluster, "2 bounces")
        assert run_line(cluster, "show t") == [f"t-0: replicas 2 leader 2 isr 2 epochs {epochs}"]


def test_thousands_of_leaders_are_moved_in_transactions_that_the_store_takes() -> None:
    cluster = Cluster(max_ops=10)
    sizes: list[int] = []
    for broker in (1, 2):
        cluster.start(broker)
    cluster.ask(lambda c: c.create_topics([NewTopic("t", assignments=[(i, (1, 2)) for i in range(100)])]))
    measure(cluster, lambda ops: sizes.append(len(ops)))
    reply = cluster.ask(lambda c: c.controlled_shutdown(1, -1))
    assert not reply.error.is_failure and not reply.remaining
    assert {p.leader for p in cluster.leader.image.topics["t"].partitions} == {2}
    assert max(sizes) <= 11 and sum(sizes) == 110
    assert cluster.leader.image == cluster.fresh_image()


def test_no_transaction_is_larger_than_the_store_takes() -> None:
    cluster = Cluster()
    for broker in (1, 2):
        cluster.start(broker)
    cluster.settings.max_bytes = 12_000
    sizes: list[int] = []
    measure(cluster, lambda ops: sizes.append(sum(map(bytes_of, ops))))
    cluster.ask(lambda c: c.create_topics([NewTopic("t", assignments=[(i, (1,)) for i in range(300)])]))
    for name in "abcde":
        cluster.ask(lambda c, name=name: c.create_topics([NewTopic(name, assignments=[(i, (1,)) for i in range(300)])]))
    assert [p.leader for p in cluster.leader.image.topics["t"].partitions] == [1] * 300
    moves = [WantedReassignment(name, index, (2,)) for name in "abcde" for index in range(20)]
    cluster.ask(lambda c: c.alter_partition_reassignments(moves))
    for name in "abcde":
        topic = cluster.leader.image.topics[name]
        changes = [
            IsrChange(topic.topic_id, p.partition_index, p.leader_epoch, p.partition_epoch, [(1, -1), (2, -1)])
            for p in topic.partitions[:20]
        ]
        cluster.ask(lambda c, changes=changes: c.alter_partition(1, -1, changes))
        assert {p.replicas for p in cluster.leader.image.topics[name].partitions[:20]} == {(2,)}
    assert max(sizes) <= 12_000
    assert cluster.leader.image == cluster.fresh_image()


def test_a_topic_too_large_for_its_node_is_refused_before_anything_is_written() -> None:
    cluster = Cluster()
    for broker in (1, 2):
        cluster.start(broker)
    cluster.settings.max_bytes = 12_000
    (created,) = cluster.ask(lambda c: c.create_topics([NewTopic("big", 1_000, 2)]))
    assert created.error.code is ErrorCode.INVALID_PARTITIONS
    assert created.error.message is not None and "fewer partitions" in created.error.message
    assert cluster.ensemble.tree.children(nodes.TOPICS) == cluster.ensemble.tree.children(nodes.TOPIC_CONFIGS) == []
    cluster.ask(lambda c: c.create_topics([NewTopic("t", 500, 1)]))
    (grown,) = cluster.ask(lambda c: c.create_partitions([NewPartitions("t", 2_000)]))
    assert grown.error.code is ErrorCode.INVALID_PARTITIONS
    moves = [WantedReassignment("t", index, (1, 2)) for index in range(500)]
    moved = cluster.ask(lambda c: c.alter_partition_reassignments(moves))
    assert {result.error.code for result in moved} == {ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS}
    assert len(cluster.leader.image.topics["t"].partitions) == 500
    assert cluster.leader.image == cluster.fresh_image()


def test_a_node_that_asks_for_many_moves_is_followed_in_transactions_that_the_store_takes() -> None:
    cluster = Cluster()
    for broker in (1, 2):
        cluster.start(broker)
    cluster.ask(lambda c: c.create_topics([NewTopic("t", assignments=[(i, (1,)) for i in range(300)])]))
    cluster.settings.max_bytes = 20_000
    sizes: list[int] = []
    measure(cluster, lambda ops: sizes.append(sum(map(bytes_of, ops))))
    moves = [WantedReassignment("t", index, (2,)) for index in range(300)]
    asked = "/admin/reassign_partitions"
    cluster.ensemble.connect().submit([Create(asked)], lambda result: None)
    cluster.ask(lambda c: c.follow_reassignment(moves, Delete(asked)))
    assert all(p.adding == (2,) for p in cluster.leader.image.topics["t"].partitions)
    assert cluster.ensemble.tree.get(asked) is None
    assert len(sizes) > 3 and max(sizes) <= 20_000


def test_requests_with_much_to_write_are_decided_in_parts() -> None:
    assert in_parts([1, 2, 3], lambda item: item, lambda item: 300_000) == [[1], [2], [3]]
    assert in_parts([1, 2, 3], lambda item: item, lambda item: 150_000) == [[1, 2], [3]]
    assert in_parts([1, 1], lambda item: item, lambda item: 300_000) == [[1, 1]]
    assert in_parts([1, 2, 3], lambda item: item) == [[1, 2, 3]]
