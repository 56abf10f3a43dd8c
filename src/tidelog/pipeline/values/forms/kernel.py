# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False, cdivision=True
"""Strings that stand for something else: dates, timestamps, decimals and binary, read by the column.

This file is ordinary Python and runs as it stands; where a C compiler was at hand, Cython has compiled it with the
types in `kernel.pxd`, and nothing else may differ but the speed. (Nothing negative is divided: C and Python differ
there.)

A column of text is `data`, `starts` (entry i lies between starts[i] and starts[i + 1]) and `valid`, a byte per entry.
Each function reads the entries that are valid, and sets `valid[i]` to `MISFIT` where an entry does not read: exactly
where `json_rules.py` says so. What is read goes to a column of its own, or into the place of the text where it is
never longer.
"""

from __future__ import annotations

from typing import Any

_NULL = 0
_FITS = 1
_MISFIT = 2
# The number for those outside: the compiled loops have it as a C number, which nobody else sees.
MISFIT = _MISFIT

_NONE = -0x7FFFFFFFFFFFFFFF - 1
_FIRST_MOMENT = -62135596800000000  # the beginning of year 1, in microseconds
_LAST_MOMENT = 253402300799999999  # the end of year 9999
_DAY_MICROS = 86400000000
_MONTH_DAYS = memoryview(bytearray((0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)))
#: one more than the sextet that a base64 character means, 0 for all others
_SEXTETS = memoryview(bytearray(256))
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
for _sextet in range(64):
    _SEXTETS[_ALPHABET[_sextet]] = _sextet + 1


def dates(data: Any, starts: Any, valid: Any, out: Any) -> None:
    """Days since 1970 from `2026-01-31`."""
    row = 0
    rows = len(valid)
    while row < rows:
        if valid[row] == _FITS:
            days = _days(data, starts[row]) if starts[row + 1] - starts[row] == 10 else _NONE
            if days == _NONE:
                valid[row] = _MISFIT
            else:
                out[row] = days
        row += 1


def timestamps(data: Any, starts: Any, valid: Any, zoned: bool, out: Any) -> None:
    """Microseconds since 1970 from ISO 8601; a zone is an error if there is none to have (`zoned`)."""
    row = 0
    rows = len(valid)
    while row < rows:
        if valid[row] == _FITS:
            micros = _moment(data, starts[row], starts[row + 1], zoned)
            if micros == _NONE:
                valid[row] = _MISFIT
            else:
                out[row] = micros
        row += 1


def _digits(data: Any, pos: int, count: int) -> int:
    """The number that these digits make, -1 if they are not digits."""
    number = 0
    end = pos + count
    while pos < end:
        digit = data[pos] - 0x30
        if digit < 0 or digit > 9:
            return -1
        number = number * 10 + digit
        pos += 1
    return number


def _days(data: Any, pos: int) -> int:
    """Days from 1970-01-01 to the date in these ten bytes, _NONE if it is no date."""
    year = _digits(data, pos, 4)
    month = _digits(data, pos + 5, 2)
    day = _digits(data, pos + 8, 2)
    if data[pos + 4] != 0x2D or data[pos + 7] != 0x2D or year < 1 or month < 1 or month > 12 or day < 1:
        return _NONE
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month] and not (leap and month == 2 and day == 29):
        return _NONE
    # Years that begin in March have their leap day last, and months of them 153 days in five.
    if month < 3:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719469


def _moment(data: Any, pos: int, end: int, zoned: bool) -> int:
    if end - pos < 10:
        return _NONE
    days = _days(data, pos)
    pos += 10
    if days == _NONE or pos == end:
        return _NONE if days == _NONE else days * _DAY_MICROS
    if end - pos < 6 or not (data[pos] == 0x20 or data[pos] | 0x20 == 0x74) or data[pos + 3] != 0x3A:
        return _NONE
    hour = _digits(data, pos + 1, 2)
    minute = _digits(data, pos + 4, 2)
    second = 0
    fraction = 0
    pos += 6
    if pos + 3 <= end and data[pos] == 0x3A:
        second = _digits(data, pos + 1, 2)
        pos += 3
        if pos < end and data[pos] == 0x2E:
            first = pos + 1
            pos = first
            while pos < end and 0x30 <= data[pos] <= 0x39:
                pos += 1
            if pos == first or pos > first + 9:
                return _NONE
            fraction = _digits(data, first, min(pos - first, 6))
            while first + 6 > pos:
                fraction *= 10
                first -= 1
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return _NONE
    behind = _zone(data, pos, end, zoned)
    if behind == _NONE:
        return _NONE
    micros = days * _DAY_MICROS + (hour * 3600 + minute * 60 + second - behind) * 1000000 + fraction
    return micros if _FIRST_MOMENT <= micros <= _LAST_MOMENT else _NONE


