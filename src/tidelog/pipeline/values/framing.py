"""Values with a schema's id before them, as clients of a schema registry write them (`framing = "confluent"`):

0x00, the id as a big-endian int32, the value
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.pipeline.values.decoded import MALFORMED, DecodeSpec, Fault

_HEADER = 5


class Unframed(NamedTuple):
    values: list[bytes | None]  # None where the record has no value, or no frame
    ids: list[int]  # -1 where there is none
    faults: list[Fault]


def is_framed(decode: DecodeSpec) -> bool:
    return decode.framing == "confluent"


def take_frames_off(values: Iterable[bytes | None]) -> Unframed:
    found = Unframed([], [], [])
    for row, value in enumerate(values):
        if value is not None and len(value) >= _HEADER and value[0] == 0:
            found.values.append(value[_HEADER:])
            found.ids.append(int.from_bytes(value[1:_HEADER], "big"))
            continue
        found.values.append(None)
        found.ids.append(-1)
        if value is not None:
            found.faults.append(Fault(row, MALFORMED, _reason(len(value))))
    return found


def _reason(size: int) -> str:
    if size < _HEADER:
        return f"{size} bytes are too few for a schema's id"
    return "the value does not begin with a schema's id (a zero byte and four more)"
