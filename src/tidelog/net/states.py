"""The states of a connection and the events that lead from one to the next. Nothing here does any I/O.

    READING               no whole request is waiting; what arrives is dispatched
    PAUSED                a whole request is waiting because it may not be dispatched yet: an earlier request has to be
                          answered first, the connection is muted, or one of its limits is reached
    RESUMING              whole requests are waiting for the loop's next turn
    WAITING_FOR_MEMORY    the beginning of a large request is here; the rest is not read until it is admitted
    PAUSED_AT_END         as PAUSED, and the peer has stopped sending
    RESUMING_AT_END       as RESUMING, and the peer has stopped sending
    HALF_CLOSED           the peer has stopped sending and every whole request was dispatched
    DRAINING              nothing more is read or dispatched; requests under way are still answered
    HANGING_UP            nothing more is read or dispatched; only what is ready is still sent
    CLOSED                the end

`TRANSITIONS` is the whole of it. An event that a state does not list cannot happen there, and `next_state` raises an
AssertionError if it does.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    READING = 0
    PAUSED = 1
    RESUMING = 2
    WAITING_FOR_MEMORY = 3
    PAUSED_AT_END = 4
    RESUMING_AT_END = 5
    HALF_CLOSED = 6
    DRAINING = 7
    HANGING_UP = 8
    CLOSED = 9


class Event(IntEnum):
    #: every whole request was dispatched
    CAUGHT_UP = 0
    #: the next whole request may not be dispatched yet
    BLOCKED = 1
    #: this connection has had its share of the loop's turn, and a whole request is left
    TURN_USED_UP = 2
    #: what blocked the next request is over
    UNBLOCKED = 3
    #: a large request must wait to be admitted
    MEMORY_REFUSED = 4
    #: the large request that waited is admitted
    MEMORY_GRANTED = 5
    #: the peer has sent all that it will send
    INPUT_ENDED = 6
    #: the server is draining
    DRAIN = 7
    #: a request was answered by closing, or what the peer sent cannot be a request
    HANG_UP = 8
    #: the end, for whatever reason
    CLOSE = 9


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.READING: {
        Event.CAUGHT_UP: State.READING,
        Event.BLOCKED: State.PAUSED,
        Event.TURN_USED_UP: State.RESUMING,
        Event.MEMORY_REFUSED: State.WAITING_FOR_MEMORY,
        Event.INPUT_ENDED: State.HALF_CLOSED,
        Event.DRAIN: State.DRAINING,
        Event.HANG_UP: State.HANGING_UP,
        Event.CLOSE: State.CLOSED,
    },
    State.PAUSED: {
        Event.CAUGHT_UP: State.READING,
        Event.BLOCKED: State.PAUSED,
        Event.TURN_USED_UP: State.RESUMING,
        Event.UNBLOCKED: State.RESUMING,
        Event.INPUT_ENDED: State.PAUSED_AT_END,
        Event.DRAIN: State.DRAINING,
        Event.HANG_UP: State.HANGING_UP,
        Event.CLOSE: State.CLOSED,
    },
    State.RESUMING: {
        Event.CAUGHT_UP: State.READING,
        Event.BLOCKED: State.PAUSED,
        Event.TURN_USED_UP: State.RESUMING,
        Event.DRAIN: State.DRAINING,
        Event.HANG_UP: State.HANGING_UP,
        Event.CLOSE: State.CLOSED,
    },
    State.WAITING_FOR_MEMORY: {
        Event.MEMORY_GRANTED: State.READING,
        Event.DRAIN: State.DRAINING,
        Event.HANG_UP: State.HANGING_UP,
        Event.CLOSE: State.CLOSED,
    },
    State.PAUSED_AT_END: {
        Event.UNBLOCKED: State.RESUMING_AT_END,
        Event.DRAIN: State.DRAINING,
        Event.HANG_UP: State.HANGING_UP,
        Event.CLOSE: State.CLOSED,
    },
    State.RESUMING_AT_END: {
        Event.CAUGHT_UP: State.HALF_CLOSED,
        Event.BLOCKED: State.PAUSED_AT_END,
        Event.TURN_USED_UP: State.RESUMING_AT_END,
        Event.DRAIN: State.DRAINING,
        Event.HANG_UP: State.HANGING_UP,
        Event.CLOSE: State.CLOSED,
    },
    State.HALF_CLOSED: {
        Event.DRAIN: State.HALF_CLOSED,  # it ends as soon as it has sent everything, draining or not
        Event.CLOSE: State.CLOSED,
    },
    State.DRAINING: {
        Event.MEMORY_GRANTED: State.DRAINING,  # too late: it is given back
        Event.DRAIN: State.DRAINING,
        Event.HANG_UP: State.HANGING_UP,
        Event.CLOSE: State.CLOSED,
    },
    State.HANGING_UP: {
        Event.MEMORY_GRANTED: State.HANGING_UP,
        Event.DRAIN: State.HANGING_UP,
        Event.CLOSE: State.CLOSED,
    },
    State.CLOSED: {
        Event.MEMORY_GRANTED: State.CLOSED,
        Event.DRAIN: State.CLOSED,
        Event.CLOSE: State.CLOSED,
    },
}

#: in these the connection takes what the peer sends
TAKES_INPUT: Final = frozenset((State.READING, State.PAUSED, State.RESUMING))
#: in these a whole request waits for what blocks it
IS_PAUSED: Final = frozenset((State.PAUSED, State.PAUSED_AT_END))
#: in these a whole request waits for the next turn
IS_RESUMING: Final = frozenset((State.RESUMING, State.RESUMING_AT_END))


def next_state(state: State, event: Event) -> State:
    following = TRANSITIONS[state].get(event)
    if following is None:
        raise AssertionError(f"{event.name} cannot happen to a connection that is {state.name}")
    return following
