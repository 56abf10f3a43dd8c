"""What a partition refuses and remembers, as scripts: an event per line, the outcome beside it.

produce  p=7 e=0 s=0..4               ok               a client's batch: producer, epoch, sequence range
produce  p=7 e=0 s=0..4 t             48               the same inside a transaction; the code it is refused with
produce  p=7 e=0 s=0..4               dup @0           a duplicate, and the offset it was first written at
commit   p=7 e=0 c=3                  ok @0..5         a marker of coordinator epoch 3; the transaction it ended
abort    p=7 e=0 c=3 tv2              aborted @0..5 lso=6      … with the last stable offset of its index entry
offsets  p=7 e=0 t                    ok               the group coordinator's records, without sequence
verify   p=7 e=0 s=0                  guard            begins a verification (`tv2`: with epoch bump), keeps the guard
copy     p=7 e=0 s=0..4               ok               a batch that came by replication
unstable                              5                first unstable offset
hw       9                                             high watermark, and so for time, expire, restart, …
"""

from __future__ import annotations

import re

import pytest

from tidelog.log.producers import (
    NO_GUARD,
    NOT_REQUIRED,
    AppendOrigin,
    Producer,
    ProducerRefused,
    Producers,
)
from tidelog.wire.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker

pytestmark = pytest.mark.layouts

DAY = 86_400_000


