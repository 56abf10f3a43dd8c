"""One session with a ZooKeeper ensemble: a kazoo client, and the way from its thread to the broker's.

kazoo has a thread that reads and writes the connection. By default it hands answers to a second thread and watch events
to a third, so that nobody can tell what came first. Here both are taken on the thread that read them, in the order of
the connection, and only put into one queue; the broker's thread empties it. At that moment `last_zxid` is the zxid of
the very reply, which for a transaction is its own.

A session ends once. kazoo would open another one under the same client and send what is queued in it. So from the
moment that the end is known the client gets no more connections (`_Handler.create_connection`), and is stopped from a
thread of its own, since stopping waits.

    CONNECTING ──▶ CONNECTED ◀──▶ SUSPENDED
        └───────────────┴──────────────┴──▶ ENDED
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from tidelog.config.zookeeper_settings import ZooKeeperSettings
from tidelog.metadata.store import Connection

Post = Callable[[Callable[[], object]], None]
#: the answer, or the exception that stands for it, and the zxid of the reply
Answered = Callable[[object, int], None]

RETRY_DELAY_S = 0.1
#: A server that comes back is found within this time.
LONGEST_RETRY_DELAY_S = 1.0


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's door to threads and sockets: no threads for callbacks, and no connection after the end.

    A server that starts may accept a connection and never say a word on it. kazoo would wait for as long as a session
    lasts, and lose it. Here a third of that is the longest that a server may be silent where it has to speak, so that
    there is time for another attempt."""

    def __init__(self, settings: ZooKeeperSettings, waiting: Callable[[], None]) -> None:
        super().__init__()
        self._connection_timeout_s = settings.connection_timeout_ms / 1000
        self._silence_s = settings.session_timeout_ms / 3000
        self._waiting = waiting
        self.ended = False

    def start(self) -> None:
        """It never runs, so that kazoo gives answers at once, on the thread that read them."""

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        if self.ended:
            raise OSError("the session is over")
        return super().create_connection(*args, timeout=min(timeout, self._connection_timeout_s), **kwargs)

    def select(self, read: list[Any], write: list[Any], failed: list[Any], timeout: float) -> Any:
        is_idle = len(read) > 1  # for whatever comes first, a request of ours or word from the server
        return super().select(read, write, failed, timeout if is_idle else min(timeout, self._silence_s))

    def sleep_func(self, seconds: float) -> None:
        """Called between two attempts to connect."""
        self._waiting()
        time.sleep(seconds)


