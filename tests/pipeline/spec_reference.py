"""Every key of a pipeline file, with its default and what it means: the reference in the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tidelog.pipeline.spec.sections import SECTIONS
from tidelog.pipeline.spec.toml_keys import choice, keys_of


class KeyReference(NamedTuple):
    section: str
    key: str
    default: str
    says: str

    def row(self) -> str:
        """A line of the table in the documentation."""
        plain = self.default in ("required", "–") or " " in self.default
        return f"| `{self.key}` | {self.default if plain else f'`{self.default}`'} | {self.says} |"


def reference() -> Iterator[KeyReference]:
    """Every key of the file, for the documentation."""
    yield KeyReference("", "name", "required", "what the pipeline is called")
    for section, kind in SECTIONS.items():
        for name, f in keys_of(kind).items():
            yield KeyReference(section, name, _default(f), _says(f))


def _says(f: Any) -> str:
    """What a key means, and which words it takes."""
    read, says = f.metadata["read"], str(f.metadata["says"])
    if isinstance(read, choice):
        *others, last = (f'`"{word}"`' for word in read.allowed)
        return f"{says}: {', '.join(others)} or {last}"
    return says


def _default(f: Any) -> str:
    if f.metadata["shown"] is not None:
        return str(f.metadata["shown"])
    if f.default is None or f.default == ():
        return "–"
    if isinstance(f.default, (bool, int)):
        return str(f.default).lower()
    return f'"{f.default}"' if isinstance(f.default, str) else "required"