def header(
    producer: int,
    epoch: int,
    first: int,
    last: int,
    *,
    at: int,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    attributes = (TRANSACTIONAL_FLAG if transactional else 0) | (CONTROL_FLAG if control else 0)
    delta = (last - first) & 0x7FFFFFFF
    return BatchHeader(at, 49, 0, 2, 0, attributes, delta, timestamp, timestamp, producer, epoch, first, delta + 1)


class Script:
    """A partition and a clock, driven by lines."""

    def __init__(self, verification: bool = False) -> None:
        self.producers = Producers()
        self.unguarded = NO_GUARD if verification else NOT_REQUIRED
        self.now = 0
        self.end = 0
        self.guards: dict[int, int] = {}
        self.log: list[tuple[BatchHeader, EndTxnMarker | None]] = []
        self.snapshots: list[tuple[int, bytes]] = []

    def run(self, text: str) -> None:
        for line in text.strip().splitlines():
            event, *expected = re.split(r"\s{2,}", line.strip())
            seen = self.step(event)
            assert seen == (expected[0] if expected else ""), f"{event}: {seen}"

    def step(self, event: str) -> str:
        verb, *words = event.split()
        try:
            return str(getattr(self, "do_" + verb)(*words))
        except ProducerRefused as e:
            return str(e.code)

    def _fields(self, words: tuple[str, ...]) -> dict[str, str]:
        return dict(word.split("=") if "=" in word else (word, "yes") for word in words)

    def _data(self, words: tuple[str, ...], origin: AppendOrigin) -> str:
        f = self._fields(words)
        first, last = (int(x) for x in f["s"].split("..")) if "s" in f else (-1, -1)
        batch = header(int(f["p"]), int(f["e"]), first, last, at=self.end, transactional="t" in f)
        guard = self.guards.get(int(f["p"]), self.unguarded) if "g" in f else self.unguarded
        duplicate = self.producers.check(batch, origin, guard=guard)
        if duplicate is not None:
            return f"dup @{duplicate.first_offset}"
        return self._append(batch, None)

    def _append(self, batch: BatchHeader, marker: EndTxnMarker | None) -> str:
        completed = self.producers.append(batch, marker, self.now)
        self.log.append((batch, marker))
        self.end = batch.next_offset
        if completed is None:
            return "ok"
        self.producers.complete(completed)
        span = f"@{completed.first_offset}..{completed.last_offset}"
        return f"aborted {span} lso={completed.last_stable_offset}" if completed.is_aborted else f"ok {span}"

    def do_produce(self, *words: str) -> str:
        return self._data(words, AppendOrigin.CLIENT)

    def do_offsets(self, *words: str) -> str:
        return self._data(words, AppendOrigin.COORDINATOR)

    def do_copy(self, *words: str) -> str:
        return self._data(words, AppendOrigin.REPLICATION)

    def _marker(self, kind: int, words: tuple[str, ...], origin: AppendOrigin) -> str:
        f = self._fields(words)
        batch = header(int(f["p"]), int(f["e"]), -1, -1, at=self.end, transactional=True, control=True)
        marker = EndTxnMarker(kind, int(f["c"]))
        version = 2 if "tv2" in f else 0
        assert self.producers.check(batch, origin, marker=marker, transaction_version=version) is None
        return self._append(batch, marker)

    def do_commit(self, *words: str) -> str:
        return self._marker(COMMIT, words, AppendOrigin.COORDINATOR)

    def do_abort(self, *words: str) -> str:
        return self._marker(ABORT, words, AppendOrigin.COORDINATOR)

    def do_copycommit(self, *words: str) -> str:
        return self._marker(COMMIT, words, AppendOrigin.REPLICATION)

    def do_verify(self, *words: str) -> str:
        f = self._fields(words)
        producer = int(f["p"])
        guard = self.producers.begin_verification(
            producer, int(f["s"]), int(f["e"]), supports_epoch_bump="tv2" in f, now_ms=self.now
        )
        again = self.guards.get(producer) == guard
        self.guards[producer] = guard
        return "none" if guard == NO_GUARD else "same guard" if again else "guard"

    def do_unstable(self) -> str:
        return str(self.producers.first_unstable_offset())

    def do_undecided(self) -> str:
        return str(self.producers.first_undecided_offset())

    def do_hw(self, offset: str) -> str:
        self.producers.on_high_watermark(int(offset))
        return ""

    def do_start(self, offset: str) -> str:
        self.producers.on_log_start_offset(int(offset))
        return ""

    def do_end(self) -> str:
        return str(self.producers.end_offset)

    def do_time(self, ms: str) -> str:
        self.now = int(ms)
        return ""

    def do_expire(self) -> str:
        self.producers.expire(self.now, DAY)
        return f"{len(self.producers)} left"

    def do_snapshot(self) -> str:
        self.snapshots.append((self.producers.end_offset, self.producers.snapshot()))
        return ""

    def do_restart(self) -> str:
        """Begins anew from the last snapshot and the batches after it."""
        self.producers = Producers()
        if self.snapshots:
            end, data = self.snapshots[-1]
            self.producers.load(data, end, self.now)
        for batch, marker in self.log:
            if batch.base_offset >= self.producers.end_offset:
                self.producers.replay(batch, marker, self.now)
        return ""

    def do_truncate(self, offset: str) -> str:
        self.end = int(offset)
        self.log = [(batch, marker) for batch, marker in self.log if batch.base_offset < self.end]
        self.snapshots = [(end, data) for end, data in self.snapshots if end <= self.end]
        return self.do_restart()

    def do_show(self, word: str) -> str:
        p = self.producers.get(int(word.removeprefix("p=")))
        return "unknown" if p is None else shown(p)


def shown(p: Producer) -> str:
    return f"e={p.epoch} s={p.last_sequence} c={p.coordinator_epoch} txn={p.txn_first_offset} n={len(p.batches)}"


def test_sequences_must_follow_one_another() -> None:
    Script().run("""
        produce p=7 e=0 s=0..4        ok
        produce p=7 e=0 s=5..5        ok
        produce p=7 e=0 s=7..8        45
        produce p=7 e=0 s=4..6        45
        produce p=7 e=0 s=6..6        ok
        produce p=8 e=0 s=0..0        ok
        produce p=7 e=0 s=7..7        ok
    """)


def test_a_producer_that_is_not_remembered_may_begin_anywhere() -> None:
    Script().run("""
        produce p=7 e=3 s=100..109    ok
        produce p=7 e=3 s=110..110    ok
    """)


def test_a_repeat_of_one_of_the_last_five_batches_is_answered_with_its_first_offset() -> None:
    Script().run("""
        produce p=7 e=0 s=0..1        ok
        produce p=7 e=0 s=2..3        ok
        produce p=7 e=0 s=4..5        ok
        produce p=7 e=0 s=6..7        ok
        produce p=7 e=0 s=8..9        ok
        produce p=7 e=0 s=0..1        dup @0
        produce p=7 e=0 s=8..9        dup @8
        produce p=7 e=0 s=2..5        45
        produce p=7 e=0 s=10..10      ok
        produce p=7 e=0 s=0..1        45
        produce p=7 e=0 s=2..3        dup @2
    """)


def test_a_duplicate_is_answered_with_the_timestamp_it_was_written_with() -> None:
    producers = Producers()
    first = header(7, 0, 0, 4, at=100, timestamp=5555)
    producers.append(first, None, 0)
    again = header(7, 0, 0, 4, at=105, timestamp=9999)
    duplicate = producers.check(again, AppendOrigin.CLIENT)
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset, duplicate.timestamp) == (100, 104, 5555)


