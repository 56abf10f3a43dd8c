"""Message classes made from the tables: slotted, keyword arguments, Kafka's defaults.

Every struct of a message is a class of its own, an attribute of the message's class under Kafka's name for it:
`FetchResponse.PartitionData`. A tagged struct that is absent is None, which stands for the struct with its defaults.
Type checkers see the classes in `messages.pyi`, which `tidelog.wire.stub` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, dataclass_transform

from tidelog.wire.table import FRESH, Field, Schema, Struct

#: the response to a request
R_co = TypeVar("R_co", covariant=True)


@dataclass_transform(kw_only_default=True)
class Message:
    """What all messages and their structs share: equality by value and a readable form."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __slots_in_order__: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots_in_order__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots_in_order__)
        return f"{type(self).__qualname__}({values})"


class RequestMessage(Message, Generic[R_co]):
    """A request; a type checker learns from it which response belongs to it."""

    __slots__ = ()


if TYPE_CHECKING:

    class FilePart(Protocol):
        """A slice of a file, which stands for `size_bytes` bytes."""

        @property
        def size_bytes(self) -> int: ...

    class Records:
        """A field of records: a decoder gives a view of its input, an encoder takes any bytes, and slices of files."""

        def __get__(self, message: object, owner: object = None) -> memoryview | None: ...

        def __set__(self, message: object, value: bytes | bytearray | memoryview | FilePart | None) -> None: ...


def make_class(schema: Schema) -> type[Message]:
    """The class of a message, with the classes of its structs as attributes."""
    made: dict[str, Any] = {"FRESH": FRESH}
    structs = (schema, *schema.structs.values())
    exec(compile("\n".join(map(_constructor, structs)), f"<constructors of {schema.name}>", "exec"), made)
    base = RequestMessage if schema.name.endswith("Request") else Message
    for struct in structs:
        names = tuple(field.name for field in struct.fields)
        qualname = struct.name if struct is schema else f"{schema.name}.{struct.name}"
        attributes = {
            "__slots__": names,
            "__slots_in_order__": names,
            "__init__": made[f"init_{struct.name}"],
            "__qualname__": qualname,
            "__module__": "tidelog.wire.messages",
        }
        made[struct.name] = type(struct.name, (base if struct is schema else Message,), attributes)
    top: type[Message] = made[schema.name]
    for name in schema.structs:
        setattr(top, name, made[name])
    return top


def _constructor(struct: Struct) -> str:
    if not struct.fields:
        return f"def init_{struct.name}(self): pass"
    parameters = ", ".join(f"{field.name}={_parameter_default(field)}" for field in struct.fields)
    lines = [f"def init_{struct.name}(self, *, {parameters}):"]
    for field in struct.fields:
        value = field.name
        if field.default is FRESH:
            fresh = "[]" if field.array else f"{field.type}()"
            value = f"{fresh} if {field.name} is FRESH else {field.name}"
        lines.append(f"    self.{field.name} = {value}")
    return "\n".join(lines)


def _parameter_default(field: Field) -> str:
    return "FRESH" if field.default is FRESH else repr(field.default)
