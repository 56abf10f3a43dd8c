"""What an image counts while it changes: leaders that were elected."""

from __future__ import annotations

from tidelog.control import nodes
from tidelog.control.image import Image, NodeChange
from tidelog.control.nodes import StateNode, TopicNode

PATH = nodes.state_path("t", 0)


def state(version: int, leader: int, *isr: int, recovering: bool = False) -> NodeChange:
    return NodeChange(PATH, nodes.encode_state(StateNode(leader, version, isr, 1, recovering)), version)


def image() -> Image:
    made = Image()
    topic = nodes.encode_topic(TopicNode(bytes(range(16)), [(1, 2, 3)], {}, {}))
    made.apply([NodeChange(nodes.topic_path("t"), topic, 0, 1, 1), state(0, 1, 1, 2)])
    return made


def test_a_leader_that_was_elected_is_counted_once_it_is_another() -> None:
    seen = image()
    assert (seen.elections, seen.unclean_elections) == (0, 0)
    for change in (state(1, 1, 1), state(2, 1, 1, 2), state(3, 2, 2), state(4, -1, 2), state(5, 2, 2)):
        seen.apply([change])
    assert (seen.elections, seen.unclean_elections) == (2, 0)


def test_a_leader_that_was_not_in_sync_is_counted_as_unclean() -> None:
    seen = image()
    seen.apply([state(1, 3, 3, recovering=True)])
    assert (seen.elections, seen.unclean_elections) == (1, 1)
    # Away and back, before it has told that it has recovered: nothing more is lost.
    for change in (state(2, -1, 3, recovering=True), state(3, 3, 3, recovering=True), state(4, 3, 3)):
        seen.apply([change])
    assert (seen.elections, seen.unclean_elections) == (2, 1)


def test_a_leader_that_comes_into_sync_as_a_move_ends_is_no_unclean_one() -> None:
    seen = image()
    seen.apply([state(1, 3, 3, 2)])
    assert (seen.elections, seen.unclean_elections) == (1, 0)


def test_images_that_say_the_same_are_equal_whatever_happened_before() -> None:
    seen, fresh = image(), image()
    for change in (state(1, 2, 2), state(2, 1, 1)):
        seen.apply([change])
    fresh.apply([state(2, 1, 1)])
    assert seen == fresh and seen.elections != fresh.elections