def _zone(data: Any, pos: int, end: int, zoned: bool) -> int:
    """Seconds that a zone is ahead of UTC, _NONE if it is no zone, or there should be none."""
    if pos == end:
        return 0
    if not zoned:
        return _NONE
    if data[pos] | 0x20 == 0x7A:
        return 0 if pos + 1 == end else _NONE
    if (data[pos] != 0x2B and data[pos] != 0x2D) or end - pos < 3:
        return _NONE
    hours = _digits(data, pos + 1, 2)
    minutes = 0
    sign = 1 if data[pos] == 0x2B else -1
    pos += 3
    if pos < end:
        if data[pos] == 0x3A:
            pos += 1
        if end - pos != 2:
            return _NONE
        minutes = _digits(data, pos, 2)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return _NONE
    return sign * (hours * 3600 + minutes * 60)


def decimals(data: Any, starts: Any, valid: Any, precision: int, scale: int, out: Any, out_starts: Any) -> int:
    """The digits of decimals without their point, as text of at most precision + 1 bytes; how much text that is."""
    size = 0
    row = 0
    rows = len(valid)
    while row < rows:
        if valid[row] == _FITS:
            end = _unscaled(data, starts[row], starts[row + 1], precision, scale, out, size)
            if end < 0:
                valid[row] = _MISFIT
            else:
                size = end
        row += 1
        out_starts[row] = size
    return size


def _unscaled(data: Any, pos: int, end: int, precision: int, scale: int, out: Any, at: int) -> int:
    """Where the digits end that were written at `at`, -1 if this is no decimal of that precision and scale."""
    negative = pos < end and data[pos] == 0x2D
    if pos < end and (negative or data[pos] == 0x2B):
        pos += 1
    begin = pos
    # First the shape: which bytes are digits, how many of them behind the point, and the exponent.
    seen = 0
    point = -1
    last = pos  # behind the last digit that is not zero
    first = -1  # the first digit that is not zero
    while pos < end and (data[pos] == 0x2E or 0x30 <= data[pos] <= 0x39):
        if data[pos] == 0x2E:
            if point >= 0:
                return -1
            point = pos
        else:
            seen += 1
            if data[pos] != 0x30:
                first = pos if first < 0 else first
                last = pos + 1
        pos += 1
    behind = pos - point - 1 if point >= 0 else 0
    exponent = _exponent(data, pos, end)
    if seen == 0 or pos == begin or exponent == _NONE:
        return -1
    if first < 0:
        out[at] = 0x30
        return at + 1
    # Digits from the first to the last that are not zero, then as many zeros as the exponent and the scale ask for.
    inside = point > first and point < last
    count = last - first - (1 if inside else 0)
    trailing = pos - last - (1 if point >= last else 0)
    zeros = trailing + exponent - behind + scale
    if zeros < 0 or count + zeros > precision:
        return -1
    if negative:
        out[at] = 0x2D
        at += 1
    while first < last:
        if data[first] != 0x2E:
            out[at] = data[first]
            at += 1
        first += 1
    while zeros > 0:
        out[at] = 0x30
        at += 1
        zeros -= 1
    return at


def _exponent(data: Any, pos: int, end: int) -> int:
    """The exponent that the rest says, 0 if there is no rest, _NONE if it says something else."""
    if pos == end:
        return 0
    if data[pos] | 0x20 != 0x65:
        return _NONE
    pos += 1
    sign = 1
    if pos < end and (data[pos] == 0x2D or data[pos] == 0x2B):
        sign = -1 if data[pos] == 0x2D else 1
        pos += 1
    if pos == end or end - pos > 4:
        return _NONE
    number = _digits(data, pos, end - pos)
    return sign * number if number >= 0 else _NONE


def binaries(data: Any, starts: Any, valid: Any) -> int:
    """base64 becomes what it stands for, in its own place; how many bytes that is."""
    size = 0
    row = 0
    rows = len(valid)
    start = starts[0]
    while row < rows:
        end = starts[row + 1]
        if valid[row] == _FITS:
            written = _sextets(data, start, end, size)
            if written < 0:
                valid[row] = _MISFIT
            else:
                size = written
        start = end
        row += 1
        starts[row] = size
    return size


def _sextets(data: Any, pos: int, end: int, at: int) -> int:
    """Where the bytes end that were written at `at`, -1 if this is no base64."""
    if (end - pos) % 4 != 0:
        return -1
    padding = 0
    while padding < 2 and end > pos and data[end - 1] == 0x3D:
        padding += 1
        end -= 1
    held = 0
    bits = 0
    while pos < end:
        sextet = _SEXTETS[data[pos]] - 1
        if sextet < 0:
            return -1
        held = (held * 64 + sextet) & 0xFFFF
        bits += 6
        if bits >= 8:
            bits -= 8
            data[at] = held >> bits & 0xFF
            at += 1
        pos += 1
    return at
