"""What simulations have found, each as a small history of its own; docs/simulation.md tells of the seeds."""

from __future__ import annotations

import errno

from sim_kit import PositionKeeper, cluster_of, controller_of, create, leads, produce, replica

from tidelog.control.leadership import IsrChange
from tidelog.node.internal_topics import OFFSETS_TOPIC
from tidelog.node.unfit_replicas import UnfitReplicas
from tidelog.sim.world import SimulatedBroker
from tidelog.wire.batch import HEADER_SIZE
from tidelog.wire.errors import ErrorCode

#: in the first batch of a log
RECORDS_AT = HEADER_SIZE + 5


def test_a_process_does_not_lead_in_the_name_of_its_former_registration() -> None:
    world = cluster_of(3)
    leader = next(site for site in world.brokers.values() if site is not controller_of(world))
    create(world, "t", [leader.id, *(each for each in world.brokers if each != leader.id)])
    assert leads(leader) == ["t-0"]
    leader.kill()
    leader.start()
    world.run(4_000)
    # Its former session has not expired: the controller still speaks to the process that registered.
    assert leader.id in world.stored().brokers
    assert leads(leader) == []
    world.run_until(lambda: leader.is_ready)
    assert world.stored().partition("t", 0).leader != leader.id
    assert not world.unforeseen


def test_a_broker_whose_session_ends_while_it_starts_says_so_and_stops() -> None:
    world = cluster_of(3)
    others = [site for site in world.brokers.values() if site is not controller_of(world)]
    starting = others[0]
    starting.stop()
    world.run_until(lambda: starting.process is None)
    # It registers, and does not hear the controller.
    world.network.cut(controller_of(world).machine, starting.machine)
    starting.start()
    world.run_until(lambda: starting.id in world.stored().brokers)
    world.run(100)
    assert starting.store is not None
    world.ensemble.expire(starting.store)
    world.run(100)
    assert [reason for reason in starting.failures if "while this broker was starting" in reason]
    world.network.mend(controller_of(world).machine, starting.machine)
    world.run_until(lambda: starting.is_ready)


def test_a_follower_hears_of_a_high_watermark_that_it_was_told_in_an_answer_from_another_epoch() -> None:
    world = cluster_of(3)
    controller = controller_of(world)
    leader, follower = (site for site in world.brokers.values() if site is not controller)
    create(world, "t", [leader.id, follower.id])
    # What stays as it is keeps the session between the two.
    create(world, "u", [leader.id, follower.id])
    world.run(1_000)
    produce(world, leader.id, "t", [b"x"])
    world.run_until(lambda: replica(leader, "t").high_watermark == 1)
    assert replica(follower, "t").high_watermark == 0
    # The answer that tells of it is on its way when the leader's epoch changes.
    world.network.cut(leader.machine, follower.machine)
    world.run(50)
    assert controller.broker is not None and leader.broker is not None
    epoch = leader.broker.cluster.broker_epoch
    world.network.cut(controller.machine, follower.machine)
    controller.broker.cluster.decide(lambda plans: plans.renew_leadership(leader.id, epoch), lambda error: None)
    world.run_until(lambda: replica(leader, "t").leader_epoch == 1)
    world.network.mend(controller.machine, follower.machine)
    world.run_until(lambda: replica(follower, "t").leader_epoch == 1)
    world.run(50)
    world.network.mend(leader.machine, follower.machine)
    world.run(5_000)
    assert replica(follower, "t").high_watermark == 1
    assert not world.unforeseen


def test_a_controller_that_lost_records_does_not_lead_by_what_was_decided_before_it_registered_again() -> None:
    world = cluster_of(3)
    leader = controller_of(world)
    create(world, "t", [leader.id, *(each for each in world.brokers if each != leader.id)])
    produce(world, leader.id, "t", [b"x"])
    world.run_until(lambda: all(replica(site, "t").high_watermark == 1 for site in world.brokers.values()))
    # Its place and its registration go at the same moment, when it runs again and its disk is empty.
    leader.lose_disk()
    leader.start()
    led = []
    world.run_until(lambda: led.extend(leads(leader)) or leader.is_ready)  # type: ignore[func-returns-value]
    assert led == []
    world.run_until(lambda: replica(leader, "t").high_watermark == 1)
    assert not world.unforeseen


def test_a_broker_starts_though_a_log_directory_cannot_be_read_at_first() -> None:
    world = cluster_of(3)
    site = world.brokers[0]
    site.kill()
    site.disk.fail("pread", errno.EIO)
    site.start()
    world.run_until(lambda: site.is_ready)
    assert not world.unforeseen


