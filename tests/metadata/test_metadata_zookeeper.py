"""The store on a real ZooKeeper, where it differs from the others: connections that break, sessions that expire,
servers that die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl
from metadata_sites import PATIENCE_S, ZooKeeperSite, ask, submit
from zookeeper_line import Line

from tidelog.clock import SystemClock
from tidelog.config.zookeeper_settings import ZooKeeperSettings, parse_connect
from tidelog.metadata.store import (
    BadPath,
    Committed,
    Connection,
    ConnectionLoss,
    Create,
    EventKind,
    MetadataStore,
    Node,
    NoNode,
    Op,
    RefusedByEnsemble,
    SessionExpired,
    SetData,
    TransactionTooLarge,
    WatchEvent,
)
from tidelog.metadata.zookeeper import ZooKeeperStore, open_store
from tidelog.metadata.zookeeper_requests import MAX_REQUEST_BYTES
from tidelog.metadata.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer, free_ports
from tidelog.net import Loop
from tidelog.timer import Timer

#: sessions this short end soon, and survive a busy machine
SHORT_SESSION_MS = 1500

MakeSite = Callable[..., ZooKeeperSite]


@pytest.fixture
def make_site(zookeeper_connect: str) -> Iterator[MakeSite]:
    sites: list[ZooKeeperSite] = []

    def make(connect: str = zookeeper_connect, **settings: int) -> ZooKeeperSite:
        sites.append(ZooKeeperSite(connect, **settings))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def site(make_site: MakeSite) -> ZooKeeperSite:
    return make_site()


@pytest.fixture
def line(zookeeper: ZooKeeperServer) -> Iterator[Line]:
    made = Line(zookeeper.port)
    yield made
    made.close()


def over(line: Line, connect: str) -> str:
    """The same chroot, at the other end of the line."""
    return f"{line.connect}/{connect.partition('/')[2]}"


def test_any_chroot_is_created_by_whoever_comes_first_and_is_the_root_of_the_tree(
    make_site: MakeSite, zookeeper_connect: str, zookeeper: ZooKeeperServer
) -> None:
    site = make_site(f"{zookeeper_connect}/a/b")
    stores = [site.open() for _ in range(3)]
    for number, store in enumerate(stores):
        assert isinstance(submit(site, store, Create(f"/{number}")), Committed)
    assert ask(site, stores[0].children, "/") == ["0", "1", "2"]
    assert [path for path, _ in ask(site, stores[0].tree, "/")] == ["/", "/0", "/1", "/2"]
    outside = make_site(zookeeper.connect)
    whole = f"/{zookeeper_connect.partition('/')[2]}/a/b/0"
    store = outside.open()
    assert all(isinstance(ask(outside, store.exists, path), Node) for path in (whole, "/zookeeper"))


def test_a_server_that_is_not_there_is_passed_over(make_site: MakeSite, zookeeper_connect: str) -> None:
    site = make_site(",".join([f"127.0.0.1:{port}" for port in free_ports(2)] + [zookeeper_connect]))
    assert isinstance(submit(site, site.open(), Create("/a")), Committed)


def test_calls_wait_for_the_first_connection_and_somebody_hears_that_it_takes_too_long(
    make_site: MakeSite, line: Line, zookeeper_connect: str
) -> None:
    line.cut()
    site = make_site(over(line, zookeeper_connect), connection_timeout_ms=100)
    states: list[Connection] = []
    store = site.open_watched(states)
    answers: list[Any] = []
    store.submit([Create("/a", b"x")], answers.append)
    store.get("/a", answers.append)
    site.turns.until(lambda: states)
    assert states == [Connection.UNREACHABLE] and answers == [] and store.session_id == 0
    line.mend()
    site.turns.until(lambda: len(answers) == 2)
    assert isinstance(answers[0], Committed) and answers[1].data == b"x"
    assert states == [Connection.UNREACHABLE, Connection.CONNECTED] and store.session_id != 0


def test_a_store_that_never_reached_a_server_can_be_closed(make_site: MakeSite) -> None:
    site = make_site(f"127.0.0.1:{free_ports(1)[0]}")
    store = site.open()
    told: list[Any] = []
    store.watch("/a", lambda event: told.append(event.kind))
    store.submit([Create("/a")], lambda result: told.append(type(result)))
    store.close(lambda: told.append("closed"))
    site.turns.until(lambda: "closed" in told)
    assert told == [SessionExpired, EventKind.SESSION_EXPIRED, "closed"]


def test_no_more_requests_are_in_flight_than_the_setting_allows(
    make_site: MakeSite, line: Line, zookeeper_connect: str
) -> None:
    site = make_site(over(line, zookeeper_connect), max_in_flight_requests=3)
    store = site.open()
    ask(site, store.exists, "/")
    line.hold_answers()
    before = line.requests
    answers: list[Any] = []
    for number in range(20):
        store.submit([Create(f"/{number}")], answers.append)
    rival = make_site()
    looking = rival.open()
    rival.turns.until(lambda: ask(rival, looking.children, "/") == ["0", "1", "2"])
    assert line.requests - before == 3
    line.release_answers()
    site.turns.until(lambda: len(answers) == 20)
    assert all(isinstance(answer, Committed) for answer in answers)


def test_a_submit_whose_answer_is_lost_is_told_so_and_the_reads_around_it_are_answered_in_order(
    make_site: MakeSite, line: Line, zookeeper_connect: str
) -> None:
    states: list[Connection] = []
    site = make_site(over(line, zookeeper_connect))
    store = site.open_watched(states)
    submit(site, store, Create("/a", b"0"))
    session = store.session_id
    line.hold_answers()
    before = line.requests
    told: list[Any] = []
    store.exists("/a", lambda node: told.append("read before"))
    store.submit([SetData("/a", b"1", 0)], told.append)
    store.children("/", told.append)
    store.tree("/", lambda tree: told.append([(path, node.data) for path, node in tree]))
    site.turns.until(lambda: line.requests - before == 4)
    line.cut()
    site.turns.until(lambda: Connection.SUSPENDED in states)
    assert told == []
    line.mend()
    site.turns.until(lambda: len(told) == 4)
    # It had happened: the server got it before the line was cut.
    assert told == ["read before", ConnectionLoss("/a"), ["a"], [("/", b""), ("/a", b"1")]]
    assert states == [Connection.CONNECTED, Connection.SUSPENDED, Connection.CONNECTED]
    assert store.session_id == session
    assert isinstance(submit(site, store, SetData("/a", b"2", 1)), Committed)


def test_what_waits_while_there_is_no_connection_is_done_once_there_is(
    make_site: MakeSite, line: Line, zookeeper_connect: str
) -> None:
    states: list[Connection] = []
    site = make_site(over(line, zookeeper_connect))
    store = site.open_watched(states)
    submit(site, store, Create("/a"), Create("/e", ephemeral=True))
    line.cut()
    site.turns.until(lambda: Connection.SUSPENDED in states)
    answers: list[Any] = []
    store.submit([SetData("/a", b"1")], answers.append)
    store.get("/a", answers.append)
    line.mend()
    site.turns.until(lambda: len(answers) == 2)
    assert isinstance(answers[0], Committed) and answers[1].data == b"1"
    assert ask(site, store.get, "/e").ephemeral_owner == store.session_id


def test_what_changed_while_the_connection_was_lost_is_told_before_a_read_shows_it_and_watches_go_on(
    make_site: MakeSite, line: Line, zookeeper_connect: str
) -> None:
    states: list[Connection] = []
    site, rival_site = make_site(over(line, zookeeper_connect)), make_site()
    store, rival = site.open_watched(states), rival_site.open()
    submit(site, store, Create("/a", b"0"))
    told: list[Any] = []
    store.watch("/a", told.append)
    store.watch("/b", told.append)
    gone = store.watch("/gone", told.append)
    ask(site, store.get, "/a")
    gone.cancel()
    line.cut()
    site.turns.until(lambda: Connection.SUSPENDED in states)
    submit(rival_site, rival, SetData("/a", b"1"), Create("/b"), Create("/gone"))
    store.get("/a", lambda node: told.append(node.data))
    assert told == []
    line.mend()
    site.turns.until(lambda: b"1" in told)
    assert {one.path for one in told[: told.index(b"1")]} == {"/a", "/b"}
    told.clear()
    store.watch("/gone", told.append)
    ask(site, store.exists, "/gone")
    for op, event in [
        (Create("/a/x"), WatchEvent("/a", EventKind.CHILDREN)),
        (SetData("/b", b""), WatchEvent("/b", EventKind.CHANGED)),
        (SetData("/gone", b""), WatchEvent("/gone", EventKind.CHANGED)),
    ]:
        submit(rival_site, rival, op)
        site.turns.until(lambda event=event: event in told)


def expire_from_elsewhere(store: ZooKeeperStore, zookeeper: ZooKeeperServer) -> None:
    """Another client with the same session ends it."""
    other = KazooClient(zookeeper.connect, client_id=(store.session_id, store._session.password))
    other.start()
    other.stop()
    other.close()


def test_a_session_that_ends_is_the_end_of_the_store_and_a_new_store_begins_anew(
    make_site: MakeSite, zookeeper: ZooKeeperServer
) -> None:
    site = make_site()
    states: list[Connection] = []
    store = site.open_watched(states)
    submit(site, store, Create("/ids"), Create("/ids/1", ephemeral=True))
    told: list[Any] = []
    store.watch("/ids", told.append)
    store.watch("/ids/1", told.append)
    store.watch("/nowhere", told.append)
    expire_from_elsewhere(store, zookeeper)
    site.turns.until(lambda: Connection.ENDED in states)
    ended = [event for event in told if event.kind is EventKind.SESSION_EXPIRED]
    assert sorted(event.path for event in ended) == ["/ids", "/ids/1", "/nowhere"]
    assert told[-3:] == ended
    assert isinstance(submit(site, store, Create("/ids/1", ephemeral=True)), SessionExpired)
    assert isinstance(ask(site, store.tree, "/"), SessionExpired)
    again = site.open()
    assert ask(site, again.children, "/ids") == []
    assert isinstance(submit(site, again, Create("/ids/1", ephemeral=True)), Committed)
    assert again.session_id != store.session_id
    assert states == [Connection.CONNECTED, Connection.SUSPENDED, Connection.ENDED]


def test_a_session_that_expires_while_the_line_is_cut_takes_everything_unanswered_with_it(
    make_site: MakeSite, line: Line, zookeeper_connect: str
) -> None:
    states: list[Connection] = []
    # Named several times, so that a client that goes on does so at once.
    connect = ",".join([line.connect, line.connect, over(line, zookeeper_connect)])
    site = make_site(connect, session_timeout_ms=SHORT_SESSION_MS)
    store = site.open_watched(states)
    rival_site = make_site()
    rival = rival_site.open()
    submit(site, store, Create("/e", ephemeral=True))
    told: list[Any] = []
    store.watch("/e", lambda event: told.append(event.kind))
    line.cut()
    site.turns.until(lambda: Connection.SUSPENDED in states)
    rival_site.turns.until(lambda: ask(rival_site, rival.exists, "/e") is None)
    store.get("/e", lambda result: told.append(type(result)))
    store.submit([Create("/e2", ephemeral=True)], lambda result: told.append(type(result)))
    line.mend()
    site.turns.until(lambda: Connection.ENDED in states)
    assert told == [SessionExpired, SessionExpired, EventKind.SESSION_EXPIRED]
    assert states == [Connection.CONNECTED, Connection.SUSPENDED, Connection.ENDED]
    # Nothing was done, and no session was opened instead.
    submit(rival_site, rival, Create("/later"))
    assert ask(rival_site, rival.children, "/") == ["later"]
    assert line.sessions == 1


def test_a_server_that_says_nothing_more_counts_as_lost(
    make_site: MakeSite, line: Line, zookeeper_connect: str
) -> None:
    """Before the session can have ended: whoever decides must stop in time."""
    states: list[Connection] = []
    site = make_site(over(line, zookeeper_connect), session_timeout_ms=2000)
    store = site.open_watched(states)
    submit(site, store, Create("/e", ephemeral=True))
    line.hold_answers()
    site.turns.until(lambda: Connection.SUSPENDED in states)
    rival_site = make_site()
    assert ask(rival_site, rival_site.open().get, "/e").ephemeral_owner == store.session_id
    line.release_answers()
    site.turns.until(lambda: states[-1] is Connection.CONNECTED)
    assert ask(site, store.get, "/e").ephemeral_owner == store.session_id


def test_a_server_that_takes_a_connection_and_says_nothing_does_not_cost_the_session(
    make_site: MakeSite, line: Line, zookeeper_connect: str
) -> None:
    site = make_site(over(line, zookeeper_connect), session_timeout_ms=3000)
    store = site.open()
    submit(site, store, Create("/e", ephemeral=True))
    line.mute_next()
    line.cut()
    line.mend()
    assert ask(site, store.get, "/e").ephemeral_owner == store.session_id


def test_calls_that_meet_the_end_of_the_session_are_all_answered_once(
    make_site: MakeSite, zookeeper: ZooKeeperServer
) -> None:
    site = make_site()
    store = site.open()
    submit(site, store, Create("/a"))
    answers: list[tuple[int, Any]] = []
    ender = threading.Thread(target=expire_from_elsewhere, args=(store, zookeeper))
    ender.start()
    asked = 0
    while not answers or not isinstance(answers[-1][1], SessionExpired):
        for _ in range(20):
            store.submit([SetData("/a", b"%d" % asked)], lambda result, number=asked: answers.append((number, result)))
            asked += 1
        site.turns.until(lambda waiting=asked: len(answers) == waiting)
    ender.join()
    assert [number for number, _ in answers] == list(range(asked))
    kinds = [type(result) for _, result in answers]
    assert kinds == sorted(kinds, key=[Committed, ConnectionLoss, SessionExpired].index)


def test_a_transaction_as_large_as_the_server_takes_is_done_and_a_larger_one_refused(site: ZooKeeperSite) -> None:
    store = site.open()
    submit(site, store, Create("/a"), Create("/b"), Create("/ü"))

    def largest(more: int) -> list[Op]:
        ops: list[Op] = [Create("/n-", b"x", sequential=True), SetData("/ü", b""), Create("/e", b"", ephemeral=True)]
        return [*ops, SetData("/b", b"", 0), SetData("/a", bytes(room + more), 0)]

    room = 0
    refused = ask(site, store.submit, [*largest(MAX_REQUEST_BYTES)])
    assert isinstance(refused, TransactionTooLarge)
    room = 2 * MAX_REQUEST_BYTES - int(refused.path.split(" are ")[1].split()[0])
    assert isinstance(ask(site, store.submit, largest(1)), TransactionTooLarge)
    assert str(MAX_REQUEST_BYTES) in ask(site, store.submit, largest(1)).path
    assert isinstance(ask(site, store.submit, largest(0)), Committed)
    assert len(ask(site, store.get, "/a").data) == room
    assert store.connection is Connection.CONNECTED


@pytest.mark.parametrize("name", [".", "..", "a\tb", "\x7f", "\ud800", "\ue000", "😀", "\uffff"])
def test_names_that_zookeeper_does_not_take_are_refused(site: ZooKeeperSite, name: str) -> None:
    store = site.open()
    assert submit(site, store, Create(f"/{name}")) == BadPath(f"/{name}", 0)
    assert submit(site, store, SetData(f"/{name}", b"")) == NoNode(f"/{name}", 0)
    assert ask(site, store.exists, f"/{name}/below") is None
    assert isinstance(submit(site, store, Create("/ok")), Committed)


def test_what_the_ensemble_refuses_for_its_own_reasons_is_said(
    site: ZooKeeperSite, zookeeper: ZooKeeperServer, zookeeper_connect: str
) -> None:
    store = site.open()
    submit(site, store, Create("/open"))
    owner = KazooClient(zookeeper.connect)
    owner.start()
    chroot = "/" + zookeeper_connect.partition("/")[2]
    owner.create(f"{chroot}/closed", acl=[make_acl("digest", "someone:else", all=True)])
    owner.stop()
    owner.close()
    refused = submit(site, store, SetData("/open", b""), SetData("/closed", b""))
    assert isinstance(refused, RefusedByEnsemble) and refused.index == 1 and "/closed" in refused.path
    read = ask(site, store.get, "/closed")
    assert isinstance(read, RefusedByEnsemble) and "NoAuth" in read.path
    tree = ask(site, store.tree, "/")
    assert isinstance(tree, RefusedByEnsemble) and "/closed" in tree.path


def test_callbacks_run_on_the_thread_of_the_loop(zookeeper_connect: str) -> None:
    clock = SystemClock()
    loop = Loop(clock, Timer(clock.monotonic_ms()))
    servers, chroot = parse_connect(zookeeper_connect)
    threads: list[int] = []

    def note(result: object) -> None:
        threads.append(threading.get_ident())

    store = open_store(ZooKeeperSettings(servers, chroot), loop.call_soon_threadsafe, on_connection=note, notice=note)
    store.watch("/a", note)
    store.submit([Create("/a")], note)
    store.tree("/", lambda tree: (note(tree), store.close(loop.stop)))
    watchdog = threading.Timer(PATIENCE_S, loop.stop)
    watchdog.start()
    loop.run()
    watchdog.cancel()
    loop.close()
    assert store.connection is Connection.ENDED
    # connected, the event, two answers, the end of the watch and of the connection
    assert threads == [threading.get_ident()] * 6


def keep_writing(site: ZooKeeperSite, store: MetadataStore, count: int) -> list[Any]:
    """Submits one after the other that each change the node again; a read after each."""
    answers: list[Any] = []
    for number in range(count):
        store.submit([SetData("/a", b"%d" % number)], answers.append)
        store.get("/a", answers.append)
    return answers


def test_a_server_that_is_killed_and_started_again_has_what_it_acknowledged(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path, tick_ms=200) as server:
        states: list[Connection] = []
        site = ZooKeeperSite(f"{server.connect}/chroot", session_timeout_ms=20_000)
        store = site.open_watched(states)
        submit(site, store, Create("/a", b"-1"), Create("/e", ephemeral=True))
        answers = keep_writing(site, store, 300)
        site.turns.until(lambda: len(answers) > 100)
        server.kill()
        site.turns.until(lambda: Connection.SUSPENDED in states)
        server.start()
        site.turns.until(lambda: len(answers) == 600)
        submits, reads = answers[::2], answers[1::2]
        assert {type(result) for result in submits} <= {Committed, ConnectionLoss}
        assert all(isinstance(node, Node) for node in reads)
        zxids = [result.zxid for result in submits if isinstance(result, Committed)]
        assert zxids == sorted(zxids)
        # A read after a submit that was acknowledged shows it, or what came after it.
        for number, (result, node) in enumerate(zip(submits, reads, strict=True)):
            assert not isinstance(result, Committed) or int(node.data) >= number
        assert ask(site, store.get, "/e").ephemeral_owner == store.session_id
        site.close()


@pytest.mark.slow
def test_an_ensemble_of_three_goes_on_without_its_leader(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path, tick_ms=300) as ensemble:
        states: list[Connection] = []
        site = ZooKeeperSite(f"{ensemble.connect}/kafka", session_timeout_ms=20_000)
        stores = [site.open_watched(states) for _ in range(6)]  # some on each server
        submit(site, stores[0], Create("/a"), Create("/ids"))
        epochs = [submit(site, store, Create(f"/ids/{n}", ephemeral=True)).zxid for n, store in enumerate(stores)]
        # As much as one server takes passes through all of them.
        large = SetData("/a", bytes(MAX_REQUEST_BYTES - 100))
        assert all(isinstance(submit(site, store, large), Committed) for store in stores)
        told: list[Any] = []
        for store in stores:
            store.watch("/a", told.append)
            ask(site, store.get, "/a")
        (leader,) = [server for server in ensemble.servers if server.mode == "leader"]
        leader.kill()
        # All connections break while the others elect; a submit that was lost with its connection is tried again.
        for store in stores:
            site.turns.until(lambda store=store: isinstance(submit(site, store, SetData("/a", b"x")), Committed))
        assert [node.czxid for _, node in ask(site, stores[0].tree, "/ids")[1:]] == epochs
        site.turns.until(lambda: {event.path for event in told} == {"/a"} and len(told) >= len(stores))
        assert Connection.SUSPENDED in states and Connection.ENDED not in states
        site.close()
