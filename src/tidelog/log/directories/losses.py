"""What a log has lost, in one line per loss: topic, partition, offsets, file.

It is never certain which offsets a damaged file held. The report is based on what evidence there is: headers that can
still be read after the damage, later segments, and the recovery point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.log.disk import PASSING

if TYPE_CHECKING:
    from tidelog.log.log import Log


class Loss(NamedTuple):
    first_offset: int
    #: the offset after the last one that is known to be lost; None where nothing tells
    end_offset: int | None
    file: str
    what: str
    #: what was cut off is the beginning of a batch that was being written: nobody was told that it is there
    is_torn: bool = False

    def reaching(self, end_offset: int) -> Loss:
        """The same loss, where something else vouches for offsets up to here."""
        return self if (self.end_offset or 0) >= end_offset else self._replace(end_offset=end_offset)

    @property
    def is_damage(self) -> bool:
        """Whether records may be lost that were whole: what was cut off may also be torn, or nothing but junk."""
        return not self.is_torn if self.end_offset is None else self.end_offset > self.first_offset

    def tell(self, log: Log) -> str:
        if self.end_offset == self.first_offset:
            offsets = "no offset"
        elif self.end_offset is None:
            offsets = f"what followed offset {self.first_offset - 1}" if self.first_offset else "all offsets"
        elif self.end_offset == self.first_offset + 1:
            offsets = f"offset {self.first_offset}"
        else:
            offsets = f"offsets {self.first_offset} to {self.end_offset - 1}"
        return f"partition {log.partition} of topic {log.topic} has lost {offsets}: {self.file} {self.what}"


def lost_at_the_end(losses: list[Loss], end_offset: int, vouched_offset: int, last_file: str) -> list[Loss]:
    """The losses of a log that now ends at `end_offset`, though offsets up to `vouched_offset` were given away."""
    if end_offset >= vouched_offset:
        return losses
    if losses and losses[-1].first_offset == end_offset:
        return [*losses[:-1], losses[-1].reaching(vouched_offset)]
    return [*losses, Loss(end_offset, vouched_offset, last_file, "ends before them, and nothing follows it")]


def note_damage(log: Log, is_known: bool = True) -> None:
    """Has the log know that it ends before what it held, also after the next start. May raise OSError.

    Where there is no room to write it down, the broker knows for as long as it runs, if it `is_known` for good: before
    that, what is about to be cut off may make room.
    """
    damaged = log.notes._replace(damaged=True)
    try:
        log.note(damaged)
    except OSError as error:
        if error.errno not in PASSING:
            raise
        log.directory.refuse(error, log.name)
        if is_known:
            log.notes = damaged