def test_sequences_wrap_to_zero() -> None:
    Script().run("""
        produce p=7 e=0 s=2147483640..2147483646     ok
        produce p=7 e=0 s=0..1                       45
        produce p=7 e=0 s=2147483647..2              ok
        produce p=7 e=0 s=2147483647..2              dup @7
        produce p=7 e=0 s=3..3                       ok
        produce p=8 e=0 s=2147483647..2147483647     ok
        produce p=8 e=0 s=0..0                       ok
    """)


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    Script().run("""
        produce p=7 e=1 s=0..4        ok
        produce p=7 e=0 s=5..5        47
        produce p=7 e=2 s=5..5        45
        produce p=7 e=2 s=0..4        ok
        produce p=7 e=1 s=0..4        47
        produce p=7 e=1 s=5..5        47
        show p=7                      e=2 s=4 c=-1 txn=-1 n=1
    """)


def test_a_transaction_holds_the_stable_offset_until_its_marker_is_replicated() -> None:
    Script().run("""
        unstable                      None
        produce p=7 e=0 s=0..4        ok
        unstable                      None
        produce p=8 e=0 s=0..1 t      ok
        unstable                      5
        produce p=9 e=0 s=0..0 t      ok
        produce p=8 e=0 s=2..2 t      ok
        unstable                      5
        commit p=8 e=0 c=0            ok @5..9
        unstable                      5
        undecided                     7
        hw 9
        unstable                      5
        hw 10
        unstable                      7
        abort p=9 e=0 c=0             aborted @7..10 lso=11
        undecided                     None
        unstable                      7
        hw 11
        unstable                      None
    """)


def test_an_aborted_transaction_is_indexed_with_the_stable_offset_of_the_moment() -> None:
    Script().run("""
        produce p=1 e=0 s=0..0 t      ok
        produce p=2 e=0 s=0..0 t      ok
        produce p=3 e=0 s=0..0 t      ok
        abort p=2 e=0 c=0             aborted @1..3 lso=0
        abort p=1 e=0 c=0             aborted @0..4 lso=2
        abort p=3 e=0 c=0             aborted @2..5 lso=6
    """)


def test_a_marker_without_records_ends_nothing() -> None:
    Script().run("""
        commit p=7 e=0 c=1            ok
        unstable                      None
        show p=7                      e=0 s=-1 c=1 txn=-1 n=0
    """)


def test_a_record_outside_the_open_transaction_is_refused() -> None:
    Script().run("""
        produce p=7 e=0 s=0..0 t      ok
        produce p=7 e=0 s=1..1        48
        produce p=7 e=0 s=1..1 t      ok
        commit p=7 e=0 c=0            ok @0..2
        produce p=7 e=0 s=2..2        ok
    """)


