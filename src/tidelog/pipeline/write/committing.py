"""Who commits: the tasks write in transactions and leave them open, the driver decides, and then ends them all.

    task      writes its rows in a transaction of its own, has them acknowledged, tells the driver which it is
    driver    1. finds that every transaction is still open, and will be for a while
              2. writes to the ledger that the batch consists of these (`decided`)
              3. commits them, all at once
              4. writes to the ledger that it has (`done`)
              5. aborts what is left of tasks that failed, were killed or came second; at its first commit also what
                 earlier drivers left

Step 2 is the commit. Before it nothing of the batch can be seen by a reader of committed records, and whoever runs the
batch again starts from nothing. After it the batch is never written again: who comes upon the entry finishes step 3,
as often as it takes, and drops what it has written itself. A reader may see some tasks' rows earlier than others'.

    what the driver finds for batch n            what it does with the transactions it was given
    nothing, or a batch before n                 decides them
    n is done                                    aborts them
    n is decided, and can be finished            finishes it, aborts them
    n is decided, but all of it was aborted      decides them in its place
    n is decided, and part of it was aborted     commits the same tasks' in place of those, if the others wrote the same
                                                 as before; stops otherwise (`Torn`)
    a batch after n                              stops: the checkpoint is older than what was written

Of two drivers of a writer the one that took over goes on: its entries say so, and the other one finds that out before
it decides anything. Processes that commit for the same run, one after the other, are one driver: who finds that another
of them has taken the ledger since takes it again, and goes on from what it finds there.

A decided transaction can be aborted by its timeout only, when the driver dies between steps 2 and 3 and nobody takes
its place in time. Whether it was is asked of its coordinator; where that cannot tell, nothing is assumed.

A writer without an identity has no ledger: its driver goes from step 1 to step 3, and nobody can finish what it leaves.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from tidelog.client.client import Client
from tidelog.client.errors import ClientError, Fenced, Refused, TimedOut, Unreachable
from tidelog.client.transactional import Prepared
from tidelog.client.transactions import DescribedTransaction
from tidelog.pipeline.options.given import LEDGER_TOPIC
from tidelog.pipeline.write.ledger import Hold, Ledger, LedgerEntry, Part

#: what failed tasks leave open is looked for at a commit that hears of one, and this often anyway
SWEEP_INTERVAL_S: Final = 5.0
#: a broker that does not answer keeps a commit waiting, and the next ones shall not wait as well
SWEEP_AGAIN_S: Final = 60.0
_ABORTED_STATES: Final = ("PrepareAbort", "PrepareEpochFence", "CompleteAbort")
#: an abort raises the epoch by one or two; a producer that took the id after a commit, and was aborted, by more
_EPOCHS_OF_AN_ABORT: Final = 2

#: what must be left of a transaction's timeout when its batch is decided: this part, or as long as brokers may be away
_MARGIN_OF_TIMEOUT: Final = 4
#: how often a commit takes the ledger again that another process of its run has taken
_TAKES: Final = 5
#: how many earlier runs an entry names
_KEPT_RUNS: Final = 16
_TOO_LONG: Final = (
    "a transaction is aborted when it is open longer than kafka.transaction.timeout.ms: "
    "make batches smaller, or raise it up to transaction.max.timeout.ms of the brokers"
)

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Torn(ClientError):
    """A batch is decided, and can neither be finished nor be written again without loss or duplicates."""


class _Overtaken(Exception):
    """Somebody else has taken the ledger: a rival, or another process of the same run."""


class Family(NamedTuple):
    """The transactional ids of a writer: `prefix/identity/run/task/attempt`. A run is one start of its driver.

    Where an attempt must not share its id with another of the same number, its own id follows: `…/attempt-id`.
    """

    prefix: str
    identity: str

    def transactional_id(self, run: str, task: int, attempt: int, attempt_id: int | None = None) -> str:
        name = f"{self.prefix}/{self.identity}/{run}/{task}/{attempt}"
        return name if attempt_id is None else f"{name}-{attempt_id}"

    def run_of(self, transactional_id: str) -> str | None:
        """The run whose task uses the id; None where it belongs to no task of this writer."""
        mine, *rest = transactional_id.rsplit("/", 3)
        return rest[0] if len(rest) == 3 and mine == f"{self.prefix}/{self.identity}" else None


class Finished(NamedTuple):
    """What came of the transactions of an entry."""

    committed: list[Part]
    aborted: list[Part]
    unknown: list[tuple[Part, ClientError]]


class Committer:
    """The driver's side of a writer's batches. Committers of one `run` are one driver; without a name it is its own."""

    def __init__(
        self, client: Client, family: Family, ledger_topic: str = LEDGER_TOPIC, run: str | None = None
    ) -> None:
        self._client = client
        self._family = family
        self._run = run or uuid.uuid4().hex[:12]
        self._ledger = Ledger(client, ledger_topic)
        self._hold: Hold | None = None
        #: whether this process has had the ledger before, and lost it
        self._lost_it = False
        self._swept_at = 0.0
        self._no_sweep_before = 0.0
        self._others_swept = False

    # --- with a ledger ------------------------------------------------------------------------------

    def recover(self) -> LedgerEntry | None:
        """Finishes what an earlier driver decided; the newest batch, which is done, or of which nothing is left.

        A batch that is not done was decided, and all of it was aborted since: it is to be written again.
        """
        return self._though_overtaken(self._recover)

    def _recover(self) -> LedgerEntry | None:
        hold = self._taken()
        latest = hold.latest
        if latest is None or latest.done:
            return latest
        outcome = self._finish(latest)
        if not outcome.aborted and not outcome.unknown:
            return self._done(hold, latest)
        if outcome.committed or outcome.unknown:
            raise self._torn(latest, outcome)
        return latest

    def commit(self, batch: int, parts: Sequence[Part], note: str | None = None, even_empty: bool = True) -> bool:
        """Whether the batch is these transactions now; False where it was written before, and these are aborted.

        A batch without any is remembered like others, unless it is said that it need not be.
        """
        return self._though_overtaken(lambda: self._commit(batch, parts, note, even_empty))

    def _commit(self, batch: int, parts: Sequence[Part], note: str | None, even_empty: bool) -> bool:
        hold = self._taken()
        latest = hold.latest
        if latest is not None and latest.batch > batch:
            raise Refused(
                f"{self._family.identity} is about to write batch {batch}, and has written batch {latest.batch} before",
                hint="the checkpoint is older than what it wrote: go on from its newest state, or start with a new one",
            )
        before: tuple[Part, ...] = ()
        if latest is not None and latest.batch == batch:
            before = latest.parts
            again = self._again(hold, latest, parts)
            if again is None:
                # Another process of this run may have come so far in its place.
                return bool(parts) and set(parts) <= set(before)
            parts = again
        if not parts and not even_empty:
            return True
        decide_by = self.check_open(part.prepared for part in parts if part not in before)
        entry = LedgerEntry(batch, False, tuple(parts), note)
        self._write(hold, entry, decide_by)
        outcome = self._finish(entry)
        if outcome.aborted or outcome.unknown:
            raise self._torn(entry, outcome)
        self._done(hold, entry)
        return True

    def _again(self, hold: Hold, latest: LedgerEntry, parts: Sequence[Part]) -> Sequence[Part] | None:
        """The batch was decided before: what is to be decided in its place, None where it is finished."""
        outcome = Finished([], [], []) if latest.done else self._finish(latest)
        if not outcome.aborted and not outcome.unknown:
            if not latest.done or latest.run != self._run:
                self._done(hold, latest)
            self.abort(part.prepared for part in parts if part not in latest.parts)
            return None
        if outcome.unknown:
            raise self._torn(latest, outcome)
        if not outcome.committed:
            return parts
        ours = {part.task: part for part in parts}
        same = len(ours) == len(latest.parts) and all(
            part.task in ours and _content(ours[part.task]) == _content(part) for part in outcome.committed
        )
        if not same or any(part.task not in ours for part in outcome.aborted):
            raise self._torn(latest, outcome)
        self.abort(ours[part.task].prepared for part in outcome.committed)
        return [*outcome.committed, *(ours[part.task] for part in outcome.aborted)]

    def undecided(self, prepared: Iterable[Prepared]) -> list[Prepared]:
        """Those that the ledger does not have: the others must be left alone."""
        latest = self._latest()
        decided = {part.prepared for part in latest.parts} if latest is not None else set()
        return [each for each in prepared if each not in decided]

    def _latest(self) -> LedgerEntry | None:
        if self._hold is not None:
            return self._hold.latest
        return self._ledger.latest(self._family.identity) if self._ledger.exists() else None

    def _taken(self) -> Hold:
        if self._hold is not None and self._hold.latest != self._ledger.latest(self._family.identity):
            # What it was kept for has gone on elsewhere.
            self._hold, self._lost_it = None, True
        if self._hold is None:
            # Looked at before it is taken, so that a driver of which nobody knows that it lives disturbs no other.
            if self._ledger.exists():
                self._check_rivals(self._ledger.latest(self._family.identity))
            hold = self._ledger.take(self._family.identity, self._family.prefix)
            self._check_rivals(hold.latest)
            self._hold, self._lost_it = hold, False
        return self._hold

    def _check_rivals(self, latest: LedgerEntry | None) -> None:
        """Fenced where another run has taken over from this one."""
        if latest is None or latest.run == self._run:
            return
        if self._lost_it or self._run in latest.before:
            raise Fenced(
                f"another driver writes as {self._family.identity}: "
                f"run {latest.run or 'of an older version'} has taken over from run {self._run}",
                hint="a query or job must run once at a time; the other one goes on",
            )

    def _though_overtaken(self, action: Callable[[], T]) -> T:
        """Begins again where another process has taken the ledger, unless that is a rival's."""
        for _ in range(_TAKES):
            try:
                return action()
            except _Overtaken as overtaken:
                self._lost_it = True
                error = overtaken.__cause__
        raise Fenced(
            f"several drivers write as {self._family.identity}, and each takes over from the others: {error}",
            hint="a query or job must run once at a time; stop all but one",
        )

    def _write(self, hold: Hold, entry: LedgerEntry, by: float = math.inf) -> None:
        was = hold.latest
        if was is not None and was.run != self._run:
            entry = entry._replace(before=tuple(filter(None, (*was.before, was.run)))[-_KEPT_RUNS:])
        elif was is not None:
            entry = entry._replace(before=was.before)
        try:
            hold.write(entry._replace(run=self._run), by)
        except Fenced as error:
            self._hold = None
            raise _Overtaken from error
        except BaseException:
            self._hold = None
            raise

    def _done(self, hold: Hold, entry: LedgerEntry) -> LedgerEntry:
        done = entry._replace(done=True)
        self._write(hold, done)
        return done

    def _finish(self, entry: LedgerEntry) -> Finished:
        """Commits what is decided, and finds out what became of the rest."""
        ends = self._client.transactions.end((part.prepared for part in entry.parts), committed=True)
        failed = [(part, error) for part in entry.parts if (error := ends[part.prepared]) is not None]
        committed = [part for part in entry.parts if ends[part.prepared] is None]
        states = self._client.transactions.describe_all(part.prepared.transactional_id for part, _ in failed)
        aborted = [part for part, _ in failed if _is_aborted(part.prepared, states[part.prepared.transactional_id])]
        return Finished(committed, aborted, [(part, error) for part, error in failed if part not in aborted])

    def _torn(self, entry: LedgerEntry, outcome: Finished) -> Torn:
        gone = [part.prepared.transactional_id for part in outcome.aborted]
        rows = sum(part.rows for part in outcome.aborted)
        said = f"batch {entry.batch} of {self._family.identity} is decided, and {len(outcome.committed)} of its "
        said += f"{len(entry.parts)} transactions are committed"
        if gone:
            said += f"; aborted since, by their timeout or by hand: {', '.join(gone)} with {rows} rows"
        if outcome.unknown:
            part, error = outcome.unknown[0]
            said += (
                f"; what became of {len(outcome.unknown)} is not known, of {part.prepared.transactional_id} ({error})"
            )
        return Torn(
            said,
            hint="try again while the brokers can be reached; where transactions are lost, write the rows of their "
            "tasks again by other means and go on with a new checkpoint or write id",
        )

    # --- transactions -------------------------------------------------------------------------------

    def check_open(self, prepared: Iterable[Prepared]) -> float:
        """Until when (`time.monotonic`) they may be decided, so that none times out before it is committed.

        Raises where one is over, or too near to its end: while nothing is decided, nothing is lost by that. A
        transaction's age goes by the clocks of its coordinator and of this machine.
        """
        wanted = {each.transactional_id: each for each in prepared}
        now_s, now_ms = time.monotonic(), time.time() * 1000
        found = self._client.transactions.describe_all(wanted)
        decide_by = math.inf
        for name, each in wanted.items():
            state = found[name]
            is_ours = state is not None and (state.producer_id, state.producer_epoch) == each[1:]
            if state is None or not is_ours or state.state != "Ongoing":
                was = "unknown to its coordinator" if state is None else f"in state {state.state}"
                raise Fenced(
                    f"the transaction {name} of a task is over before the batch could be committed (it is {was})",
                    hint=_TOO_LONG,
                )
            left_ms = state.timeout_ms if state.start_ms is None else state.start_ms + state.timeout_ms - now_ms
            margin_ms = min(self._client.cluster.timeout_s * 1000, state.timeout_ms / _MARGIN_OF_TIMEOUT)
            if left_ms < margin_ms:
                raise TimedOut(
                    f"the transaction {name} of a task is aborted in {max(left_ms, 0) / 1000:.1f} s, "
                    f"and the commit of the batch may take {margin_ms / 1000:.1f} s",
                    hint=_TOO_LONG,
                )
            # Half of the margin is for the commits, which follow the decision.
            decide_by = min(decide_by, now_s + (left_ms - margin_ms / 2) / 1000)
        return decide_by

    def commit_unrecorded(self, prepared: Sequence[Prepared]) -> None:
        """Commits transactions of a writer without an identity."""
        self.check_open(prepared)
        ends = self._client.transactions.end(prepared, committed=True)
        failed = {each: error for each, error in ends.items() if error is not None}
        if failed:
            error = next(iter(failed.values()))
            raise Torn(
                f"{len(ends) - len(failed)} of {len(ends)} transactions are committed, and others are not: {error}",
                error.code,
                "give the write a tidelog.write.id: what is begun is then finished when it is run again",
            )

    def abort(self, prepared: Iterable[Prepared]) -> None:
        """What cannot be aborted is over already, or ends by its timeout."""
        self._client.transactions.end(prepared, committed=False)

    def sweep(self, run: str, now: bool, recorded: bool = True) -> int:
        """Aborts what tasks of this run left open, if it is time for that; how many they were.

        Of a writer with an identity (`recorded`) the ledger says what is decided, and to be left alone.
        The first time after a commit also what other runs left: their drivers are dead, or will find themselves fenced.
        The batch is over by then, so that a sweep that fails fails nothing: another one follows, or a timeout.
        """
        first = not self._others_swept and self._hold is not None
        due = first or now or time.monotonic() - self._swept_at >= SWEEP_INTERVAL_S
        if not due or time.monotonic() < self._no_sweep_before:
            return 0
        try:
            left = self._left_open(run, first, recorded)
        except ClientError as error:
            _log.warning("what tasks of %s left open is not looked for: %s", self._family.identity, error)
            self._no_sweep_before = time.monotonic() + SWEEP_AGAIN_S
            return 0
        aborted = self._aborted(left)
        self._swept_at = time.monotonic()
        self._others_swept |= first and aborted == len(left)
        return aborted

    def _left_open(self, run: str, others_too: bool, recorded: bool) -> list[str]:
        decided: set[str] = set()
        if recorded and (latest := self._latest()) is not None and not latest.done:
            decided = {part.prepared.transactional_id for part in latest.parts}
        left = []
        for listed in self._client.transactions.list_all(states=["Ongoing"]):
            name = listed.transactional_id
            whose = self._family.run_of(name)
            if name not in decided and (whose == run or (others_too and whose is not None)):
                left.append(name)
        return left

    def _aborted(self, names: Sequence[str]) -> int:
        """How many of them could be aborted."""
        aborted = 0
        for name in names:
            try:
                self._client.transactions.abort(name)
                aborted += 1
            except ClientError as error:
                _log.warning("the transaction %s, which a task left open, is not aborted yet: %s", name, error)
                self._no_sweep_before = time.monotonic() + SWEEP_AGAIN_S
                if isinstance(error, (Unreachable, TimedOut)):
                    break
        return aborted


def _content(part: Part) -> tuple[int, int]:
    return part.rows, part.checksum


def _is_aborted(prepared: Prepared, state: DescribedTransaction | None) -> bool:
    """Whether the transaction itself was aborted, not a later one of the same id."""
    if state is None or state.producer_id != prepared.producer_id or state.state not in _ABORTED_STATES:
        return False
    return 0 <= state.producer_epoch - prepared.producer_epoch <= _EPOCHS_OF_AN_ABORT
