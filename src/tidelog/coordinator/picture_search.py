"""Finds the last picture in the log of a delay topic's partition: segment by segment, the newest first.

A partition that delivers writes a picture with every parcel, so it is usually near the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.coordinator.delay_log import FoundPicture, last_picture
from tidelog.log.errors import LogError
from tidelog.log.log import Log
from tidelog.timer.host import Workers

CHUNK_BYTES: Final = 4 << 20


class PictureSearch:
    """`done` gets the picture, or None where there is none, and the error where the log cannot be read."""

    def __init__(
        self, log: Log, workers: Workers, done: Callable[[FoundPicture | None, BaseException | None], None]
    ) -> None:
        self._log = log
        self._workers = workers
        self._done = done
        starts = [max(segment.base_offset, log.log_start_offset) for segment in log.segments]
        #: from offset to offset, the newest segment last
        self._ranges = list(zip(starts, [*starts[1:], log.log_end_offset], strict=True))

    def start(self) -> None:
        if not self._ranges:
            self._done(None, None)
            return
        self._scan(*self._ranges.pop(), None)

    def _scan(self, offset: int, end: int, found: FoundPicture | None) -> None:
        try:
            piece = self._log.read(offset, CHUNK_BYTES, end) if offset < end else None
        except LogError as error:
            self._done(None, error)
            return
        if piece is None:
            self._done(found, None) if found is not None else self.start()
            return
        next_offset = piece.next_offset

        def scanned(result: FoundPicture | None, error: BaseException | None) -> None:
            if error is not None:
                self._done(None, error)
            else:
                self._scan(next_offset, end, result or found)

        self._workers.in_worker(lambda: last_picture(piece.read()), scanned)