def test_after_a_marker_of_the_same_epoch_sequences_go_on() -> None:
    Script().run("""
        produce p=7 e=0 s=0..4 t      ok
        commit p=7 e=0 c=0            ok @0..5
        produce p=7 e=0 s=0..4 t      dup @0
        produce p=7 e=0 s=5..5 t      ok
    """)


def test_after_a_marker_of_a_newer_epoch_the_same_sequence_comes_again() -> None:
    Script().run("""
        produce p=7 e=0 s=0..4 t      ok
        abort p=7 e=1 c=0             aborted @0..5 lso=6
        produce p=7 e=0 s=5..5 t      47
        produce p=7 e=1 s=1..1 t      45
        produce p=7 e=1 s=0..4 t      ok
    """)


def test_a_stale_coordinator_is_fenced() -> None:
    Script().run("""
        produce p=7 e=0 s=0..0 t      ok
        commit p=7 e=0 c=5            ok @0..1
        produce p=7 e=0 s=1..1 t      ok
        abort p=7 e=0 c=4             52
        abort p=7 e=0 c=5             aborted @2..3 lso=4
        commit p=7 e=0 c=6            ok
    """)


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    Script().run("""
        produce p=7 e=3 s=0..0 t      ok
        commit p=7 e=2 c=0            47
        commit p=7 e=3 c=0            ok @0..1
    """)


def test_under_version_2_a_marker_must_raise_the_epoch() -> None:
    Script().run("""
        produce p=7 e=3 s=0..0 t      ok
        commit p=7 e=3 c=0 tv2        47
        commit p=7 e=2 c=0 tv2        47
        commit p=7 e=4 c=0 tv2        ok @0..1
        commit p=7 e=4 c=0 tv2        ok
        produce p=7 e=4 s=0..0 t      ok
        commit p=7 e=4 c=0 tv2        47
        commit p=7 e=5 c=0 tv2        ok @3..4
    """)


def test_under_version_2_the_last_epoch_of_all_can_still_be_ended() -> None:
    Script().run("""
        produce p=7 e=32767 s=0..0 t  ok
        commit p=7 e=32767 c=0 tv2    ok @0..1
    """)


def test_offset_commits_have_epochs_but_no_sequences() -> None:
    Script().run("""
        offsets p=7 e=1 t             ok
        offsets p=7 e=1 t             ok
        offsets p=7 e=0 t             47
        unstable                      0
        commit p=7 e=1 c=0            ok @0..2
    """)


def test_records_without_sequence_between_two_of_a_client_hide_no_duplicate() -> None:
    Script().run("""
        produce p=7 e=0 s=0..4        ok
        offsets p=7 e=0               ok
        produce p=7 e=0 s=0..4        dup @0
        produce p=7 e=0 s=0..0        ok
    """)


def test_what_the_leader_has_judged_is_not_judged_again() -> None:
    Script(verification=True).run("""
        copy p=7 e=5 s=9..9           ok
        copy p=7 e=5 s=3..3           ok
        copy p=7 e=4 s=0..0 t         ok
        show p=7                      e=4 s=0 c=-1 txn=2 n=1
        copycommit p=7 e=4 c=0        ok @2..3
    """)


def test_the_first_record_of_a_transaction_must_be_verified() -> None:
    Script(verification=True).run("""
        produce p=7 e=0 s=0..0        ok
        produce p=7 e=0 s=1..1 t      48
        verify p=7 e=0 s=1            guard
        produce p=7 e=0 s=1..1 t      48
        produce p=7 e=0 s=1..1 t g    ok
        verify p=7 e=0 s=2            none
        produce p=7 e=0 s=2..2 t      ok
        commit p=7 e=0 c=0            ok @1..3
        produce p=7 e=0 s=3..3 t      48
    """)


