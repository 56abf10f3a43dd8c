"""Text -> typed values, as Kafka's ConfigDef parses them, and typed values -> Kafka's text.

A boolean is a bool, the integers an int, a double a float, a string or class a str, a list a tuple of str, a password a
`Password`; no value is None. Text is trimmed as Java trims (everything up to U+0020), booleans are true or false in any
case, numbers are what Java's parsers take, lists are split at commas with the white space around them.
"""

from __future__ import annotations

import re

from tidelog.config.definitions import ConfigKey
from tidelog.config.errors import ConfigError, invalid_value

_TRIMMED = "".join(map(chr, range(0x21)))
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_REPLICA = re.compile(r"(?:[0-9]+:[0-9]+)?")
# Compiled on first use: only share groups need it.
_DURATION = (
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?[0-9]+)D)?"
    r"(?:T(?!$)(?:(?P<hours>[+-]?[0-9]+)H)?(?:(?P<minutes>[+-]?[0-9]+)M)?"
    r"(?:(?P<seconds>[+-]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?"
)

_BITS = {"short": 16, "int": 32, "long": 64}
_NUMBER_WORDS = {"short": "a whole number", "int": "a whole number", "long": "a whole number", "double": "a number"}
_OFFSET_RESET = "either 'earliest', 'latest' or 'by_duration:' and a duration such as PT12H"


class Password:
    """A value that must not be shown: it prints as [hidden]."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


Value = bool | int | float | str | tuple[str, ...] | Password | None


def parse(key: ConfigKey, text: str) -> Value:
    """The value that `text` gives `key`; raises ConfigError where it is not one."""
    try:
        value = _parse_type(key, text)
        if key.valid != "-":
            value = _validated(key, value)
    except ConfigError as error:
        error.hint = f"{key.name} takes {describe_valid(key)}"
        raise
    return value


def default_value(key: ConfigKey) -> Value:
    return None if key.default is None else _parse_type(key, key.default)


def to_text(value: Value) -> str | None:
    """How Kafka writes the value; a password in clear."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, Password):
        return value.value
    return str(value)


def split_list(text: str) -> tuple[str, ...]:
    trimmed = text.strip(_TRIMMED)
    return tuple(_COMMA.split(trimmed)) if trimmed else ()


def _parse_type(key: ConfigKey, text: str) -> Value:
    kind = key.type
    trimmed = text.strip(_TRIMMED)
    if kind in _BITS:
        limit = 1 << (_BITS[kind] - 1)
        if not _INTEGER.fullmatch(trimmed) or not -limit <= int(trimmed) < limit:
            raise invalid_value(key.name, text, f"Not a number of type {kind.upper()}")
        return int(trimmed)
    if kind == "boolean":
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise invalid_value(key.name, text, "Expected value to be either true or false")
        return lowered == "true"
    if kind == "list":
        return split_list(text)
    if kind == "double":
        if not _DECIMAL.fullmatch(trimmed):
            raise invalid_value(key.name, text, "Not a number of type DOUBLE")
        return float(trimmed.rstrip("fFdD"))
    if kind == "password":
        return Password(trimmed)
    return trimmed


def _validated(key: ConfigKey, value: Value) -> Value:
    valid = key.valid
    if valid.startswith("set"):
        assert isinstance(value, tuple)
        return _validated_set(key, value)
    if valid.startswith(">="):
        assert isinstance(value, (int, float))
        if value < float(valid[2:]):
            raise invalid_value(key.name, to_text(value), f"Value must be at least {valid[2:]}")
    elif ".." in valid:
        assert isinstance(value, (int, float))
        low, _, high = valid.partition("..")
        if value < float(low):
            raise invalid_value(key.name, to_text(value), f"Value must be at least {low}")
        if value > float(high):
            raise invalid_value(key.name, to_text(value), f"Value must be no more than {high}")
    elif valid.startswith("in:"):
        if value not in valid[3:].split(","):
            raise invalid_value(key.name, value, f"String must be one of: {', '.join(valid[3:].split(','))}")
    else:
        _validate_shape(key, value)
    return value


