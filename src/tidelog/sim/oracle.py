"""What clients were promised, and whether it is kept: the judge of a simulation, which sees what clients see.

acknowledged   what was acknowledged is there, at the offset that was told
once           no record is there twice
sent           what is there was sent
dense          offsets have no gaps
order          the records of one producer are in the order in which it sent them
agreement      all readers see the same record at the same offset
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidelog.sim.log_place import LogPlace
from tidelog.sim.transaction_oracle import TransactionOracle
from tidelog.sim.violation import Violation
from tidelog.sim.waiting_oracle import WaitingOracle

#: what is seen where a transaction ends
MARKER: Final = b""


class PlaceTruth:
    """What is known of one partition."""

    def __init__(self, place: LogPlace) -> None:
        self.place = place
        #: by value: everything that was ever sent there
        self.sent: set[bytes] = set()
        #: offset -> value, of what was acknowledged
        self.acknowledged: dict[int, bytes] = {}
        #: acknowledged as known already: the offset was not told
        self.acknowledged_somewhere: set[bytes] = set()
        #: offset -> value, as readers have seen it; the end of a transaction is MARKER
        self.seen: dict[int, bytes] = {}
        self.offset_of: dict[bytes, int] = {}
        #: the end of what was acknowledged
        self.acknowledged_end = 0
        #: below it records may have been deleted
        self.deletable_end = 0
        #: producers write to it themselves; what is delivered there has an order of its own
        self.is_in_order_of_producers = True

    def acknowledge(self, first_offset: int, values: list[bytes]) -> None:
        if first_offset < 0:
            self.acknowledged_somewhere.update(values)
            return
        for offset, value in enumerate(values, first_offset):
            known = self.acknowledged.setdefault(offset, value)
            if known != value:
                raise Violation(
                    "acknowledged", f"offset {offset} of {self.place} was given to {known!r} and to {value!r}"
                )
            self._is_at(offset, value)
        self.acknowledged_end = max(self.acknowledged_end, first_offset + len(values))

    def see(self, offset: int, value: bytes) -> None:
        known = self.seen.setdefault(offset, value)
        if known != value:
            raise Violation("agreement", f"offset {offset} of {self.place} was read as {known!r} and as {value!r}")
        if value not in self.sent:
            raise Violation("sent", f"{value!r} at offset {offset} of {self.place} was never sent")
        promised = self.acknowledged.get(offset, value)
        if promised != value:
            raise Violation(
                "acknowledged", f"{promised!r} was acknowledged at offset {offset} of {self.place}, where {value!r} is"
            )
        self._is_at(offset, value)

    def see_marker(self, offset: int) -> None:
        known = self.seen.setdefault(offset, MARKER)
        if known != MARKER:
            raise Violation("agreement", f"offset {offset} of {self.place} was read as {known!r} and as a marker")

    def _is_at(self, offset: int, value: bytes) -> None:
        known = self.offset_of.setdefault(value, offset)
        if known != offset:
            raise Violation("once", f"{value!r} is at offsets {known} and {offset} of {self.place}")

    def judge(self) -> None:
        """At the end, when everything was read."""
        for offset, value in self.acknowledged.items():
            if self.seen.get(offset) != value:
                found = self.seen.get(offset)
                raise Violation(
                    "acknowledged",
                    f"{value!r} was acknowledged at offset {offset} of {self.place}, where {found!r} is",
                )
        for value in self.acknowledged_somewhere:
            if value not in self.offset_of:
                raise Violation("acknowledged", f"{value!r} was acknowledged in {self.place}, and is nowhere")
        numbers: dict[bytes, int] = {}
        for at, offset in enumerate(sorted(self.seen)):
            if at != offset:
                raise Violation("dense", f"there is no offset {at} in {self.place}, but an offset {offset}")
            if self.seen[offset] == MARKER or not self.is_in_order_of_producers:
                continue
            producer, _, rest = self.seen[offset].partition(b":")
            number = int(rest.partition(b"<")[0])
            if number <= numbers.get(producer, -1):
                raise Violation("order", f"{self.seen[offset]!r} is behind number {numbers[producer]} in {self.place}")
            numbers[producer] = number


class Oracle:
    def __init__(self) -> None:
        self.places: dict[LogPlace, PlaceTruth] = {}
        #: (group, partition) -> the highest position of which a commit was acknowledged
        self.committed: dict[tuple[str, LogPlace], int] = {}
        self.transactions = TransactionOracle()
        self.waiting = WaitingOracle()
        #: (topic, setting) -> the values that it may have; None: it was perhaps never set
        self.settings: dict[tuple[str, str], set[str | None]] = {}
        #: operations of clients, by their name and how they ended
        self.operations: Counter[str] = Counter()
        #: what clients saw or did that nobody answers
        self.witnessed: Counter[str] = Counter()

    def __getitem__(self, place: LogPlace) -> PlaceTruth:
        found = self.places.get(place)
        if found is None:
            found = self.places[place] = PlaceTruth(place)
        return found

    def commit(self, group: str, place: LogPlace, offset: int) -> None:
        self.committed[group, place] = max(offset, self.committed.get((group, place), -1))

    def position(self, group: str, place: LogPlace, offset: int, least: int) -> None:
        """A group is told its position, having asked when `least` was acknowledged."""
        if offset < least:
            raise Violation("positions", f"{group} is told {offset} of {place}, though {least} was committed")

    def configure(self, topic: str, name: str, value: str, is_certain: bool) -> None:
        """Somebody has set it; what was not answered may still take effect at any time."""
        known = self.settings.get((topic, name))
        if is_certain and (known is None or len(known) == 1):
            self.settings[topic, name] = {value}
        else:
            self.settings[topic, name] = (known or {None}) | {value}

    def judge(self) -> None:
        for truth in self.places.values():
            truth.judge()
        self.transactions.judge()
        self.waiting.judge()
