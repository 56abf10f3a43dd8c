"""Writes the source of a decoder: one flat function for one message in one version.

The function walks the buffer with `pos`. Fixed-width neighbours are unpacked with a single `struct` call, and the
length, count or tag number that follows them is part of that same call (a varint's first byte suffices, nearly
always). Nothing is allocated by a length or count that was not held against the bytes that remain: a count is
multiplied with the smallest size that an element can have. Reading past the end shows up as IndexError or
struct.error, which the function turns into WireError at no cost for the good case.

Messages with a records field are read through a memoryview, so that records are not copied; all others through
bytes, which slice and decode in half the time.
"""

from __future__ import annotations

from functools import cache
from struct import Struct as Packer
from struct import error as StructError
from struct import unpack_from
from typing import Any

from tidelog.wire.malformed import WireError
from tidelog.wire.table import FIXED, FIXED_SIZE, FRESH, SIZED, Field, Schema, Struct
from tidelog.wire.varint import MAX_TAGS, read_more, read_more_of_string, skip_tags

#: Arrays of up to this many fixed-width elements use a prepared unpacker.
PREPARED = 16


class DecoderSource:
    """Gathers the lines of one decoder and the objects that they name."""

    def __init__(self, schema: Schema, version: int, cls: Any, counted: bool) -> None:
        self.schema = schema
        self.counted = counted
        self.version = version
        self.flexible = schema.flexible(version)
        self.cls = cls
        self.by_view = schema.has_records()
        self.lines: list[str] = []
        self.indent = 2
        self.depth = 0
        self.pending: list[tuple[str, str]] = []
        self.names: dict[str, Any] = {
            "new": object.__new__,
            "more": read_more,
            "more_of_string": read_more_of_string,
            "skip_tags": skip_tags,
            "unpack_from": unpack_from,
            "Malformed": (IndexError, StructError, UnicodeDecodeError),
            "WireError": WireError,
        }

    def source(self) -> str:
        wanted = "memoryview" if self.by_view else "bytes"
        self.emit(f"if type(buf) is not {wanted}: buf = {wanted}(buf)")
        self.emit("end = len(buf)")
        self.struct(self.schema, self.cls, "m")
        self.flush()
        self.emit("return m, pos")
        head = [f"def decode(buf, pos=0{', left=0' if self.counted else ''}):", "    try:"]
        tail = [
            "    except Malformed as cause:",
            f"        raise WireError(f'{self.schema.name} v{self.version}: {{cause}}') from None",
        ]
        return "\n".join(head + self.lines + tail)

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def flush(self) -> None:
        """Unpack the fixed-width values that are waiting."""
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        targets = ", ".join(target for _, target in self.pending)
        size = sum(FIXED_SIZE.get(code, 1) for code, _ in self.pending)
        if codes == "B":
            self.emit(f"{targets} = buf[pos]")
        else:
            name = "unpack_" + codes.replace("?", "t")
            self.names[name] = Packer(">" + codes).unpack_from
            self.emit(f"{targets}{',' if len(self.pending) == 1 else ''} = {name}(buf, pos)")
        self.emit(f"pos += {size}")
        self.pending.clear()

    def fail_if(self, condition: str, field: str) -> None:
        where = f"{self.schema.name} v{self.version} {field}"
        self.emit(f"if {condition}: raise WireError('{where}: null, or a length or count beyond the message')")

    def struct(self, struct: Struct, cls: Any, var: str) -> None:
        self.names[f"class_{struct.name}"] = cls
        self.emit(f"{var} = new(class_{struct.name})")
        tagged = struct.tagged(self.version)
        for field in [*struct.absent(self.version), *(field for _, field in tagged)]:
            self.emit(f"{var}.{field.name} = {self.default(field)}")
        for field in struct.present(self.version):
            self.field(field, f"{var}.{field.name}", self.flexible and not field.inflexible)
        if self.flexible:
            self.tags(tagged, var)

    def default(self, field: Field) -> str:
        if field.default is not FRESH:
            return repr(field.default)
        if field.array:
            return "[]"
        self.names[f"class_{field.type}"] = getattr(self.cls, field.type)
        return f"class_{field.type}()"

    def field(self, field: Field, target: str, compact: bool) -> None:
        nullable = field.nullable_in(self.version)
        if field.array:
            self.array(field, target, compact, nullable)
        elif field.struct is not None:
            self.inner_struct(field, field.struct, target, nullable)
        elif field.type in SIZED:
            self.sized(field.type, field.name, target, compact, nullable)
        else:
            self.pending.append((FIXED[field.type], target))

    def length(self, compact: bool, code: str, more: str = "more") -> None:
        """Leave a length or count in `n`; a compact one is stored plus one, so that its null is 0 instead of -1."""
        self.pending.append(("B" if compact else code, "n"))
        self.flush()
        if compact:
            self.emit(f"if n > 127: n, pos = {more}(buf, pos, n)")

    def sized(self, kind: str, name: str, target: str, compact: bool, nullable: bool) -> None:
        if kind == "string":
            self.length(compact, "h", "more_of_string")
        else:
            self.length(compact, "i")
        value = "buf[pos:q]"
        if self.by_view and kind != "records":
            value += ".tobytes()"
        if kind == "string":
            value += ".decode()"
        null = "n < 1" if compact else "n < 0"
        if nullable:
            self.open_unless(null, target)
        self.emit("q = pos + n - 1" if compact else "q = pos + n")
        self.fail_if("q > end" if nullable else f"q > end or {null}", name)
        self.emit(f"{target} = {value}")
        self.emit("pos = q")
        if nullable:
            self.indent -= 1

    def open_unless(self, null: str, target: str) -> None:
        """Leave None where the condition `null` holds; what is written from here on is for the other case."""
        self.emit(f"if {null}:")
        self.emit(f"    {target} = None")
        self.emit("else:")
        self.indent += 1

    def inner_struct(self, field: Field, struct: Struct, target: str, nullable: bool) -> None:
        self.depth += 1
        var = f"m{self.depth}"
        if nullable and field.tag is not None:
            self.length(compact=True, code="")
            self.open_unless("n == 0", target)
        elif nullable:
            self.pending.append(("b", "n"))
            self.flush()
            self.open_unless("n < 0", target)
        self.struct(struct, getattr(self.cls, struct.name), var)
        self.flush()
        self.emit(f"{target} = {var}")
        if nullable:
            self.indent -= 1
        self.depth -= 1

    def array(self, field: Field, target: str, compact: bool, nullable: bool) -> None:
        self.length(compact, "i")
        if compact:
            self.emit("n -= 1")
        smallest = self.smallest(field, compact)
        self.fail_if(("" if nullable else "n < 0 or ") + f"n * {smallest} > end - pos", field.name)
        if self.counted:
            self.emit("left -= n")
            where = f"{self.schema.name} v{self.version}"
            self.emit(f"if left < 0: raise WireError('{where}: it has more elements than are read of one request')")
        if nullable:
            self.open_unless("n < 0", target)
        if field.struct is None and field.type in FIXED:
            self.fixed_elements(FIXED[field.type], target)
        else:
            self.elements(field, target, compact)
        if nullable:
            self.indent -= 1

    def fixed_elements(self, code: str, target: str) -> None:
        if code == "16s":
            part = "buf[i:i + 16]" + (".tobytes()" if self.by_view else "")
            self.emit(f"{target} = [{part} for i in range(pos, pos + n * 16, 16)]")
        else:
            name = "unpackers_" + code.replace("?", "t")
            self.names[name] = unpackers(code)
            unpacked = f"{name}[n](buf, pos) if n <= {PREPARED} else unpack_from('>%d{code}' % n, buf, pos)"
            self.emit(f"{target} = list({unpacked})")
        self.emit(f"pos += n * {FIXED_SIZE[code]}")

    def elements(self, field: Field, target: str, compact: bool) -> None:
        self.depth += 1
        items, item = f"items{self.depth}", f"m{self.depth}"
        self.emit(f"{target} = {items} = []")
        self.emit("for _ in range(n):")
        self.indent += 1
        if field.struct is not None:
            self.struct(field.struct, getattr(self.cls, field.struct.name), item)
            self.flush()
        else:
            self.sized(field.type, field.name, item, compact, nullable=False)
        self.emit(f"{items}.append({item})")
        self.indent -= 1
        self.depth -= 1

    def tags(self, tagged: list[tuple[int, Field]], var: str) -> None:
        self.pending.append(("B", "n"))
        self.flush()
        if not tagged:
            self.emit("if n: pos = skip_tags(buf, pos, n, end)")
            return
        self.depth += 1
        tag, after = f"tag{self.depth}", f"after{self.depth}"
        self.emit("if n:")
        self.indent += 1
        self.emit("if n > 127: n, pos = more(buf, pos, n)")
        self.fail_if(f"n * 2 > end - pos or n > {MAX_TAGS}", "tagged fields")
        self.emit("for _ in range(n):")
        self.indent += 1
        self.emit(f"{tag} = buf[pos]")
        self.emit("pos += 1")
        self.emit(f"if {tag} > 127: {tag}, pos = more(buf, pos, {tag})")
        self.emit("n = buf[pos]")
        self.emit("pos += 1")
        self.emit("if n > 127: n, pos = more(buf, pos, n)")
        self.emit(f"{after} = pos + n")
        self.fail_if(f"{after} > end", "tagged field")
        # Like Kafka, a known tag is read by its type, without holding its declared size against what was read.
        for number, (known, field) in enumerate(tagged):
            self.emit(f"{'el' if number else ''}if {tag} == {known}:")
            self.indent += 1
            self.field(field, f"{var}.{field.name}", compact=True)
            self.flush()
            self.indent -= 1
        self.emit(f"else: pos = {after}")
        self.indent -= 2
        self.depth -= 1

    def smallest(self, field: Field, compact: bool) -> int:
        """The fewest bytes that one element of an array can take; at least one, so that a count is always bounded."""
        if field.struct is not None:
            return max(1, self.smallest_struct(field.struct))
        if field.type in FIXED:
            return FIXED_SIZE[FIXED[field.type]]
        if compact:
            return 1
        return 2 if field.type == "string" else 4

    def smallest_struct(self, struct: Struct) -> int:
        size = 1 if self.flexible else 0
        for field in struct.present(self.version):
            if field.array:
                size += 1 if self.flexible else 4
            elif field.struct is not None:
                size += 1 if field.nullable_in(self.version) else self.smallest_struct(field.struct)
            else:
                size += self.smallest(field, self.flexible)
        return size


@cache
def unpackers(code: str) -> tuple[Any, ...]:
    """Prepared unpackers of 0, 1, 2, ... elements."""
    return tuple(Packer(f">{count}{code}").unpack_from for count in range(PREPARED + 1))


def compile_decoder(schema: Schema, version: int, cls: Any, counted: bool = False) -> Any:
    """`counted` gives `decode(buf, pos, left)`, which refuses more than `left` elements in all arrays together."""
    decoder = DecoderSource(schema, version, cls, counted)
    source = decoder.source()
    exec(compile(source, f"<decode {schema.name} v{version}>", "exec"), decoder.names)
    return decoder.names["decode"]