def _validate_shape(key: ConfigKey, value: Value) -> None:
    valid = key.valid
    if valid.startswith("anycase:"):
        names = valid[8:].split(",")
        if not isinstance(value, str) or value.upper() not in names:
            raise invalid_value(key.name, value, f"String must be one of (case insensitive): {', '.join(names)}")
    elif valid == "nonempty":
        if value == "":
            raise invalid_value(key.name, value, "String must be non-empty")
    elif valid == "gzip-level":
        if not isinstance(value, int) or not (value == -1 or 1 <= value <= 9):
            raise invalid_value(key.name, value, "Value must be between 1 and 9 or equal to -1")
    elif valid == "replicas":
        assert isinstance(value, tuple)
        if "".join(value) != "*" and not all(_REPLICA.fullmatch(item) for item in value):
            raise invalid_value(key.name, to_text(value), f"{key.name} must be {describe_valid(key)}")
    elif valid == "offset-reset":
        if not isinstance(value, str) or not _is_offset_reset(value):
            raise invalid_value(key.name, value, f"The value must be {_OFFSET_RESET}.")
    else:
        raise AssertionError(f"{key.name}: no such rule {valid}")


def _validated_set(key: ConfigKey, value: tuple[str, ...]) -> tuple[str, ...]:
    """Repeats are dropped, as Kafka does; empty and unknown items are errors."""
    unique = tuple(dict.fromkeys(value))
    rule, _, allowed = key.valid.partition(":")
    if rule == "set+" and not unique:
        what = f"[{allowed.replace(',', ', ')}]" if allowed else "any non-empty value"
        message = f"Configuration '{key.name}' must not be empty. Valid values include: {what}"
        raise ConfigError(message, name=key.name)
    for item in unique:
        if not item:
            raise ConfigError(f"Configuration '{key.name}' values must not be empty.", name=key.name)
        if allowed and item not in allowed.split(","):
            raise invalid_value(key.name, item, f"String must be one of: {', '.join(allowed.split(','))}")
    return unique


def _is_offset_reset(text: str) -> bool:
    if text in ("earliest", "latest"):
        return True
    strategy, _, duration = text.partition(":")
    length_ms = duration_ms(duration)
    return strategy == "by_duration" and length_ms is not None and length_ms >= 0


def duration_ms(text: str) -> int | None:
    """Milliseconds of an ISO 8601 duration in days and smaller units; None where the text is not one."""
    match = re.fullmatch(_DURATION, text, re.IGNORECASE)
    if match is None or not any(match.group("days", "hours", "minutes", "seconds")):
        return None
    units = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))
    total = sum(int(match[unit] or 0) * size_ms for unit, size_ms in units)
    thousandths = int((match["fraction"] or "").ljust(3, "0")[:3])
    total += -thousandths if (match["seconds"] or "").startswith("-") else thousandths
    return -total if match["sign"] == "-" else total


def describe_valid(key: ConfigKey) -> str:
    """What `key` takes, in words: for messages and documentation."""
    valid = key.valid
    number = _NUMBER_WORDS.get(key.type, "a value")
    if valid.startswith(">="):
        return f"{number}, at least {valid[2:]}"
    if ".." in valid:
        low, _, high = valid.partition("..")
        return f"{number} from {low} to {high}"
    if valid.startswith(("in:", "anycase:")):
        return "one of " + ", ".join(valid.partition(":")[2].split(","))
    if valid.startswith("set"):
        rule, _, allowed = valid.partition(":")
        least = ", at least one item" if rule == "set+" else ""
        of = " of " + ", ".join(allowed.split(",")) if allowed else ""
        return f"a list{of}, separated by commas{least}"
    shapes = {
        "gzip-level": "a whole number from 1 to 9, or -1",
        "replicas": "the literal '*' or a list of replicas as [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        "offset-reset": _OFFSET_RESET,
        "nonempty": "a non-empty string",
    }
    if valid in shapes:
        return shapes[valid]
    words = {"boolean": "true or false", "list": "a list, separated by commas", "class": "a class name"}
    return words.get(key.type, number if key.type in _NUMBER_WORDS else "a string")


def _double_text(value: float) -> str:
    """Java's Double.toString: plain from a thousandth to ten million, else d.dddEn."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        if "e" not in text:
            return text
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:  # repr is plain up to 1e16; Java is scientific from 1e7 on
        sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
        whole, _, fraction = digits.partition(".")
        stripped = (whole + fraction).lstrip("0")
        power = len(whole) - 1 if whole != "0" else -(len(fraction) - len(stripped)) - 1
        return _scientific(sign + stripped[0], stripped[1:], power)
    head, _, fraction = mantissa.partition(".")
    return _scientific(head, fraction, int(exponent))


def _scientific(head: str, fraction: str, power: int) -> str:
    return f"{head}.{fraction.rstrip('0') or '0'}E{power}"
