"""What can be wrong with a configuration, told to two readers.

A client that altered a configuration gets Kafka's error code and a message of Kafka's shape. A person who starts a
broker gets where the setting came from, what is wrong with it and what would be right: `explain()`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.wire.errors import CodedError, ErrorCode


class ConfigError(CodedError):
    """A setting that cannot be used; `where` is the source's own words for its place."""

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        hint: str | None = None,
        where: str | None = None,
        code: ErrorCode = ErrorCode.INVALID_CONFIG,
    ) -> None:
        super().__init__(message)
        self.name = name
        self.hint = hint
        self.where = where
        self.code = code

    def at(self, where: str | None) -> ConfigError:
        """The same error with its place, unless it already has one."""
        if self.where is None:
            self.where = where
        return self

    def explain(self) -> str:
        """What is wrong, where, and what to do, for a person."""
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  {self.hint}" if self.hint else text


def invalid_value(name: str, value: object, reason: str, hint: str | None = None) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}", name=name, hint=hint)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    import difflib  # late: only a mistake needs it, and a broker's start does not

    matches = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.75)
    return matches[0] if matches else None


def meant(name: str, known: Iterable[str]) -> str | None:
    """The question whether another name was meant, where there is one like it."""
    suggestion = nearest(name, known)
    if suggestion is None:
        return None
    return f"did you mean {suggestion}{', in lower case' if suggestion == name.lower() else ''}?"


def unknown_key(name: str, known: Iterable[str], what: str = "config") -> ConfigError:
    hint = meant(name, known)
    message = f"Unknown {what} name: {name}"
    return ConfigError(f"{message} ({hint})" if hint else message, name=name)
