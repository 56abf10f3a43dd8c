"""A store that brokers share: what the controller does otherwise there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from control_cluster import Cluster, run_line

from tidelog.control.topics import NewTopic
from tidelog.metadata.store import Op, SubmitResult


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
    store = cluster.stores[cluster.leader.broker_id]
    submit = store.submit

    def counting(ops: Sequence[Op], done: Callable[[SubmitResult], None]) -> None:
        sizes.append(len(ops))
        submit(ops, done)

    store.submit = counting  # type: ignore[method-assign]
    reply = cluster.ask(lambda c: c.controlled_shutdown(1, -1))
    assert not reply.error.is_failure and not reply.remaining
    assert {p.leader for p in cluster.leader.image.topics["t"].partitions} == {2}
    assert max(sizes) <= 11 and sum(sizes) == 110
    assert cluster.leader.image == cluster.fresh_image()