class _Failures(logging.Handler):
    """What kazoo did not foresee is told; what it says of connections we know."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self._tell(f"ZooKeeper's client: {record.getMessage()}{f' ({cause!r})' if cause else ''}")


class Watcher:
    """What kazoo calls for an event. One serves all watches of a path: kazoo holds it once, however often it is set."""

    __slots__ = ("_fired", "_last")

    def __init__(self, fired: Callable[[str], None]) -> None:
        self._fired = fired
        self._last: WatchedEvent | None = None

    def __call__(self, event: WatchedEvent) -> None:
        # A deletion comes twice, for the node and for its children. Without a type it tells that the connection is
        # lost, which is heard otherwise.
        if event is not self._last and event.type != EventType.NONE:
            self._last = event
            self._fired(event.type)


class Session:
    """`on_change` gets each new state; `session_id` is known from the first CONNECTED on. All callbacks run on the
    broker's thread, in the order of what happened on the connection."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        post: Post,
        on_change: Callable[[Connection], None],
        notice: Callable[[str], None],
    ) -> None:
        self._post = post
        self._on_change = on_change
        self._notice = notice
        self._arrived: deque[Callable[[], None]] = deque()
        self._posted = False
        self.session_id = 0
        self.password = b""
        self._unreachable_at = time.monotonic() + settings.connection_timeout_ms / 1000
        self._handler = _Handler(settings, self._waiting)
        self._client = KazooClient(
            settings.hosts,
            timeout=settings.session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RETRY_DELAY_S,
                max_delay=LONGEST_RETRY_DELAY_S,
                sleep_func=self._handler.sleep_func,
            ),
            command_retry=KazooRetry(sleep_func=self._handler.sleep_func),
            logger=self._logger(),
        )
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    def _logger(self) -> logging.Logger:
        logger = logging.Logger("tidelog.zookeeper", logging.ERROR)
        logger.addHandler(_Failures(lambda text: self._hand_over(partial(self._notice, text))))
        return logger

    # Asking, on the broker's thread

    def get(self, path: str, answered: Answered) -> None:
        self._ask(self._client.get_async(path), answered)

    def children(self, path: str, watcher: Watcher | None, answered: Answered) -> None:
        self._ask(self._client.get_children_async(path, watcher), answered)

    def exists(self, path: str, watcher: Watcher, answered: Answered) -> None:
        self._ask(self._client.exists_async(path, watcher), answered)

    def watcher(self, fired: Callable[[str], None]) -> Watcher:
        """For the watches of one path: `fired` gets the type of each event."""
        return Watcher(lambda event_type: self._hand_over(partial(fired, event_type)))

    def multi(self, operations: list[Any], answered: Answered) -> None:
        transaction = self._client.transaction()
        transaction.operations = operations
        self._ask(transaction.commit_async(), answered)

    def read_many(self, request: object, answered: Answered) -> None:
        """A request of our own."""
        answer = self._handler.async_result()
        self._client._call(request, answer)
        self._ask(answer, answered)

    def sync(self, path: str, answered: Answered) -> None:
        """Answered when this server knows all that the ensemble knew when it was asked."""
        self._ask(self._client.sync_async(path), answered)

    def ensure(self, path: str, answered: Answered) -> None:
        self._ask(self._client.ensure_path_async(path), answered)

    def _ask(self, answer: Any, answered: Answered) -> None:
        answer.rawlink(partial(self._take, answered))

    def close(self, on_end: Callable[[], None]) -> None:
        """Ends the session at the ensemble, or gives up the attempt to reach it."""
        Thread(target=self._stop, args=(on_end,), name="zookeeper-close", daemon=True).start()

    # On kazoo's thread

    def _take(self, answered: Answered, answer: Any) -> None:
        result = answer.value if answer.successful() else answer.exception
        self._hand_over(partial(answered, result, self._client.last_zxid))

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._hand_over(partial(self._connected, *self._client.client_id))
        elif state == KazooState.SUSPENDED:
            self._hand_over(partial(self._on_change, Connection.SUSPENDED))
        else:
            self._handler.ended = True
            self._hand_over(partial(self._on_change, Connection.ENDED))

    def _waiting(self) -> None:
        if not self.session_id and time.monotonic() >= self._unreachable_at:
            self._unreachable_at = float("inf")
            self._hand_over(partial(self._on_change, Connection.UNREACHABLE))

    def _hand_over(self, callback: Callable[[], None]) -> None:
        self._arrived.append(callback)
        if not self._posted:
            self._posted = True
            self._post(self._drain)

    # On the thread that closes

    def _stop(self, on_end: Callable[[], None]) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            self._hand_over(partial(self._notice, f"the ZooKeeper session was not closed in order: {error!r}"))
        self._hand_over(on_end)

    # On the broker's thread

    def _connected(self, session_id: int, password: bytes) -> None:
        self.session_id, self.password = session_id, password
        self._on_change(Connection.CONNECTED)

    def _drain(self) -> None:
        """What a callback raised does not take the others with it."""
        self._posted = False  # before looking: what is added from here on is posted anew
        raised: Exception | None = None
        for _ in range(len(self._arrived)):
            try:
                self._arrived.popleft()()
            except Exception as error:
                raised = raised or error
        if raised is not None:
            raise raised
