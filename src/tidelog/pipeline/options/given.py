"""Options as Spark hands them over: looked up without regard to case, and refused where they cannot work.

Refused are encryption and authentication, which the client cannot do; names that Kafka's clients do not have, and all
but right ones; values that are not of an option's type; Kafka's names without `kafka.`; and names of ours, which begin
with `tidelog.`, that are not there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tidelog.pipeline.options.kafka_names import CLIENT_NAMES, CLIENT_NUMBERS, CLIENT_SWITCHES, PREFIX, SECURITY
from tidelog.pipeline.options.offsets_json import BadJson

T = TypeVar("T")

BOOTSTRAP: Final = "kafka.bootstrap.servers"
#: what options of our own begin with
OURS: Final = "tidelog."
#: where it is kept which writes were done, unless an option says otherwise
LEDGER_TOPIC: Final = "__tidelog_writes"
_UNIT_MS: Final = {
    "": 1, "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


class BadOption(ValueError):
    """An option has a value that cannot work; the message names it and says what would."""


class Given:
    """The options as they were given, looked up without regard to case."""

    def __init__(
        self,
        options: Mapping[str, str],
        known: tuple[str, ...],
        refused: Mapping[str, str],
    ) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._refuse_what_cannot_be_honoured(refused)
        self._refuse_misspellings(known)
        self._refuse_other_types()

    def _refuse_misspellings(self, names: tuple[str, ...]) -> None:
        """Names of Kafka's have to be some; others are ignored, as by the stock connector, unless all but right."""
        known = {name.lower(): name for name in (*names, *(PREFIX + name for name in CLIENT_NAMES))}
        for name in (name for name in self._options if name not in known):
            if f"{PREFIX}{name}" in known:
                raise BadOption(f"option {name} does nothing: write {PREFIX}{name}")
            if name.startswith(OURS):
                ours = [own for own in names if own.startswith(OURS)]
                said = f"those that begin with {OURS} are {', '.join(ours)}" if ours else f"none begins with {OURS}"
                raise BadOption(f"there is no option {name} here: {said}")
            kafkas = name.startswith(PREFIX)
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.6 if kafkas else 0.88)
            if kafkas or close:
                meant = f": did you mean {known[close[0]]}?" if close else ": Kafka's clients have none of that name"
                raise BadOption(f"there is no option {name!r}{meant}")

    def _refuse_other_types(self) -> None:
        """Where an option of Kafka's does nothing here, its value is still to be one that Kafka would take."""
        for name in self._options:
            if name.removeprefix(PREFIX) in CLIENT_NUMBERS:
                self.number(name, -1)
            elif name.removeprefix(PREFIX) in CLIENT_SWITCHES:
                self.switch(name, False)

    def _refuse_what_cannot_be_honoured(self, refused: Mapping[str, str]) -> None:
        for name, instead in refused.items():
            if name in self._options:
                raise BadOption(f"option {name} is not supported: {instead}")
        protocol = self._options.get("kafka.security.protocol", "PLAINTEXT").strip().upper()
        only = "this connects in PLAINTEXT only: give it a PLAINTEXT listener, or use format('kafka')"
        if protocol != "PLAINTEXT":
            raise BadOption(f"option kafka.security.protocol is {protocol}, and {only}")
        for name in self._options:
            if name.removeprefix(PREFIX).startswith(SECURITY) and name != "kafka.security.protocol":
                raise BadOption(f"option {name} is given, and {only}")

    def named(self, *names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name.lower() in self._options)

    def text(self, name: str) -> str | None:
        value = self._options.get(name.lower())
        return None if value is None else value.strip()

    def switch(self, name: str, default: bool) -> bool:
        return self.word(name, ("true", "false"), "true" if default else "false") == "true"

    def word(self, name: str, words: tuple[T, ...], default: T) -> T:
        value = self.text(name)
        if value is None:
            return default
        for word in words:
            if value.lower() == word:
                return word
        raise BadOption(f"option {name} is {value!r}: write {' or '.join(map(str, words))}")

    def number(self, name: str, least: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]+", value) or int(value) < least:
            raise BadOption(f"option {name} is {value!r}: write a whole number, {least} or more")
        return int(value)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.lower())
        if not found or found[2] not in _UNIT_MS:
            raise BadOption(f"option {name} is {value!r}: write a time such as 500ms, 30s, 15m or 1h")
        return int(int(found[1]) * _UNIT_MS[found[2]])

    def json(self, name: str, read: Callable[[str], T]) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return read(value)
        except BadJson as error:
            raise BadOption(f"option {name}: {error}") from None


def bootstrap_of(given: Given) -> str:
    bootstrap = given.text(BOOTSTRAP)
    if not bootstrap:
        raise BadOption(f"option {BOOTSTRAP} is missing: write host:port of a broker")
    return bootstrap
