"""Writes the source of an encoder: one flat function for one message in one version.

The function appends pieces to the list `out`; joining them gives the message. Fixed-width neighbours are packed with
a single `struct` call together with the length, count or tag number that follows them. Records go into the list as
they are, so a slice of a file stays one; the function returns their places in the list where they are to stay apart.

A field that the version does not carry is dropped. In requests and stored records it must then be ignorable or hold
its default, else UnsupportedFieldError is raised. In responses it is always dropped, so that a handler fills in all
fields whatever the version.
"""

from __future__ import annotations

from functools import cache
from struct import Struct as Packer
from struct import pack
from typing import Any

from tidelog.wire.malformed import UnsupportedFieldError
from tidelog.wire.table import FIXED, FRESH, SIZED, Field, Schema, Struct
from tidelog.wire.varint import UVARINTS, encode_string_length, encode_uvarint

#: Records from this size on stay apart: joining them with the rest would cost a copy.
APART_BYTES = 16384
#: Arrays of up to this many fixed-width elements use a prepared packer.
PREPARED = 16


class EncoderSource:
    """Gathers the lines of one encoder and the objects that they name."""

    def __init__(self, schema: Schema, version: int, cls: Any) -> None:
        self.schema = schema
        self.version = version
        self.flexible = schema.flexible(version)
        self.cls = cls
        self.strict = not schema.name.endswith("Response")
        self.lines: list[str] = []
        self.indent = 1
        self.depth = 0
        self.out = "out"
        self.pending: list[tuple[str, str]] = []
        self.names: dict[str, Any] = {
            "pack": pack,
            "uvarints": UVARINTS,
            "uvarint": encode_uvarint,
            "string_length": encode_string_length,
            "BYTES_LIKE": (bytes, memoryview, bytearray),
            "UnsupportedFieldError": UnsupportedFieldError,
        }

    def source(self) -> str:
        apart = self.schema.has_records()
        if apart:
            self.emit("apart = []")
        self.struct(self.schema, "m")
        self.flush()
        self.emit(f"return {'apart' if apart else 'None'}")
        return "\n".join(["def write(m, out):", *self.lines])

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def append(self, expression: str) -> None:
        self.emit(f"{self.out}.append({expression})")

    def packed(self, pending: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in pending)
        if codes == "x":
            return r"b'\0'"
        name = "pack_" + codes.replace("?", "t")
        self.names[name] = Packer(">" + codes).pack
        return f"{name}({', '.join(value for code, value in pending if code != 'x')})"

    def flush(self) -> None:
        if self.pending:
            self.append(self.packed(self.pending))
            self.pending.clear()

    def length(self, compact: bool, code: str, long: str) -> None:
        """Write `n`, -1 for null, behind what is pending; `long` encodes a varint above 127."""
        if not compact:
            self.pending.append((code, "n"))
            self.flush()
            return
        self.emit("n += 1")
        if self.pending:
            self.emit(f"if n < 128: {self.out}.append({self.packed([*self.pending, ('B', 'n')])})")
            self.emit("else:")
            self.indent += 1
            self.flush()
            self.append(f"{long}(n)")
            self.indent -= 1
        else:
            self.append(f"uvarints[n] if n < 128 else {long}(n)")

    def struct(self, struct: Struct, var: str) -> None:
        for field in struct.absent(self.version) if self.strict else ():
            if not field.ignorable:
                self.emit(f"if not ({self.is_default(field, f'{var}.{field.name}')}):")
                where = f"{self.schema.name} v{self.version} has no {field.name}"
                self.emit(f"    raise UnsupportedFieldError('{where}')")
        for field in struct.present(self.version):
            self.field(field, f"{var}.{field.name}", self.flexible and not field.inflexible)
        if self.flexible:
            self.tags(struct.tagged(self.version), var)

    def is_default(self, field: Field, value: str) -> str:
        if field.default is None:
            if field.struct is None or field.array or field.nullable is not None:
                return f"{value} is None"
            return f"{value} is None or {value} == {self.default_struct(field)}"
        if field.default is FRESH and not field.array:
            return f"{value} == {self.default_struct(field)}"
        if field.default is FRESH or field.default == b"":
            return f"not {value} and {value} is not None" if field.nullable is not None else f"not {value}"
        return f"{value} == {field.default!r}"

    def default_struct(self, field: Field) -> str:
        self.names[f"default_{field.type}"] = getattr(self.cls, field.type)()
        return f"default_{field.type}"

    def field(self, field: Field, value: str, compact: bool) -> None:
        nullable = field.nullable_in(self.version)
        if field.array:
            self.array(field, value, compact, nullable)
        elif field.struct is not None:
            self.inner_struct(field.struct, value, nullable, field.tag is not None)
        elif field.type in SIZED:
            self.sized(field.type, value, compact, nullable)
        else:
            self.pending.append((FIXED[field.type], value))

    def sized(self, kind: str, value: str, compact: bool, nullable: bool) -> None:
        if nullable:
            self.emit(f"b = {value}")
            self.emit("if b is None: n = -1; b = b''")
            self.emit("else:")
            self.indent += 1
            value = "b"
        if kind == "string":
            self.emit(f"b = {value}.encode()")
        elif value != "b":
            self.emit(f"b = {value}")
        if kind == "records":
            self.emit(f"if isinstance(b, BYTES_LIKE): n = len(b); whole = n >= {APART_BYTES}")
            self.emit("else: n = b.size_bytes; whole = True")
        else:
            self.emit("n = len(b)")
        if nullable:
            self.indent -= 1
        if kind == "string":
            self.length(compact, "h", "string_length")
        else:
            self.length(compact, "i", "uvarint")
        if kind == "records":
            self.emit(f"if n > {1 if compact else 0}:")
            self.emit(f"    if whole: apart.append(len({self.out}))")
            self.emit(f"    {self.out}.append(b)")
        else:
            self.append("b")

    def inner_struct(self, struct: Struct, value: str, nullable: bool, tagged: bool) -> None:
        self.depth += 1
        var = f"m{self.depth}"
        self.emit(f"{var} = {value}")
        if nullable:
            self.flush()
            # What stands before a nullable struct is an int8, 1 or -1; in a tagged field it is a varint, 1 or 0.
            null = "b'\\0'" if tagged else "b'\\xff'"
            self.emit(f"if {var} is None: {self.out}.append({null})")
            self.emit("else:")
            self.indent += 1
            self.pending.append(("b", "1"))
        self.struct(struct, var)
        # What waits names `var`, which the next struct at this depth takes over.
        self.flush()
        if nullable:
            self.indent -= 1
        self.depth -= 1

    def array(self, field: Field, value: str, compact: bool, nullable: bool) -> None:
        self.depth += 1
        items, item = f"items{self.depth}", f"m{self.depth}"
        self.emit(f"{items} = {value}")
        self.emit(f"n = -1 if {items} is None else len({items})" if nullable else f"n = len({items})")
        fixed = FIXED.get(field.type) if field.struct is None else None
        if fixed is not None:
            # The elements are packed while `n` is still the plain count.
            self.emit(f"b = {self.fixed_elements(fixed, items, nullable)}")
        self.length(compact, "i", "uvarint")
        if fixed is not None:
            self.append("b")
        else:
            if nullable:
                self.emit(f"if {items}:")
                self.indent += 1
            self.emit(f"for {item} in {items}:")
            self.indent += 1
            if field.struct is not None:
                self.struct(field.struct, item)
                self.flush()
            else:
                self.sized(field.type, item, compact, nullable=False)
            self.indent -= 2 if nullable else 1
        self.depth -= 1

    def fixed_elements(self, code: str, items: str, nullable: bool) -> str:
        if code == "16s":
            packed = f"b''.join({items})"
        else:
            name = "packers_" + code.replace("?", "t")
            self.names[name] = packers(code)
            packed = f"{name}[n](*{items}) if n <= {PREPARED} else pack('>%d{code}' % n, *{items})"
        return f"b'' if {items} is None else ({packed})" if nullable else packed

    def tags(self, tagged: list[tuple[int, Field]], var: str) -> None:
        if not tagged:
            self.pending.append(("x", ""))
            return
        unset = [self.is_default(field, f"{var}.{field.name}") for _, field in tagged]
        self.emit(f"if {' and '.join(f'({test})' for test in unset)}:")
        self.indent += 1
        self.append(self.packed([*self.pending, ("x", "")]))
        self.indent -= 1
        self.emit("else:")
        self.indent += 1
        self.flush()
        self.depth += 1
        count, pieces, outer, own = f"count{self.depth}", f"pieces{self.depth}", self.out, f"out{self.depth}"
        self.emit(f"{count} = 0")
        self.emit(f"{pieces} = []")
        for (tag, field), test in zip(tagged, unset, strict=True):
            self.emit(f"if not ({test}):")
            self.indent += 1
            self.emit(f"{own} = []")
            self.out = own
            self.field(field, f"{var}.{field.name}", compact=True)
            self.flush()
            self.out = outer
            self.emit(f"b = b''.join({own})")
            self.emit(f"{pieces} += ({encode_uvarint(tag)!r}, uvarint(len(b)), b)")
            self.emit(f"{count} += 1")
            self.indent -= 1
        self.append(f"uvarint({count})")
        self.emit(f"{outer} += {pieces}")
        self.indent -= 1
        self.depth -= 1


@cache
def packers(code: str) -> tuple[Any, ...]:
    """Prepared packers of 0, 1, 2, ... elements."""
    return tuple(Packer(f">{count}{code}").pack for count in range(PREPARED + 1))


def compile_encoder(schema: Schema, version: int, cls: Any) -> Any:
    encoder = EncoderSource(schema, version, cls)
    source = encoder.source()
    exec(compile(source, f"<encode {schema.name} v{version}>", "exec"), encoder.names)
    return encoder.names["write"]
