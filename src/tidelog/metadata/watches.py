"""Who watches which path, within one session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.metadata.store import Committed, Create, Delete, EventKind, Op, SetData, WatchEvent, parent_of


class Watches:
    __slots__ = ("_by_path",)

    def __init__(self) -> None:
        self._by_path: dict[str, list[_Watch]] = {}

    def add(self, path: str, callback: Callable[[WatchEvent], None]) -> _Watch:
        watch = _Watch(self._by_path, path, callback)
        self._by_path.setdefault(path, []).append(watch)
        return watch

    def __contains__(self, path: str) -> bool:
        return path in self._by_path

    def paths(self) -> list[str]:
        return list(self._by_path)

    def events_of(self, ops: Sequence[Op], committed: Committed) -> list[WatchEvent]:
        """What the watchers of a transaction are to be told, in the order of its operations, each thing once: a topic
        of ten thousand partitions has ten thousand new nodes, but its parent changed."""
        watched = self._by_path
        if not watched:
            return []
        found: dict[WatchEvent, None] = {}
        for op, path in zip(ops, committed.paths, strict=True):
            if isinstance(op, SetData):
                if path in watched:
                    found[WatchEvent(path, EventKind.CHANGED)] = None
            elif isinstance(op, Create | Delete):
                if path in watched:
                    kind = EventKind.CREATED if isinstance(op, Create) else EventKind.DELETED
                    found[WatchEvent(path, kind)] = None
                if (parent := parent_of(path)) in watched:
                    found[WatchEvent(parent, EventKind.CHILDREN)] = None
        return list(found)

    def tell(self, events: Sequence[WatchEvent]) -> None:
        for event in events:
            for watch in tuple(self._by_path.get(event.path, ())):
                if not watch.cancelled:
                    watch.callback(event)

    def expire(self) -> None:
        self.tell([WatchEvent(path, EventKind.SESSION_EXPIRED) for path in self._by_path])
        self._by_path.clear()


class _Watch:
    __slots__ = ("_by_path", "callback", "cancelled", "path")

    def __init__(self, by_path: dict[str, list[_Watch]], path: str, callback: Callable[[WatchEvent], None]) -> None:
        self._by_path = by_path
        self.path = path
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        watches = self._by_path.get(self.path)
        if watches and self in watches:
            watches.remove(self)
            if not watches:
                del self._by_path[self.path]