def test_a_guard_does_not_outlive_the_marker_that_came_in_between() -> None:
    Script(verification=True).run("""
        verify p=7 e=0 s=0            guard
        abort p=7 e=0 c=0             ok
        produce p=7 e=0 s=0..0 t g    48
        verify p=7 e=0 s=0            guard
        produce p=7 e=0 s=0..0 t g    ok
    """)


def test_a_guard_of_an_earlier_inquiry_does_not_serve_a_later_one() -> None:
    script = Script(verification=True)
    script.run("""
        verify p=7 e=0 s=0            guard
        abort p=7 e=0 c=0             ok
    """)
    stale = script.guards[7]
    script.run("""
        verify p=7 e=0 s=0            guard
    """)
    script.guards[7] = stale
    script.run("""
        produce p=7 e=0 s=0..0 t g    48
    """)


def test_under_version_2_the_marker_leaves_the_next_transactions_guard() -> None:
    Script(verification=True).run("""
        verify p=7 e=0 s=0 tv2        guard
        produce p=7 e=0 s=0..0 t g    ok
        verify p=7 e=1 s=0 tv2        guard
        commit p=7 e=1 c=0 tv2        ok @0..1
        produce p=7 e=1 s=0..0 t g    ok
    """)


def test_a_stale_epoch_is_fenced_before_it_is_verified() -> None:
    Script(verification=True).run("""
        produce p=7 e=2 s=0..0        ok
        verify p=7 e=1 s=0            47
        produce p=7 e=1 s=0..0 t      47
    """)


def test_while_a_verification_runs_the_lowest_sequence_goes_first() -> None:
    Script(verification=True).run("""
        verify p=7 e=0 s=5            guard
        verify p=7 e=0 s=2            same guard
        verify p=7 e=0 s=9            same guard
        produce p=7 e=0 s=5..5 t g    45
        produce p=7 e=0 s=2..4 t g    ok
        produce p=7 e=0 s=5..5 t      ok
    """)


def test_a_new_epoch_resets_the_lowest_sequence() -> None:
    Script(verification=True).run("""
        verify p=7 e=0 s=0            guard
        verify p=7 e=1 s=4            same guard
        produce p=7 e=1 s=4..4 t g    ok
    """)


def test_a_version_2_producer_of_which_nothing_is_remembered_must_begin_at_zero() -> None:
    Script(verification=True).run("""
        verify p=7 e=0 s=3 tv2        guard
        produce p=7 e=0 s=3..3 t g    45
        verify p=7 e=0 s=0 tv2        same guard
        produce p=7 e=0 s=0..2 t g    ok
        produce p=7 e=0 s=3..3 t      ok
    """)


def test_producers_are_forgotten_by_the_brokers_clock_alone() -> None:
    """The records' timestamps are of 1970 throughout; nobody is forgotten for that."""
    Script().run("""
        time 1000000000000
        produce p=7 e=0 s=0..0        ok
        produce p=8 e=0 s=0..0 t      ok
        expire                        2 left
        time 1000086399999
        expire                        2 left
        time 1000086400000
        expire                        1 left
        show p=7                      unknown
        produce p=7 e=0 s=5..5        ok
        commit p=8 e=0 c=0            ok @1..3
        time 1000172800000
        expire                        0 left
    """)


def test_an_unused_guard_is_forgotten_with_time() -> None:
    Script(verification=True).run("""
        verify p=7 e=0 s=0            guard
        time 86400000
        expire                        0 left
        produce p=7 e=0 s=0..0 t g    48
    """)


def test_a_restart_counts_as_hearing_of_a_producer() -> None:
    Script().run("""
        produce p=7 e=0 s=0..0        ok
        snapshot
        time 86400000
        restart
        expire                        1 left
        produce p=7 e=0 s=1..1        ok
        time 172800000
        expire                        0 left
    """)


