"""Message classes made from the tables: slotted, keyword arguments, Kafka's defaults.

Every struct of a message is a class of its own, an attribute of the message's class under Kafka's name for it:
`FetchResponse.PartitionData`. A tagged struct that is absent is None, which stands for the struct with its defaults.
Type checkers see the classes in `messages.pyi`, which `tidelog.wire.stub` writes.

A class makes its messages in two ways, with the same arguments: by being called, and by its `of`, which takes little
more than half the time, because calling a class by keywords is slow in Python. What every request needs is made so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, dataclass_transform

from tidelog.wire.table import FRESH, Field, Schema, Struct

#: the response to a request
R_co = TypeVar("R_co", covariant=True)

if TYPE_CHECKING:
    M = TypeVar("M", bound="Message")

    class QuickConstructor:
        """To type checkers, `of` is the class itself."""

        def __get__(self, message: object, owner: type[M]) -> type[M]: ...


@dataclass_transform(kw_only_default=True)
class Message:
    """What all messages and their structs share: equality by value and a readable form."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __slots_in_order__: ClassVar[tuple[str, ...]] = ()
    if TYPE_CHECKING:
        of: ClassVar[QuickConstructor]

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
    made: dict[str, Any] = {"FRESH": FRESH, "new": object.__new__}
    structs = (schema, *schema.structs.values())
    exec(compile("\n".join(map(_constructors, structs)), f"<constructors of {schema.name}>", "exec"), made)
    base = RequestMessage if schema.name.endswith("Request") else Message
    for struct in structs:
        names = tuple(field.name for field in struct.fields)
        qualname = struct.name if struct is schema else f"{schema.name}.{struct.name}"
        attributes = {
            "__slots__": names,
            "__slots_in_order__": names,
            "__init__": made[f"init_{struct.name}"],
            "of": staticmethod(made[f"of_{struct.name}"]),
            "__qualname__": qualname,
            "__module__": "tidelog.wire.messages",
        }
        made[struct.name] = type(struct.name, (base if struct is schema else Message,), attributes)
    top: type[Message] = made[schema.name]
    for name in schema.structs:
        setattr(top, name, made[name])
    return top


def _constructors(struct: Struct) -> str:
    name = struct.name
    if not struct.fields:
        return f"def init_{name}(self): pass\ndef of_{name}(): return new({name})"
    parameters = ", ".join(f"{field.name}={_parameter_default(field)}" for field in struct.fields)
    lines = []
    for field in struct.fields:
        value = field.name
        if field.default is FRESH:
            fresh = "[]" if field.array else f"{field.type}()"
            value = f"{fresh} if {field.name} is FRESH else {field.name}"
        lines.append(f"    self.{field.name} = {value}")
    init = [f"def init_{name}(self, *, {parameters}):", *lines]
    of = [f"def of_{name}(*, {parameters}):", f"    self = new({name})", *lines, "    return self"]
    return "\n".join(init + of)


def _parameter_default(field: Field) -> str:
    return "FRESH" if field.default is FRESH else repr(field.default)
