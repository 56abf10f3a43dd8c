"""What is known of a log before it is opened, and what its opening found, however its segments are stored."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.directories.clean_stop import Stopped
from tidelog.log.directories.losses import Loss
from tidelog.log.segment import Segment


class Claim(NamedTuple):
    """What the checkpoints of the directory say about a log."""

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int | None = None
    #: it is not known whether the log was ever compacted
    gaps: bool = False
    #: what the clean stop wrote down of the log's segments; None where nothing is known of it
    stopped: Stopped | None = None
    #: offsets below it were replicated, and seen by consumers
    high_watermark: int = 0
    #: where the log began when that was last written down; None where it is not known to have been
    began_at: int | None = None
    #: what the files say is to be compared with what they are made from
    distrusted: bool = False


class Recovered(NamedTuple):
    """The segments of a log, and what was done to them."""

    #: in order; empty where nothing is left
    segments: list[Segment]
    #: those that were read through
    read: list[Segment]
    losses: list[Loss]
    #: base offsets of segments that stay although something before them is missing
    after_holes: list[int]
    #: segments whose transaction index must be written anew
    unindexed: list[Segment]
    #: base offsets of segments some file of which was written anew
    mended: list[int]
    #: files that speak of what lies below it are right, though nothing was read; None where `read` says all
    stable_offset: int | None
    #: where the log ends; None where that is still to be found out
    end_offset: int | None = None