def test_a_coordinator_whose_log_is_damaged_leaves_it_to_a_replica_that_has_everything() -> None:
    world = cluster_of(3, offsets_topic_num_partitions="1")
    create(world, "t", [0, 1, 2])
    positions = PositionKeeper(world)
    positions.commit("g", "t", 7)
    positions.commit("h", "t", 1)
    state = world.stored().partition(OFFSETS_TOPIC, 0)
    assert state is not None
    leader = world.brokers[state.leader]
    world.run_until(lambda: all(replica(site, OFFSETS_TOPIC).high_watermark > 1 for site in world.brokers.values()))
    # A clean stop: nobody looks at what was written before the last batch.
    leader.stop()
    world.run_until(lambda: leader.process is None)
    (path,) = (path for path in leader.disk.paths(".log") if OFFSETS_TOPIC in path)
    leader.disk.flip(path, RECORDS_AT, 0)
    leader.start()
    world.run_until(lambda: leader.id in world.stored().partition(OFFSETS_TOPIC, 0).isr)
    assert controller_of(world).broker is not None
    controller_of(world).broker.cluster.decide(
        lambda controller: controller.elect_leaders(0, [(OFFSETS_TOPIC, 0)]), lambda results: None
    )
    world.run_until(lambda: any("another replica is to lead it" in each.what for each in world.trace.happenings))
    assert positions.position("g", "t") == 7
    assert not world.unforeseen


def test_a_follower_takes_nothing_damaged_and_says_once_whose_copy_it_is() -> None:
    world = cluster_of(3, min_insync_replicas="1")
    leader, follower = world.brokers[0], world.brokers[1]
    create(world, "t", [leader.id, follower.id])
    follower.stop()
    world.run_until(lambda: follower.process is None)
    produce(world, leader.id, "t", [b"x"])
    world.run_until(lambda: replica(leader, "t").log.log_end_offset == 1)
    (path,) = leader.disk.paths("t-0/00000000000000000000.log")
    leader.disk.flip(path, RECORDS_AT, 0)
    follower.start()
    world.run_until(lambda: follower.is_ready)
    world.run(5_000)
    assert replica(follower, "t").log.log_end_offset == 0
    assert len([each for each in world.trace.happenings if "whose copy is damaged" in each.what]) == 1
    assert not world.unforeseen


def test_a_preferred_election_does_not_make_a_leader_of_a_broker_that_lost_its_disk() -> None:
    world = cluster_of(3, min_insync_replicas="1")
    controller = controller_of(world)
    leader, follower = (site for site in world.brokers.values() if site is not controller)
    create(world, "t", [leader.id, follower.id])
    produce(world, leader.id, "t", [b"x"])
    world.run_until(lambda: replica(follower, "t").high_watermark == 1)
    # The ISR is left to the one whose disk is lost then.
    follower.stop()
    world.run_until(lambda: follower.process is None)
    leader.lose_disk()
    leader.start()
    follower.start()
    world.run_until(lambda: leader.is_ready and follower.is_ready)
    world.run(1_000)
    assert world.stored().partition("t", 0).leader == -1
    assert elect(controller, 0, "t") == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.run(1_000)
    assert world.stored().partition("t", 0).leader == -1
    # An operator who allows for losses gets whatever there is.
    elect(controller, 1, "t")
    world.run_until(lambda: leads(follower) == ["t-0"])
    assert replica(follower, "t").log.log_end_offset == 1
    assert not world.unforeseen


def test_a_broker_tells_of_unfit_logs_in_an_order_that_is_not_left_to_hashing() -> None:
    world = cluster_of(3)
    topics = [f"t{n}" for n in range(8)]
    for topic in topics:
        create(world, topic, [0, 1, 2])
    broker = world.brokers[0].broker
    assert broker is not None
    world.run_until(lambda: {(topic, 0) for topic in topics} <= broker.data.replicas.partitions.keys())
    told: list[IsrChange] = []
    unfit = UnfitReplicas(broker.cluster, broker.data, lambda changes, done: told.extend(changes), broker.host)
    for topic in topics:
        log = replica(world.brokers[0], topic).log
        broker.data.logs.mark_incomplete(log, True)
        unfit.doubt(log.key)
    world.run(10)
    assert [broker.cluster.image.topic_names[change.topic_id] for change in told] == topics


def elect(controller: SimulatedBroker, kind: int, topic: str) -> ErrorCode:
    told: list[ErrorCode] = []
    assert controller.broker is not None
    controller.broker.cluster.decide(
        lambda plans: plans.elect_leaders(kind, [(topic, 0)]), lambda results: told.append(results[0].error.code)
    )
    while not told:
        controller.world.step(controller.world.time.now_ms + 1_000)
    return told[0]
