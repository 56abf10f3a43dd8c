"""The answer to a request that failed as a whole: its error at the top, or on every item that was asked for.

About half of the APIs have no place for an error at the top of their response, or have none in some versions. Their
clients look for their items and would wait for, or lose, what they do not find; so each item of the request comes back
with the error. `ECHOES` says which lists of the request become which lists of the response.

A produce with acks=0 has no response at all: None says that only closing the connection can tell.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.wire import messages
from tidelog.wire.codec import response_codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.wire.classes import Message
    from tidelog.wire.table import Struct

NO_EXTRAS: Final[Mapping[str, object]] = MappingProxyType({})
#: in `Echo.copied`: the item is a plain value, not a struct
ITSELF: Final = ""


class Echo(NamedTuple):
    """The items of `asked` come back in `answered`, with fields `copied` (asked, answered) and constant `extras`."""

    asked: str
    answered: str
    copied: tuple[tuple[str, str], ...]
    below: Echo | None = None
    extras: Mapping[str, object] = NO_EXTRAS


def _same(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


_RESOURCES: Final = Echo("resources", "responses", _same("resource_type", "resource_name"))
_PARTITION_INDEXES: Final = Echo(
    "topics", "topics", _same("name"), Echo("partition_indexes", "partitions", ((ITSELF, "partition_index"),))
)
_GROUP_IDS: Final = Echo("group_ids", "groups", ((ITSELF, "group_id"),))

ECHOES: Final[dict[int, tuple[Echo, ...]]] = {
    0: (
        Echo(
            "topic_data",
            "responses",
            _same("name", "topic_id"),
            Echo("partition_data", "partition_responses", _same("index"), extras={"base_offset": -1}),
        ),
    ),
    1: (
        Echo(
            "topics",
            "responses",
            _same("topic", "topic_id"),
            Echo(
                "partitions",
                "partitions",
                (("partition", "partition_index"),),
                extras={"high_watermark": -1, "records": b""},
            ),
        ),
    ),
    2: (Echo("topics", "topics", _same("name"), Echo("partitions", "partitions", _same("partition_index"))),),
    3: (Echo("topics", "topics", _same("name", "topic_id")),),
    8: (
        Echo("topics", "topics", _same("name", "topic_id"), Echo("partitions", "partitions", _same("partition_index"))),
    ),
    9: (
        Echo("groups", "groups", _same("group_id")),
        Echo(
            "topics",
            "topics",
            _same("name"),
            Echo(
                "partition_indexes",
                "partitions",
                ((ITSELF, "partition_index"),),
                extras={"committed_offset": -1, "metadata": ""},
            ),
        ),
    ),
    10: (
        Echo(
            "coordinator_keys",
            "coordinators",
            ((ITSELF, "key"),),
            extras={"node_id": -1, "host": "", "port": -1},
        ),
    ),
    15: (Echo("groups", "groups", ((ITSELF, "group_id"),)),),
    19: (Echo("topics", "topics", _same("name")),),
    20: (Echo("topic_names", "responses", ((ITSELF, "name"),)), Echo("topics", "responses", _same("name", "topic_id"))),
    21: (
        Echo(
            "topics",
            "topics",
            _same("name"),
            Echo("partitions", "partitions", _same("partition_index"), extras={"low_watermark": -1}),
        ),
    ),
    23: (Echo("topics", "topics", _same("topic"), Echo("partitions", "partitions", _same("partition"))),),
    24: (
        Echo(
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
            _same("name"),
            Echo("partitions", "results_by_partition", ((ITSELF, "partition_index"),)),
        ),
    ),
    27: (
        Echo(
            "markers",
            "markers",
            _same("producer_id"),
            Echo(
                "topics",
                "topics",
                _same("name"),
                Echo("partition_indexes", "partitions", ((ITSELF, "partition_index"),)),
            ),
        ),
    ),
    28: (Echo("topics", "topics", _same("name"), Echo("partitions", "partitions", _same("partition_index"))),),
    30: (Echo("creations", "results", ()),),
    31: (Echo("filters", "filter_results", ()),),
    32: (Echo("resources", "results", _same("resource_type", "resource_name")),),
    33: (_RESOURCES,),
    34: (
        Echo(
            "dirs.topics",
            "results",
            (("name", "topic_name"),),
            Echo("partitions", "partitions", ((ITSELF, "partition_index"),)),
        ),
    ),
    37: (Echo("topics", "results", _same("name")),),
    42: (Echo("groups_names", "results", ((ITSELF, "group_id"),)),),
    43: (
        Echo(
            "topic_partitions",
            "replica_election_results",
            _same("topic"),
            Echo("partitions", "partition_result", ((ITSELF, "partition_id"),)),
        ),
    ),
    44: (_RESOURCES,),
    61: (_PARTITION_INDEXES,),
    65: (Echo("transactional_ids", "transaction_states", ((ITSELF, "transactional_id"),)),),
    69: (_GROUP_IDS,),
    75: (Echo("topics", "topics", _same("name")),),
    10002: (_PARTITION_INDEXES,),
    10003: (Echo("offsets", "results", ((ITSELF, "offset"),)),),
}


def refuse(api_key: int, version: int, body: Message, code: int, message: str | None) -> Message | None:
    """A response that carries nothing but an error; None where the request has no response."""
    if isinstance(body, messages.ProduceRequest) and body.acks == 0:
        return None
    codec = response_codec(api_key, version)
    refusal = _Refusal(codec.message_class, version, code, message)
    response: Message = codec.message_class()
    refusal.mark(response, codec.schema)
    for echo in ECHOES.get(api_key, ()):
        items = _items(body, echo.asked)
        if items:
            getattr(response, echo.answered).extend(refusal.answers(codec.schema, echo, items))
    return response


def _items(body: Message, asked: str) -> Sequence[object]:
    """The items of a list, or of the lists below a list: `dirs.topics`."""
    outer, _, inner = asked.partition(".")
    items: Sequence[object] = getattr(body, outer)
    return [item for one in items for item in getattr(one, inner)] if inner else items


class _Refusal:
    __slots__ = ("_code", "_message", "_top", "_version")

    def __init__(self, top: type[Message], version: int, code: int, message: str | None) -> None:
        self._top = top
        self._version = version
        self._code = code
        self._message = message

    def mark(self, answer: Message, struct: Struct) -> None:
        for field in struct.fields:
            if field.in_version(self._version):
                if field.name in ("error_code", "partition_error_code"):
                    setattr(answer, field.name, self._code)
                elif field.name == "error_message":
                    setattr(answer, field.name, self._message)

    def answers(self, parent: Struct, echo: Echo, items: Iterable[object]) -> list[Message]:
        struct = next(field.struct for field in parent.fields if field.name == echo.answered)
        assert struct is not None
        kind = getattr(self._top, struct.name)
        answers: list[Message] = []
        for item in items:
            answer = kind(**echo.extras)
            self._copy(echo, item, answer, struct)
            if echo.below is None:
                self.mark(answer, struct)
            else:
                below = self.answers(struct, echo.below, getattr(item, echo.below.asked))
                setattr(answer, echo.below.answered, below)
            answers.append(answer)
        return answers

    def _copy(self, echo: Echo, item: object, answer: Message, struct: Struct) -> None:
        fields = {field.name: field for field in struct.fields}
        for name, to in echo.copied:
            value = item if name == ITSELF else getattr(item, name)
            if value is None and not fields[to].nullable_in(self._version):
                # A request may leave a name out where its response may not.
                value = fields[to].default
            setattr(answer, to, value)
