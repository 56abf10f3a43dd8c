# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loop over JSON values: each record's fields go straight into columns as Arrow lays them out, no object between.

This file is ordinary Python and runs as it stands. Where a C compiler was at hand at installation, Cython has compiled
it with the types in `kernel.pxd`; nothing else may then differ but the speed, so the code keeps to what means the same
in both: no integer leaves 64 bits, every read is checked against the end of the record first.

What fits is said in `json_rules.py`. The loop decides exactly that, but says no more than `BAD` of what does not fit,
and leaves strings as they are that stand for something else (dates, decimals): `forms` reads those afterwards.

A `ShredColumn` grows as entries come. A struct has columns below it, an array one, a map two. Entry i of a struct is
entry i of each of its columns; the elements of an array have entries of their own, and `starts` says which belong to
whom. Everything begins as null, so that a missing field costs nothing: an entry is written only when a value
is there. `starts` are therefore filled up late, when a later entry is written or the batch ends.

A record that turns out bad half-way leaves what it wrote. Its row is dropped afterwards, and takes along whatever
belongs to it; the next record begins at entries of its own.
"""

from __future__ import annotations

from array import array
from typing import Any

from tidelog.pipeline.values.shred.buffers import numbers

try:
    import cython  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    from tidelog.wire.kernel_primitives import cython

if not cython.compiled:
    from tidelog.pipeline.values.shred.primitives import double_of  # isort: skip

# What a column holds.
_BOOLEAN = 0
_INTEGER = 1
_FLOAT = 2
_TEXT = 3
_DIGITS = 4  # the text of a number, or a string
_ARRAY = 5
_MAP = 6
_STRUCT = 7
_SCALAR = 8  # a string, or the text of a number, true or false

# What became of a record.
_OK = 0
_BAD = 1
_UNSEEN = 2  # a good one, with fields beside the schema that hold something
_NOT_TEXT = 3  # of a string: JSON, but not Unicode

# The numbers for those outside: the compiled loop has them as C numbers, which nobody else sees.
BOOLEAN, INTEGER, FLOAT, TEXT, DIGITS, ARRAY, MAP, STRUCT, SCALAR = range(9)
BAD, UNSEEN = _BAD, _UNSEEN

_MAX_DEPTH = 256
_ROOM = 256
_MANY_DIGITS = 922337203685477579  # one more digit still fits into 64 bits
_EXACT = 9007199254740992  # doubles hold all integers up to here
_POWERS = array("d", [float(10**power) for power in range(23)])

_ESCAPES = memoryview(bytearray(256))
for _letter, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPES[_letter] = _meaning
#: the bits that the first byte of a character says its length with, by how many bytes more there are
_LEADS = memoryview(bytearray((0, 0xC0, 0xE0, 0xF0)))


class ShredColumn:
    def __init__(self, kind: int, nullable: bool, capacity: int) -> None:
        self.kind = kind
        self.nullable = nullable
        self.capacity = capacity
        self.count = 0  # entries of an array's elements or a map's; of other columns when all are there
        self.last = -1  # the entry that was spoken of last: if it comes again, the field was named twice
        self.valid = numbers(b"", capacity, 1, "B")
        self.ints = numbers(b"", capacity if kind in (_BOOLEAN, _INTEGER) else 0, 8, "q")
        self.floats = numbers(b"", capacity if kind == _FLOAT else 0, 8, "d")
        self.starts = numbers(b"", capacity + 1 if kind in (_TEXT, _DIGITS, _ARRAY, _MAP, _SCALAR) else 0, 4, "i")
        self.filled = 0  # so many entries have an end in `starts`
        self.data = numbers(b"", _ROOM, 1, "B")
        self.size = 0  # bytes of data
        self.low = -0x7FFFFFFFFFFFFFFF - 1  # what integers can be
        self.high = 0x7FFFFFFFFFFFFFFF
        self.highest = 1.7976931348623157e308  # what floats can be, and its opposite
        self.items: Any = None  # of an array its elements, of a map its values
        self.keys: Any = None
        self.children: list[Any] = []
        self.names = numbers(b"", 0, 1, "B")
        self.name_ends = numbers(b"", 1, 4, "i")
        self.required = 0

    def name(self, names: list[bytes], children: list[Any]) -> None:
        self.children = children
        self.names = memoryview(bytearray(b"".join(names)))
        self.name_ends = numbers(b"", len(names) + 1, 4, "i")
        for index in range(len(names)):
            self.name_ends[index + 1] = self.name_ends[index] + len(names[index])
        self.required = len([child for child in children if not child.nullable])

    def grow(self, index: int) -> None:
        """Room for an entry with this index."""
        capacity = max(2 * self.capacity, index + 1, _ROOM)
        self.valid = numbers(self.valid, capacity, 1, "B")
        if self.kind in (_BOOLEAN, _INTEGER):
            self.ints = numbers(self.ints, capacity, 8, "q")
        elif self.kind == _FLOAT:
            self.floats = numbers(self.floats, capacity, 8, "d")
        elif self.kind != _STRUCT:
            self.starts = numbers(self.starts, capacity + 1, 4, "i")
        self.capacity = capacity

    def make_room(self, size: int) -> None:
        if self.size + size > len(self.data):
            self.data = numbers(self.data, max(2 * len(self.data), self.size + size), 1, "B")

    def fill(self, index: int) -> None:
        """Entries before `index` that have not ended yet end where the bytes or elements end now."""
        end = self.items.count if self.items is not None else self.size
        while self.filled < index:
            self.filled += 1
            self.starts[self.filled] = end

    def finish(self, count: int) -> None:
        """The column has `count` entries now, and no more will come."""
        self.count = count
        if count > self.capacity:
            self.grow(count - 1)
        if len(self.starts) > 0:
            self.fill(count)
        if self.items is not None:
            self.items.finish(self.items.count)
        if self.keys is not None:
            self.keys.finish(self.keys.count)
        for child in self.children:
            child.finish(count)


class ShredReader:
    """A place in the values, and the columns that they go to."""

    def __init__(self, root: ShredColumn) -> None:
        self.root = root
        self.scratch = ShredColumn(_TEXT, True, 1)  # for names that have escapes in them
        self.stack = memoryview(bytearray(_MAX_DEPTH + 1))
        self.buf = memoryview(b"")
        self.pos = 0
        self.end = 0
        self.depth = 0
        self.unseen = False
        # the number read last: its digits as far as 64 bits hold them exactly, and how many of them are a fraction
        self.negative = False
        self.whole = False
        self.exact = False
        self.digits = 0
        self.decimals = 0

    def read(self, buf: Any, ends: Any, status: Any) -> None:
        """Value i lies between ends[i] and ends[i + 1]; status[i] says whether to read it, and then what it was."""
        self.buf = buf
        for row in range(len(status)):
            if status[row] == _OK:
                self.pos = ends[row]
                self.end = ends[row + 1]
                self.unseen = False
                self.depth = 0
                self._pass_mark()
                if self._next() != 0x7B or self._object(self.root, row) != _OK or self._next() != -1:
                    status[row] = _BAD
                elif self.unseen:
                    status[row] = _UNSEEN
        self.root.finish(len(status))

    def _pass_mark(self) -> None:
        """Some write UTF-8's mark before a value; it is no part of it."""
        at = self.pos
        if self.end - at >= 3 and self.buf[at] == 0xEF and self.buf[at + 1] == 0xBB and self.buf[at + 2] == 0xBF:
            self.pos = at + 3

    def _next(self) -> int:
        """The next byte that is not whitespace, which is where the place then is; -1 at the end."""
        while self.pos < self.end:
            byte: int = self.buf[self.pos]
            if byte > 0x20 or not (byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09):
                return byte
            self.pos += 1
        return -1

    def _object(self, column: ShredColumn, index: int) -> int:
        """A struct; the place is at the opening brace."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            return _BAD
        expected = 0
        self.pos += 1
        byte = self._next()
        while byte != 0x7D:
            if byte != 0x22:
                return _BAD
            at = self._field_of(column, expected)
            if at < -1 or self._next() != 0x3A:
                return _BAD
            self.pos += 1
            if at == -1:
                found = self._skip()
                if found < 0:
                    return _BAD
                self.unseen = self.unseen or found > 0
            else:
                child = column.children[at]
                if child.last == index:
                    return _BAD
                child.last = index
                if self._value(child, index) != _OK:
                    return _BAD
                expected = at + 1
            byte = self._behind(0x7D)
        self.pos += 1
        self.depth -= 1
        if column.required > 0:
            for child in column.children:
                if not child.nullable and (child.last != index or child.valid[index] == 0):
                    return _BAD
        return _OK

    def _behind(self, closing: int) -> int:
        """Goes past a comma to what follows it, or to the closing bracket; -1 if there is neither."""
        byte = self._next()
        if byte == closing:
            return byte
        if byte != 0x2C:
            return -1
        self.pos += 1
        byte = self._next()
        return -1 if byte == closing else byte

    def _field_of(self, column: ShredColumn, expected: int) -> int:
        """Which field is named here, -1 for one that the schema lacks, -2 for what is no name; goes past the name."""
        start = self.pos + 1
        pos = start
        while pos < self.end:
            byte = self.buf[pos]
            if byte == 0x22:
                self.pos = pos + 1
                return self._find(column, expected, self.buf, start, pos)
            if byte < 0x20:
                return -2
            if byte == 0x5C:
                self.pos = start
                self.scratch.size = 0
                outcome = self._string(self.scratch)
                if outcome != _OK:
                    return -1 if outcome == _NOT_TEXT else -2
                return self._find(column, expected, self.scratch.data, 0, self.scratch.size)
            pos += 1
        return -2

    def _find(self, column: ShredColumn, expected: int, data: Any, start: int, end: int) -> int:
        """Fields mostly come in the order of the schema, so the search begins at the expected one."""
        count = len(column.name_ends) - 1
        for tried in range(count):
            at = expected + tried
            if at >= count:
                at -= count
            name = column.name_ends[at]
            if column.name_ends[at + 1] - name == end - start:
                pos = start
                while pos < end and data[pos] == column.names[name]:
                    pos += 1
                    name += 1
                if pos == end:
                    return at
        return -1

    def _value(self, column: ShredColumn, index: int) -> int:
        byte = self._next()
        if index >= column.capacity:
            column.grow(index)
        if byte == 0x6E:
            return self._literal(0x6E756C6C, 4) if column.nullable else _BAD
        kind = column.kind
        outcome = _BAD
        if kind == _TEXT or (byte == 0x22 and kind in (_SCALAR, _DIGITS)):
            if byte == 0x22:
                column.fill(index)
                self.pos += 1
                outcome = self._string(column)
        elif kind == _INTEGER:
            outcome = self._integer(column, index)
        elif kind == _FLOAT:
            outcome = self._float(column, index)
        elif kind == _BOOLEAN:
            column.ints[index] = byte == 0x74
            outcome = self._boolean(byte)
        elif kind == _STRUCT:
            outcome = self._object(column, index) if byte == 0x7B else _BAD
        elif kind in (_ARRAY, _MAP):
            outcome = self._entries(column, index) if byte == (0x5B if kind == _ARRAY else 0x7B) else _BAD
        else:
            column.fill(index)
            outcome = self._copy(column, byte)
        if outcome == _OK:
            column.valid[index] = 1
        return outcome

    def _boolean(self, byte: int) -> int:
        return self._literal(0x74727565, 4) if byte == 0x74 else self._literal(0x66616C73, 5)

    def _literal(self, letters: int, count: int) -> int:
        """null, true or false, known by the number that its first four letters make."""
        if self.pos + count > self.end:
            return _BAD
        found = 0
        for at in range(self.pos, self.pos + 4):
            found = found * 256 + self.buf[at]
        if found != letters or (count == 5 and self.buf[self.pos + 4] != 0x65):
            return _BAD
        self.pos += count
        return _OK

    def _number(self) -> int:
        """Any number; what it is stands in the reader's fields."""
        pos = self.pos
        self.negative = pos < self.end and self.buf[pos] == 0x2D
        if self.negative:
            pos += 1
        self.digits = 0
        self.exact = True
        first = pos
        pos = self._digits(pos)
        if pos == first or (pos > first + 1 and self.buf[first] == 0x30):
            return _BAD
        self.whole = True
        self.decimals = 0
        if pos < self.end and self.buf[pos] == 0x2E:
            first = pos + 1
            pos = self._digits(first)
            self.decimals = pos - first
            self.whole = False
            if pos == first:
                return _BAD
        if pos < self.end and (self.buf[pos] | 0x20) == 0x65:
            self.whole = False
            pos += 1
            if pos < self.end and (self.buf[pos] == 0x2B or self.buf[pos] == 0x2D):
                pos += 1
            first = pos
            pos = self._digits(pos)
            self.exact = False
            if pos == first:
                return _BAD
        self.pos = pos
        return _OK

    def _digits(self, pos: int) -> int:
        """Where the digits end that begin here."""
        while pos < self.end:
            digit = self.buf[pos] - 0x30
            if digit < 0 or digit > 9:
                break
            if self.digits > _MANY_DIGITS:
                self.exact = False
            else:
                self.digits = self.digits * 10 + digit
            pos += 1
        return pos

    def _integer(self, column: ShredColumn, index: int) -> int:
        start = self.pos
        if self._number() != _OK or not self.whole:
            return _BAD
        if not self.exact:
            # The last few of the 64-bit numbers, and whatever is larger.
            number = int(bytes(self.buf[start : self.pos])) if self.pos - start <= 20 else 1 << 64
            if not column.low <= number <= column.high:
                return _BAD
            column.ints[index] = number
            return _OK
        column.ints[index] = -self.digits if self.negative else self.digits
        return _OK if column.low <= column.ints[index] <= column.high else _BAD

    def _float(self, column: ShredColumn, index: int) -> int:
        start = self.pos
        if self._number() != _OK:
            return _BAD
        # An integer that a double holds, divided by a power of ten that it holds, is rounded once, and so rightly.
        if self.exact and self.digits <= _EXACT and self.decimals <= 22:
            number = self.digits / _POWERS[self.decimals]
            column.floats[index] = -number if self.negative else number
        else:
            column.floats[index] = double_of(self.buf, start, self.pos)
        return _OK if -column.highest <= column.floats[index] <= column.highest else _BAD

    def _copy(self, column: ShredColumn, byte: int) -> int:
        """The text of a number, or of a boolean where those are wanted too, into the column's bytes."""
        start = self.pos
        boolean = column.kind == _SCALAR and (byte == 0x74 or byte == 0x66)
        if (self._boolean(byte) if boolean else self._number()) != _OK:
            return _BAD
        column.make_room(self.pos - start)
        for at in range(start, self.pos):
            column.data[column.size] = self.buf[at]
            column.size += 1
        return _OK

    def _string(self, column: ShredColumn) -> int:
        """Text into the column's bytes; the place is behind the opening quote."""
        pos = self.pos
        column.make_room(self.end - pos)
        size = column.size
        while pos < self.end:
            byte = self.buf[pos]
            if byte == 0x22:
                column.size = size
                self.pos = pos + 1
                return _OK
            if byte < 0x20:
                return _BAD
            if byte == 0x5C:
                column.size = size
                self.pos = pos
                return self._escaped(column)
            column.data[size] = byte
            size += 1
            pos += 1
        return _BAD

    def _escaped(self, column: ShredColumn) -> int:
        """The rest of a string, from its first escape on."""
        outcome = _OK
        while self.pos < self.end:
            byte = self.buf[self.pos]
            self.pos += 1
            if byte == 0x22:
                return outcome
            if byte < 0x20:
                return _BAD
            if byte != 0x5C:
                column.data[column.size] = byte
                column.size += 1
                continue
            code = self._escape()
            if code < 0:
                return _BAD
            if 0xD800 <= code < 0xDC00 and self._hex(self.pos, True) & 0xFFC00 == 0xDC00:
                code = 0x10000 + (code - 0xD800) * 0x400 + self._hex(self.pos, True) - 0xDC00
                self.pos += 6
            if 0xD800 <= code < 0xE000:
                outcome = _NOT_TEXT
            else:
                _append_utf8(column, code)
        return _BAD

    def _escape(self) -> int:
        """The character that an escape means, -1 if it is none; the place is behind the backslash."""
        if self.pos >= self.end:
            return -1
        byte: int = self.buf[self.pos]
        self.pos += 1
        if byte != 0x75:
            return _ESCAPES[byte] if _ESCAPES[byte] > 0 else -1
        code = self._hex(self.pos, False)
        self.pos += 4
        return code

    def _hex(self, pos: int, whole: bool) -> int:
        r"""Four hexadecimal digits, or with `whole` a whole \\uXXXX; -1 if they are not there."""
        if whole and not (pos + 2 <= self.end and self.buf[pos] == 0x5C and self.buf[pos + 1] == 0x75):
            return -1
        pos += 2 if whole else 0
        if pos + 4 > self.end:
            return -1
        code = 0
        for at in range(pos, pos + 4):
            byte = self.buf[at]
            if 0x30 <= byte <= 0x39:
                code = code * 16 + byte - 0x30
            elif 0x61 <= (byte | 0x20) <= 0x66:
                code = code * 16 + (byte | 0x20) - 0x57
            else:
                return -1
        return code

    def _entries(self, column: ShredColumn, index: int) -> int:
        """An array, or a map; the place is at the opening bracket."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            return _BAD
        column.fill(index)
        items = column.items
        first = items.count
        closing = self.buf[self.pos] + 2
        self.pos += 1
        byte = self._next()
        while byte != closing:
            if byte < 0:
                return _BAD
            at = items.count
            items.count += 1
            if column.kind == _MAP:
                column.keys.count += 1
                if byte != 0x22 or self._value(column.keys, at) != _OK or self._next() != 0x3A:
                    return _BAD
                self.pos += 1
            if self._value(items, at) != _OK:
                return _BAD
            byte = self._behind(closing)
        self.pos += 1
        self.depth -= 1
        return _OK if column.kind == _ARRAY or items.count - first < 2 else self._distinct(column.keys, first)

    def _distinct(self, keys: ShredColumn, first: int) -> int:
        """Whether the keys from the first on are all different; of few, one looks at the pairs."""
        keys.fill(keys.count)
        if keys.count - first > 16:
            texts = {bytes(keys.data[keys.starts[at] : keys.starts[at + 1]]) for at in range(first, keys.count)}
            return _OK if len(texts) == keys.count - first else _BAD
        for at in range(first + 1, keys.count):
            size = keys.starts[at + 1] - keys.starts[at]
            for other in range(first, at):
                if keys.starts[other + 1] - keys.starts[other] == size:
                    same = 0
                    while same < size and keys.data[keys.starts[at] + same] == keys.data[keys.starts[other] + same]:
                        same += 1
                    if same == size:
                        return _BAD
        return _OK

    def _skip(self) -> int:
        """Goes past any value: 1 if there is anything in it but nulls, 0 if not, -1 if it is no JSON."""
        outer = self.depth
        found = 0
        while True:
            byte = self._next()
            if byte == 0x7B or byte == 0x5B:
                self.depth += 1
                if self.depth > _MAX_DEPTH:
                    return -1
                closing = byte + 2
                self.stack[self.depth] = closing
                self.pos += 1
                if self._next() != closing:
                    if closing == 0x7D and self._skip_name() != _OK:
                        return -1
                    continue
                self.pos += 1
                self.depth -= 1
            elif byte == 0x6E:
                if self._literal(0x6E756C6C, 4) != _OK:
                    return -1
            elif self._skip_scalar(byte) != _OK:
                return -1
            else:
                found = 1
            while self.depth > outer:
                closing = self.stack[self.depth]
                byte = self._behind(closing)
                if byte == -1:
                    return -1
                if byte != closing:
                    if closing == 0x7D and self._skip_name() != _OK:
                        return -1
                    break
                self.pos += 1
                self.depth -= 1
            if self.depth == outer:
                return found

    def _skip_name(self) -> int:
        """Goes past a name and its colon."""
        if self._next() != 0x22 or self._skip_scalar(0x22) != _OK or self._next() != 0x3A:
            return _BAD
        self.pos += 1
        return _OK

    def _skip_scalar(self, byte: int) -> int:
        if byte == 0x74 or byte == 0x66:
            return self._boolean(byte)
        if byte != 0x22:
            return self._number()
        self.pos += 1
        while self.pos < self.end:
            byte = self.buf[self.pos]
            self.pos += 1
            if byte == 0x22:
                return _OK
            if byte < 0x20 or (byte == 0x5C and self._escape() < 0):
                return _BAD
        return _BAD


def _append_utf8(column: ShredColumn, code: int) -> None:
    """There is room: an escape is never shorter than what it stands for."""
    more = 0 if code < 0x80 else 1 if code < 0x800 else 2 if code < 0x10000 else 3
    column.data[column.size] = code >> 6 * more | _LEADS[more]
    column.size += 1
    while more > 0:
        more -= 1
        column.data[column.size] = 0x80 | (code >> 6 * more & 0x3F)
        column.size += 1
