"""A long request as several short ones, and their answers as one.

A request that asks the same of many items means no more than many requests that ask it of a few: each part goes to the
handler by itself, and what `refusal.ECHOES` says of lists that are asked and lists that are answered says how to cut
and to join. Only what reads, or what Apache Kafka does item by item, is cut; what must happen as a whole stays whole.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from tidelog.api.refusal import ECHOES, Echo
from tidelog.api.request import Request
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.wire.classes import Message

    Resource = messages.DescribeConfigsRequest.DescribeConfigsResource

ERROR_CODE: Final = "error_code"
#: items of one part
PART_ITEMS: Final = 200
#: where the answer to one item is long
PART_ITEMS_OF: Final[dict[int, int]] = {ApiKey.DESCRIBE_CONFIGS: 10}

_CUT: Final = frozenset(
    (
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DELETE_GROUPS,
        ApiKey.ELECT_LEADERS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.CANCEL_DELAYS,
    )
)


def parts_of(api_key: int, body: Message) -> list[Message]:
    """Requests that together ask what `body` asks; itself alone where it is short or may not be cut."""
    if api_key in _CUT:
        if isinstance(body, messages.DescribeConfigsRequest):
            body.resources = distinct_resources(body.resources)
        elif isinstance(body, messages.DeleteGroupsRequest):
            # A group that is named twice is deleted once, and answered once.
            body.groups_names = list(dict.fromkeys(body.groups_names))
        elif isinstance(body, messages.CancelDelaysRequest):
            body.offsets = list(dict.fromkeys(body.offsets))
        for echo in ECHOES[api_key]:
            items: list[object] = getattr(body, echo.asked)
            if items:
                return _cut(body, echo, items, PART_ITEMS_OF.get(api_key, PART_ITEMS))
    return [body]


def _cut(body: Message, echo: Echo, items: list[object], part_items: int) -> list[Message]:
    below = echo.below
    parts: list[list[object]] = [[]]
    room = part_items
    for item in items:
        inner = getattr(item, below.asked) if below is not None else ()
        begin = 0
        while begin == 0 or begin < len(inner):
            if room <= 0:
                parts.append([])
                room = part_items
            piece = item
            if begin or len(inner) > room:
                assert below is not None
                piece = copy(item)
                setattr(piece, below.asked, inner[begin : begin + room])
            taken = max(1, min(room, len(inner) - begin))
            parts[-1].append(piece)
            begin += taken
            room -= taken
    cut = []
    for part in parts:
        message = copy(body)
        setattr(message, echo.asked, part)
        cut.append(message)
    return cut


def distinct_resources(resources: list[Resource]) -> list[Resource]:
    """Each resource once, with all the keys that were asked of it: clients look for one answer to a resource."""
    distinct: dict[tuple[int, str], Resource] = {}
    keys: dict[tuple[int, str], dict[str, None]] = {}
    for resource in resources:
        identity = resource.resource_type, resource.resource_name
        first = distinct.setdefault(identity, resource)
        if first is resource or not first.configuration_keys:  # no keys are all keys
            continue
        if not resource.configuration_keys:
            first.configuration_keys = None
            keys.pop(identity, None)
        else:
            known = keys.setdefault(identity, dict.fromkeys(first.configuration_keys))
            known.update(dict.fromkeys(resource.configuration_keys))
    for identity, known in keys.items():
        distinct[identity].configuration_keys = list(known)
    return list(distinct.values())


class Answers(Request):
    """The parts of a request, as their handler sees them; the whole is answered with the last of them."""

    __slots__ = ("_answered", "_left", "_shared", "_whole")

    def __init__(self, request: Request, parts: int) -> None:
        super().__init__(
            request.doors,
            request.exchange,
            request.api_key,
            request.version,
            request.correlation_id,
            request.client_id,
            request.meter,
        )
        self._left = parts
        self._shared: dict[Hashable, Any] = {}
        self._whole: Message | None = None
        #: list of the answer -> what identifies an item of it -> the item, where parts may tell of the same
        self._answered: dict[str, dict[Hashable, object]] = {}

    @property
    def is_part(self) -> bool:
        return True

    def shared(self) -> dict[Hashable, Any]:
        return self._shared

    def reply(self, message: Message) -> None:
        self._left -= 1
        if self._whole is None:
            self._whole = message
            for echo in ECHOES[self.api_key]:
                if echo.below is not None:
                    items = getattr(message, echo.answered)
                    self._answered[echo.answered] = {_identity(echo, item): item for item in items}
        else:
            self._join(self._whole, message)
        if not self._left:
            self.doors.slices.add(self._write_and_send(self._whole))

    def _join(self, whole: Message, message: Message) -> None:
        code = getattr(message, ERROR_CODE, 0)
        if code:
            setattr(whole, ERROR_CODE, code)
        for echo in ECHOES[self.api_key]:
            items = getattr(message, echo.answered)
            below = echo.below
            if below is None:
                getattr(whole, echo.answered).extend(items)
                continue
            known = self._answered[echo.answered]
            for item in items:
                first = known.setdefault(_identity(echo, item), item)
                if first is item:
                    getattr(whole, echo.answered).append(item)
                else:
                    getattr(first, below.answered).extend(getattr(item, below.answered))


def _identity(echo: Echo, item: object) -> Hashable:
    return tuple(getattr(item, answered) for _, answered in echo.copied)
