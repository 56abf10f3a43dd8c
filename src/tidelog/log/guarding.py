"""What becomes of an error of the disk inside a log's methods: its directory judges it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from tidelog.log.log import Log

P = ParamSpec("P")
R = TypeVar("R")


def guarded(method: Callable[Concatenate[Log, P], R]) -> Callable[Concatenate[Log, P], R]:
    """An OSError in the method becomes what `LogDir.refuse` says; in a directory that is offline it is not called."""

    @wraps(method)
    def guard(log: Log, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if log.directory.failure is not None:
            raise log.directory.offline()
        try:
            return method(log, *args, **kwargs)
        except OSError as error:
            raise log.directory.refuse(error, log.name) from error

    return guard
