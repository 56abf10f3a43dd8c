"""Topic subscriptions by regular expression, as RE2 understands them and in RE2's time.

Kafka matches with RE2/J. Two things follow: expressions with backreferences or lookaround are refused, and a match
takes time linear in the topic name, whatever a client sends. Python's own engine backtracks, and an expression such as
`(a*)*b` or `.*.*.*.*.*x` would stop the broker's only thread; so this module parses RE2's syntax (`regex_syntax`),
builds a Thompson automaton and walks it as a DFA whose states are made when first reached.

Only the question "does it match the whole name" is asked, so greediness and captures have no meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from tidelog.deciding.turn import Refusal
from tidelog.group.regex_syntax import Alternatives, AnyOf, At, Node, Repeat, Sequence, SyntaxProblem, is_word, parse
from tidelog.wire.errors import ErrorCode

# Everybody waits while an expression is read and matched. Long lists of names fit into these bounds, and so do counted
# repeats that do not multiply: (x{100}){100} has ten thousand states, and is not a topic filter.
_MAX_LENGTH = 8_192
_MAX_STATES = 8_192
# Of all states together: those that can be entered from there without reading a character, as in (a?b?c?){1000}.
_MAX_REACHED = 100_000
_MAX_CACHED = 4_096
_MAX_CACHED_PLACES = 100_000


def check(expression: str) -> None:
    """Raises Refusal where RE2 would not accept the expression."""
    compiled(expression)


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    automaton = compiled(expression)
    return frozenset(name for name in names if automaton.matches(name))


def pattern(expression: str) -> Callable[[str], bool]:
    """A test for whole names from a regular expression in RE2's syntax; ValueError where it is none."""
    try:
        automaton = compiled(expression)
    except Refusal as refusal:
        raise ValueError(str(refusal)) from None
    return automaton.matches


@lru_cache(maxsize=256)
def compiled(expression: str) -> Automaton:
    if len(expression) > _MAX_LENGTH:
        message = f"SubscribedTopicRegex has {len(expression)} characters, and more than {_MAX_LENGTH} are not matched."
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
    try:
        return Automaton(parse(expression))
    except SyntaxProblem as problem:
        message = f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {problem}."
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


class _State(NamedTuple):
    """A state of the DFA: where the automaton may be, and what stands before the next character."""

    places: frozenset[int]
    at_start: bool
    after_word: bool


class Automaton:
    """States are numbers: 0 accepts; each other one reads a character, tests a position, or forks."""

    __slots__ = ("_cached_places", "_forks", "_reads", "_start", "_steps", "_tests")

    def __init__(self, tree: Node) -> None:
        self._reads: dict[int, tuple[AnyOf, int]] = {}
        self._tests: dict[int, tuple[str, int]] = {}
        self._forks: dict[int, tuple[int, ...]] = {}
        self._steps: dict[tuple[_State, str], _State] = {}
        self._cached_places = 0
        self._start = _State(frozenset({self._build(tree, 0)}), True, False)
        self._check_reach()

    def _check_reach(self) -> None:
        """Refuses what would be in many states at once: each character costs a look at all of them."""
        left = _MAX_REACHED
        for place in {*self._start.places, *(then for _, then in self._reads.values())}:
            left -= len(self._reached(_State(frozenset((place,)), True, False), at_end=True, boundary=True, most=left))
            if left < 0:
                raise SyntaxProblem("expression too large")

    def _size(self) -> int:
        return len(self._reads) + len(self._tests) + len(self._forks) + 1

    def _build(self, node: Node, then: int) -> int:
        """The state from which `node` is read and `then` is reached."""
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                then = self._build(part, then)
            return then
        if isinstance(node, Repeat):
            return self._build_repeat(node, then)
        here = self._size()
        if here > _MAX_STATES:
            raise SyntaxProblem("expression too large")
        if isinstance(node, Alternatives):
            self._forks[here] = ()
            self._forks[here] = tuple(self._build(option, then) for option in node.options)
        elif isinstance(node, At):
            self._tests[here] = (node.where, then)
        else:
            self._reads[here] = (node, then)
        return here

    def _build_repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._size()
            self._forks[loop] = ()
            self._forks[loop] = (self._build(node.body, loop), then)
            after = loop
        else:
            after = then
            for _ in range(node.most - node.least):
                body = self._build(node.body, after)
                after = self._size()
                self._forks[after] = (body, then)
        for _ in range(node.least):
            after = self._build(node.body, after)
        return after

    def matches(self, text: str) -> bool:
        state = self._start
        for char in text:
            key = (state, char)
            following = self._steps.get(key)
            if following is None:
                following = self._step(state, char)
            state = following
            if not state.places:
                return False
        return 0 in self._reached(state, at_end=True, boundary=state.after_word)

    def _step(self, state: _State, char: str) -> _State:
        word = is_word(char)
        reached = self._reached(state, at_end=False, boundary=state.after_word != word)
        places = {then for any_of, then in map(self._reads.get, reached & self._reads.keys()) if any_of.has(char)}  # type: ignore[misc]
        self._cached_places += len(places)
        if len(self._steps) >= _MAX_CACHED or self._cached_places > _MAX_CACHED_PLACES:
            self._steps.clear()
            self._cached_places = len(places)
        following = self._steps[state, char] = _State(frozenset(places), False, word)
        return following

    def _reached(self, state: _State, *, at_end: bool, boundary: bool, most: int = _MAX_STATES) -> set[int]:
        """All states that can be entered without reading a character; no more than one beyond `most` of them."""
        holds = {"start": state.at_start, "end": at_end, "boundary": boundary, "no boundary": not boundary}
        seen: set[int] = set()
        todo = list(state.places)
        while todo and len(seen) <= most:
            place = todo.pop()
            if place in seen:
                continue
            seen.add(place)
            if place in self._forks:
                todo.extend(self._forks[place])
            elif place in self._tests:
                where, then = self._tests[place]
                if holds[where]:
                    todo.append(then)
        return seen
