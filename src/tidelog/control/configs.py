"""Configurations of topics, brokers, groups and client metrics: replaced as a whole, or changed key by key.

This module does not know which keys exist, their types or their valid values: `ConfigRules` is passed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from tidelog.control.draft import Draft
from tidelog.control.errors import NO_ERROR, ApiError, Rejected
from tidelog.control.image import Image
from tidelog.control.model import ConfigResource, ResourceType
from tidelog.control.topic_names import why_invalid
from tidelog.wire.errors import ErrorCode

MAX_VALUE_LENGTH = 32767


class ConfigRules(Protocol):
    def validate(
        self, resource: ConfigResource, values: Mapping[str, str], before: Mapping[str, str]
    ) -> ApiError | None:
        """Whether the resource may have exactly these values, having had `before`; None: it may."""

    def is_list(self, resource: ConfigResource, name: str) -> bool:
        """Whether values can be appended to the key and subtracted from it."""

    def default(self, resource: ConfigResource, name: str) -> str | None:
        """What the key is where it is not set: the list that the first append starts from."""


class OpType(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOp(NamedTuple):
    name: str
    type: int
    value: str | None


class IncrementalChange(NamedTuple):
    resource_type: int
    resource_name: str
    ops: Sequence[ConfigOp]


class Replacement(NamedTuple):
    """Everything that the resource is to have; what is not named goes back to its default."""

    resource_type: int
    resource_name: str
    values: Sequence[tuple[str, str | None]]


class ConfigResult(NamedTuple):
    resource_type: int
    resource_name: str
    error: ApiError = NO_ERROR


R = TypeVar("R", IncrementalChange, Replacement)


def check_config(
    rules: ConfigRules, resource: ConfigResource, values: Mapping[str, str], before: Mapping[str, str]
) -> None:
    for value in values.values():
        if len(value) > MAX_VALUE_LENGTH:
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_LENGTH} bytes.",
            )
    error = rules.validate(resource, values, before)
    if error is not None:
        raise Rejected(error.code, error.message)


class Configs:
    def __init__(self, image: Image, rules: ConfigRules) -> None:
        self._image = image
        self._rules = rules

    def change(self, changes: Sequence[IncrementalChange], draft: Draft) -> list[ConfigResult]:
        return self._each(changes, self._changed, draft)

    def replace(self, replacements: Sequence[Replacement], draft: Draft) -> list[ConfigResult]:
        return self._each(replacements, self._replaced, draft)

    def _each(
        self,
        requests: Sequence[R],
        values_of: Callable[[R, ConfigResource, Mapping[str, str]], dict[str, str]],
        draft: Draft,
    ) -> list[ConfigResult]:
        times = Counter((r.resource_type, r.resource_name) for r in requests)
        results: list[ConfigResult] = []
        for request in requests:
            key = (request.resource_type, request.resource_name)
            try:
                if times[key] > 1:
                    raise Rejected(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                resource = self._resource(*key)
                before = self._image.config(resource)
                values = values_of(request, resource, before)
                check_config(self._rules, resource, values, before)
                if values != before or resource.type is ResourceType.BROKER:
                    draft.put_config(resource, values)
                results.append(ConfigResult(*key))
            except Rejected as rejected:
                results.append(ConfigResult(*key, rejected.error))
        return results

    def _resource(self, resource_type: int, name: str) -> ConfigResource:
        try:
            resource = ConfigResource(ResourceType(resource_type), name)
        except ValueError:
            raise Rejected(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}") from None
        if resource.type is ResourceType.TOPIC:
            if not name:
                raise Rejected(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            reason = why_invalid(name)
            if reason is not None:
                raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            if name not in self._image.topics or name in self._image.deleting:
                raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        elif resource.type is ResourceType.BROKER:
            if name and not (name.isascii() and name.isdigit()):
                raise Rejected(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        elif not name:
            raise Rejected(
                ErrorCode.INVALID_REQUEST, f"Default {resource.type.name.lower()} resources are not allowed."
            )
        return resource

    def _replaced(self, request: Replacement, resource: ConfigResource, before: Mapping[str, str]) -> dict[str, str]:
        _refuse_nulls(name for name, value in request.values if value is None)
        _refuse_duplicates([name for name, _ in request.values])
        return {name: value for name, value in request.values if value is not None}

    def _changed(
        self, request: IncrementalChange, resource: ConfigResource, before: Mapping[str, str]
    ) -> dict[str, str]:
        _refuse_duplicates([op.name for op in request.ops])
        _refuse_nulls(op.name for op in request.ops if op.value is None and op.type != OpType.DELETE)
        values = dict(before)
        for op in request.ops:
            try:
                kind = OpType(op.type)
            except ValueError:
                raise Rejected(ErrorCode.INVALID_REQUEST, f"Unknown operations type {op.type}") from None
            if kind is OpType.SET and op.value is not None:
                values[op.name] = op.value
            elif kind is OpType.DELETE:
                values.pop(op.name, None)
            elif op.value is not None:
                values[op.name] = self._edit_list(kind, op.name, op.value, resource, values)
        return values

    def _edit_list(
        self, kind: OpType, name: str, value: str, resource: ConfigResource, values: Mapping[str, str]
    ) -> str:
        if not self._rules.is_list(resource, name):
            raise Rejected(ErrorCode.INVALID_CONFIG, f"Can't {kind.name} to key {name} because its type is not LIST.")
        present = values.get(name)
        if present is None:
            present = self._rules.default(resource, name) or ""
        items = [item for item in present.split(",") if item]
        for item in value.split(","):
            if kind is OpType.SUBTRACT:
                if item in items:
                    items.remove(item)
            elif item not in items:
                items.append(item)
        return ",".join(items)


def _refuse_nulls(names: Iterable[str]) -> None:
    nulls = list(names)
    if nulls:
        raise Rejected(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def _refuse_duplicates(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise Rejected(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
