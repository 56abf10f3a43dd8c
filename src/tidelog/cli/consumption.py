"""What `tidelog consume` does once it knows what to read: a range, or as a member of a group.

A group's offsets are committed after the records were printed, every few seconds and at the end. If the process dies,
records printed since the last commit are printed again, and none is skipped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

from tidelog.cli.formats import Format
from tidelog.cli.output import on_terminal, tell, warn
from tidelog.cli.progress import Progress
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    import re

    from tidelog.client import Client
    from tidelog.client.errors import OffsetOutOfRange
    from tidelog.client.group_member import Assignment, GroupMember
    from tidelog.client.reader import Chunk, Isolation, Span
    from tidelog.wire.records import Record

COMMIT_EVERY_S: Final = 5.0


class Printer:
    """Prints what matches, and remembers how far it came in each partition."""

    def __init__(self, out: BinaryIO, form: Format, matches: re.Pattern[bytes] | None, limit: int | None) -> None:
        self.out = out
        self.positions: dict[TopicPartition, int] = {}
        self._form = form
        self._matches = matches
        self._limit = limit
        self._scanned = 0
        self._printed = 0

    def progress(self, total: int | None, follow: bool) -> Progress:
        # Where records go to the same terminal, they are the progress; what never ends gets nowhere.
        quiet = (on_terminal() and self._matches is None) or (follow and not sys.stderr.isatty())
        return Progress("scanned", total, shown=not quiet)

    def take(self, chunk: Chunk, progress: Progress) -> bool:
        """Prints what one leader answered; whether that was enough."""
        from tidelog.client.reader import chunk_records

        topic, partition = chunk.span.topic, chunk.span.partition
        position = chunk.start
        try:
            for record in chunk_records(chunk):
                self._scanned += 1
                if self._scanned % 1000 == 0:
                    progress.update(self._scanned)
                if self._matches is None or self._wanted(record):
                    self.out.write(self._form(topic, partition, record))
                    self._printed += 1
                position = record.offset + 1
                if self._printed == self._limit:
                    return True
            position = chunk.span.position
        finally:
            self.positions[TopicPartition(topic, partition)] = position
        progress.update(self._scanned)
        return False

    def conclude(self) -> None:
        self.out.flush()
        if self._matches is not None:
            tell(f"{self._printed} of {self._scanned} records matched")

    def _wanted(self, record: Record) -> bool:
        assert self._matches is not None
        return any(part is not None and self._matches.search(part) for part in (record.key, record.value))


def consume_spans(client: Client, spans: list[Span], isolation: Isolation, printer: Printer, follow: bool) -> None:
    total = None if follow else sum(max(0, (s.until or 0) - s.position) for s in spans)
    with printer.progress(total, follow) as progress:
        for chunk in _chunks(client, spans, isolation, printer.out, follow):
            if printer.take(chunk, progress):
                break
    printer.conclude()


def _chunks(client: Client, spans: list[Span], isolation: Isolation, out: BinaryIO, follow: bool) -> Iterator[Chunk]:
    """What the leaders answer; what retention removed before it was read is told and passed over."""
    from tidelog.client.errors import OffsetOutOfRange

    keen = follow or on_terminal()
    while True:
        try:
            for chunk in client.reader(spans, isolation=isolation).chunks():
                yield chunk
                if keen:
                    out.flush()
            return
        except OffsetOutOfRange as error:
            _skip(spans, error)


def _skip(spans: list[Span], error: OffsetOutOfRange) -> None:
    """Retention was faster than we: go on with what is left."""
    behind = [
        span
        for span in spans
        if (span.topic, span.partition) == (error.topic, error.partition) and span.position < error.first
    ]
    if not behind:
        raise error
    for span in behind:
        warn(f"{span.topic}-{span.partition}: offsets {span.position} to {error.first - 1} have since been deleted")
        span.position = error.first


class GroupConsumption:
    """Reads what is assigned to one member; `spans_of` says from where to where."""

    def __init__(
        self,
        client: Client,
        member: GroupMember,
        spans_of: Callable[[Assignment], list[Span]],
        isolation: Isolation,
        printer: Printer,
        follow: bool,
    ) -> None:
        self._client = client
        self._member = member
        self._spans_of = spans_of
        self._isolation: Isolation = isolation
        self._printer = printer
        self._follow = follow

    def run(self) -> None:
        try:
            with self._printer.progress(None, self._follow) as progress:
                while not self._read_assigned(progress):
                    self._commit()
                    self._member.accept()
        finally:
            # Also after Ctrl-C: what was printed is done. A reader who left before reading it is told by the flush.
            try:
                self._commit()
            finally:
                self._member.leave()
        self._printer.conclude()

    def _read_assigned(self, progress: Progress) -> bool:
        """Whether everything is read; else other partitions were assigned."""
        if not self._await_assignment():
            return not self._member.poll()
        spans = self._spans_of(self._member.assignment)
        # Where nothing comes, the place at which we wait is what the group knows.
        self._printer.positions.update({TopicPartition(span.topic, span.partition): span.position for span in spans})
        committed_at = time.monotonic()
        for chunk in _chunks(self._client, spans, self._isolation, self._printer.out, self._follow):
            if self._printer.take(chunk, progress):
                return True
            if self._member.poll():
                return False
            if time.monotonic() - committed_at > COMMIT_EVERY_S:
                self._commit()
                committed_at = time.monotonic()
        return True

    def _await_assignment(self) -> bool:
        """Whether there is something to read without a change; where others have all of it, it may come later."""
        deadline = time.monotonic() + self._client.cluster.timeout_s
        while True:
            if self._member.poll():
                return False
            if self._member.assignment:
                return True
            if not self._follow and time.monotonic() > deadline:
                tell("no partition is left for this member: other members of the group read all of them")
                return False
            time.sleep(min(self._member.due_in_s, 1.0))

    def _commit(self) -> None:
        from tidelog.client.errors import ClientError

        self._printer.out.flush()
        try:
            self._member.commit(self._printer.positions)
        except ClientError as error:
            warn(f"{error}: what was printed since the last commit may be read again")
        self._printer.positions.clear()
