"""Durations and sizes as people write them, where a setting takes a plain number: `7d`, `1h30m`, `10GB`, `64MiB`.

The name of a setting determines its unit: names that end with `.ms`, `.seconds`, `.minutes` or `.hours` are times, and
names that contain bytes are sizes. Units of time are ms, s, m, h, d, w; kB, MB, GB, TB are powers of 1000, and KiB,
MiB, GiB, TiB are powers of 1024. Only the number is sent over the wire.
"""

from __future__ import annotations

import re
from typing import Final

from tidelog.config.errors import ConfigError

_TIME_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NAMED_MS: Final = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}
_SIZE_BYTES: Final[dict[str, int]] = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?i?b)", re.IGNORECASE)


def duration_ms(text: str) -> float:
    """`90s`, `1h30m`; the units are ms, s, m, h, d, w."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration; for example 90s, 1h30m or 2d")
    return sum(float(number) * _TIME_MS[unit] for number, unit in parts)


def size_bytes(text: str) -> float:
    """`10GB`, `64MiB`."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_BYTES:
        raise ValueError(f"{text!r} is not a size; for example 500MB or 64MiB")
    return float(match[1]) * _SIZE_BYTES[match[2].lower()]


def plain_number(name: str, text: str) -> str:
    """`text` as the number that the setting `name` takes, where it is written with a unit; else as it is."""
    written = text.strip()
    if not written[:1].isdigit() or written.isdigit():
        return text
    unit = name.rpartition(".")[2]
    try:
        if unit in _NAMED_MS:
            value = duration_ms(written) / _NAMED_MS[unit]
        elif "bytes" in name.split(".") or name.endswith("buffer.size"):
            value = size_bytes(written)
        else:
            return text
    except ValueError as error:
        raise ConfigError(f"{name}: {error}", name=name) from None
    if value != int(value):
        raise ConfigError(f"{name}: {written} is not a whole number of {unit}", name=name)
    return str(int(value))
