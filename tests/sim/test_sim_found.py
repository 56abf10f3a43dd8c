"""What simulations have found, each as a small history of its own; docs/simulation.md tells of the seeds."""

from __future__ import annotations

import errno

from sim_kit import cluster_of, controller_of, create, leads, produce, replica


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
