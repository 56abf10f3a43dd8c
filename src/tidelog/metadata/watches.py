"""Who watches which path, within one session."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.metadata.store import EventKind, WatchEvent


class Watches:
    __slots__ = ("_by_path",)

    def __init__(self) -> None:
        self._by_path: dict[str, list[_Watch]] = {}

    def add(self, path: str, callback: Callable[[WatchEvent], None]) -> _Watch:
        watch = _Watch(self._by_path, path, callback)
        self._by_path.setdefault(path, []).append(watch)
        return watch

    def tell(self, events: Iterable[WatchEvent]) -> None:
        by_path = self._by_path
        if not by_path:
            return
        # One call for all changes of a kind to a node: a topic of ten thousand partitions is one event, not as many.
        for event in dict.fromkeys(events):
            for watch in tuple(by_path.get(event.path, ())):
                if not watch.cancelled:
                    watch.callback(event)

    def expire(self) -> None:
        paths = list(self._by_path)
        self.tell(WatchEvent(path, EventKind.SESSION_EXPIRED) for path in paths)
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
