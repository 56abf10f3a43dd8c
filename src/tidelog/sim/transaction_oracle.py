"""What transactions promised, and whether it is kept, as readers of committed records see it.

atomic      of a transaction that was committed everything is seen, of any other nothing
once        what is made of one input record is seen once, however often it was begun anew
positions   a group's position in its input is the one that the last committed transaction carried
"""

from __future__ import annotations

from enum import Enum

from tidelog.sim.log_place import LogPlace
from tidelog.sim.violation import Violation


class Fate(Enum):
    #: nobody has asked to commit it
    OPEN = "open"
    #: somebody has, and was not told what became of it
    IN_DOUBT = "in doubt"
    COMMITTED = "committed"
    ABORTED = "aborted"


class SimulatedTransaction:
    """`carried` is the position that it moves a group to, where it does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fate = Fate.OPEN
        self.values: dict[bytes, LogPlace] = {}
        self.carried: int | None = None
        self.seen: set[bytes] = set()

    def __repr__(self) -> str:
        return f"transaction {self.name} ({self.fate.value})"

    def settle(self, fate: Fate) -> None:
        if self.fate in (Fate.COMMITTED, Fate.ABORTED) and self.fate is not fate:
            raise Violation("atomic", f"{self!r} is now said to be {fate.value}")
        self.fate = fate


class TransactionOracle:
    def __init__(self) -> None:
        self._of_value: dict[bytes, SimulatedTransaction] = {}
        self._all: list[SimulatedTransaction] = []
        #: per reader: partition -> offset -> value
        self._seen: dict[LogPlace, dict[int, bytes]] = {}
        self._offset_of: dict[bytes, int] = {}
        #: input record -> the value that was made of it, as seen
        self._made_of: dict[bytes, bytes] = {}
        #: (group, partition) -> the position of the last transaction that is known to be committed, and those in doubt
        self._settled: dict[tuple[str, LogPlace], int] = {}
        self._in_doubt: dict[tuple[str, LogPlace], list[SimulatedTransaction]] = {}

    def begin(self, name: str) -> SimulatedTransaction:
        transaction = SimulatedTransaction(name)
        self._all.append(transaction)
        return transaction

    def send(self, transaction: SimulatedTransaction, place: LogPlace, values: list[bytes]) -> None:
        for value in values:
            transaction.values[value] = place
            self._of_value[value] = transaction

    # --- records ------------------------------------------------------------------------------------------

    def see(self, place: LogPlace, offset: int, value: bytes) -> None:
        """A reader of committed records sees one."""
        transaction = self._of_value.get(value)
        if transaction is None:
            raise Violation("sent", f"{value!r} at offset {offset} of {place} was never sent")
        if transaction.fate in (Fate.OPEN, Fate.ABORTED):
            raise Violation("atomic", f"{value!r} of {transaction!r} is seen at offset {offset} of {place}")
        known = self._offset_of.setdefault(value, offset)
        if known != offset or transaction.values[value] != place:
            raise Violation("once", f"{value!r} is seen at offsets {known} and {offset} of {place}")
        transaction.seen.add(value)
        source = value.partition(b"<")[2]
        if source and self._made_of.setdefault(source, value) != value:
            raise Violation(
                "once", f"{value!r} and {self._made_of[source]!r} are made of one record, and both are seen"
            )

    # --- positions ----------------------------------------------------------------------------------------

    def carry(self, transaction: SimulatedTransaction, group: str, place: LogPlace, position: int) -> None:
        transaction.carried = position
        self._in_doubt.setdefault((group, place), []).append(transaction)

    def position(self, group: str, place: LogPlace, told: int) -> int:
        """A group is told its position, when every transaction before has ended; returns it."""
        key = group, place
        settled, in_doubt = self._settled.get(key, 0), []
        for transaction in self._in_doubt.pop(key, []):
            assert transaction.carried is not None
            if transaction.fate is Fate.COMMITTED:
                settled = max(settled, transaction.carried)
            elif transaction.fate is Fate.IN_DOUBT and transaction.carried == told:
                in_doubt.append(transaction)
        if told > settled and in_doubt:
            settled = told
            if len(in_doubt) == 1:
                in_doubt[0].settle(Fate.COMMITTED)
        self._settled[key] = settled
        if max(told, 0) != settled:
            raise Violation("positions", f"{group} is told {told} of {place}, where {settled} was committed")
        return settled

    def settled(self, group: str, place: LogPlace) -> int:
        """The position as it was last told."""
        return self._settled.get((group, place), 0)

    # --- the end ------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """When everything was read."""
        for transaction in self._all:
            missing = transaction.values.keys() - transaction.seen
            if not missing or (len(missing) == len(transaction.values) and transaction.fate is not Fate.COMMITTED):
                continue
            value = min(missing)
            raise Violation("atomic", f"{value!r} of {transaction!r} is not seen in {transaction.values[value]}")

    def count(self, fate: Fate) -> int:
        return sum(transaction.fate is fate for transaction in self._all)