def test_a_restart_keeps_epochs_sequences_and_open_transactions() -> None:
    Script().run("""
        produce p=7 e=2 s=0..4        ok
        produce p=7 e=2 s=5..9        ok
        produce p=9 e=1 s=0..0 t      ok
        produce p=8 e=0 s=0..0 t      ok
        commit p=9 e=1 c=4            ok @10..12
        snapshot
        produce p=8 e=0 s=1..1 t      ok
        restart
        produce p=7 e=2 s=5..9        dup @5
        produce p=7 e=2 s=0..4        45
        produce p=7 e=1 s=0..0        47
        produce p=7 e=2 s=10..10      ok
        unstable                      11
        abort p=9 e=1 c=3             52
        abort p=8 e=0 c=0             aborted @11..15 lso=16
    """)


def test_truncation_forgets_what_was_cut_off() -> None:
    Script().run("""
        produce p=7 e=0 s=0..4        ok
        produce p=8 e=0 s=0..4 t      ok
        snapshot
        produce p=7 e=0 s=5..9        ok
        commit p=8 e=0 c=0            ok @5..15
        end                           16
        truncate 15
        end                           15
        undecided                     5
        truncate 10
        produce p=7 e=0 s=6..6        45
        produce p=7 e=0 s=5..9        ok
        truncate 5
        show p=8                      unknown
        unstable                      None
        produce p=7 e=0 s=5..9        ok
        truncate 0
        produce p=7 e=0 s=3..3        ok
    """)


def test_deleting_records_from_the_front_keeps_their_producers() -> None:
    Script().run("""
        produce p=7 e=0 s=0..4        ok
        produce p=8 e=0 s=0..0 t      ok
        commit p=8 e=0 c=0            ok @5..6
        unstable                      5
        start 7
        unstable                      None
        produce p=7 e=0 s=0..4        dup @0
        produce p=7 e=0 s=9..9        45
        start 50
        end                           50
    """)


def test_a_refused_batch_leaves_no_trace() -> None:
    producers = Producers()
    producers.append(header(7, 1, 0, 4, at=0), None, 0)
    before = producers.snapshot()
    for bad in (header(7, 0, 5, 5, at=5), header(7, 1, 9, 9, at=5), header(7, 2, 3, 3, at=5)):
        with pytest.raises(ProducerRefused):
            producers.check(bad, AppendOrigin.CLIENT)
    producers.check(header(7, 1, 5, 5, at=5, transactional=True), AppendOrigin.REPLICATION)
    assert producers.snapshot() == before
    assert producers.first_unstable_offset() is None


def test_batches_without_a_producer_only_move_the_end() -> None:
    producers = Producers()
    plain = header(-1, -1, -1, -1, at=40)
    assert producers.check(plain, AppendOrigin.CLIENT) is None
    assert producers.append(plain, None, 0) is None
    assert (len(producers), producers.end_offset) == (0, 41)


def test_a_control_batch_that_compaction_emptied_tells_nothing() -> None:
    producers = Producers()
    producers.append(header(7, 0, 0, 0, at=0, transactional=True), None, 0)
    emptied = header(7, 1, -1, -1, at=1, transactional=True, control=True)
    assert producers.append(emptied, None, 0) is None
    assert producers.first_undecided_offset() == 0
    assert producers.end_offset == 2


def test_a_transaction_that_is_not_open_cannot_be_completed() -> None:
    producers = Producers()
    producers.append(header(7, 0, 0, 0, at=0, transactional=True), None, 0)
    marker = header(7, 0, -1, -1, at=1, transactional=True, control=True)
    completed = producers.append(marker, EndTxnMarker(COMMIT, 0), 0)
    assert completed is not None
    producers.complete(completed)
    with pytest.raises(ValueError, match="no transaction is open"):
        producers.complete(completed)


def test_everyone_known_can_be_listed() -> None:
    producers = Producers()
    for producer in (9, 3, 5):
        producers.append(header(producer, 0, 0, 0, at=producer), None, 0)
    assert sorted(p.producer_id for p in producers) == [3, 5, 9]
