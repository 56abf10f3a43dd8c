"""Nodes that cannot be read, as somebody may have written them by hand.

They are left out of the image, which keeps what it knew of them, and remembered there: a topic whose node cannot be
read is not a topic that was deleted. The controller says which node it is, and reads it again when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.metadata.store import MetadataStore, Watch, WatchEvent, parent_of

if TYPE_CHECKING:
    from tidelog.control.image import NodeChange

#: what a malformed node raises when it is decoded
MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)


class MalformedNode(NamedTuple):
    """A node as it was found, and what is wrong with it."""

    change: NodeChange
    reason: str


def reason_of(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


class MalformedNodes:
    """Tells of the nodes that cannot be read, once for each, and `again` of one that has changed since."""

    def __init__(self, store: MetadataStore, notice: Callable[[str], None], again: Callable[[str], None]) -> None:
        self._store = store
        self._notice = notice
        self._again = again
        self._watches: dict[str, Watch] = {}

    def heed(self, malformed: Mapping[str, MalformedNode]) -> None:
        """These are all that there are now."""
        for path in self._watches.keys() - malformed.keys():
            self._watches.pop(path).cancel()
        for path in sorted(malformed.keys() - self._watches.keys()):
            self._watches[path] = self._store.watch(path, partial(self._changed, path))
            if not _is_below(path, malformed):
                self._notice(
                    f"{path} in the metadata store cannot be read ({malformed[path].reason}): it is left out until "
                    "somebody corrects or deletes it"
                )

    def _changed(self, path: str, event: WatchEvent) -> None:
        self._again(path)

    def close(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()


def _is_below(path: str, malformed: Mapping[str, MalformedNode]) -> bool:
    while (path := parent_of(path)) != "/":
        if path in malformed:
            return True
    return False
