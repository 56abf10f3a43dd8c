"""A page of metrics in Prometheus' text format, put together a slice at a time.

prometheus-client writes a page in one go, and takes seconds for what ten thousand partitions have to tell; while it
does, the broker could not serve. So samples are written here, each into the chunk of its family, and a slice that is
over is closed (`Page.end_slice`): the page is its chunks in the order of the catalog, and is never one large string.
"""

from __future__ import annotations

from typing import Final

from tidelog.metrics.catalog import FAMILIES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labelled(**values: object) -> str:
    """`{topic="orders",partition="0"}`"""
    pairs = ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in values.items())
    return f"{{{pairs}}}"


class Page:
    __slots__ = ("_chunks", "_lines")

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {name: [] for name in FAMILIES}
        self._chunks: dict[str, list[bytes]] = {name: [] for name in FAMILIES}

    def lines(self, name: str) -> list[str]:
        """Where the lines of a family go, for whoever has many of them."""
        return self._lines[name]

    def add(self, name: str, value: float, labels: str = "", suffix: str = "") -> None:
        self._lines[name].append(f"{name}{suffix}{labels} {value}\n")

    def end_slice(self) -> None:
        for name, lines in self._lines.items():
            if lines:
                self._chunks[name].append("".join(lines).encode("utf-8", "replace"))
                lines.clear()

    def chunks(self) -> list[bytes]:
        self.end_slice()
        told: list[bytes] = []
        for name, chunks in self._chunks.items():
            if chunks:
                family = FAMILIES[name]
                told.append(f"# HELP {name} {family.meaning}\n# TYPE {name} {family.kind}\n".encode())
                told += chunks
        return told
