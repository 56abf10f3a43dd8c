"""What every store promises, whatever it stands on: the embedded one, an ensemble in memory, a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from metadata_sites import EmbeddedSite, MemorySite, Site, ZooKeeperSite, ask, submit

from tidelog.metadata.store import (
    NO_VERSION,
    BadPath,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SetData,
    WatchEvent,
)

ZOOKEEPER = pytest.param("zookeeper", marks=pytest.mark.zookeeper)
#: for claims about two sessions; an embedded store has one only
of_several_sessions = pytest.mark.parametrize("site", ["memory", ZOOKEEPER], indirect=True)


@pytest.fixture(params=["memory", "embedded", ZOOKEEPER])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made: Site
    if request.param == "memory":
        made = MemorySite()
    elif request.param == "embedded":
        made = EmbeddedSite(tmp_path)
    else:
        made = ZooKeeperSite(request.getfixturevalue("zookeeper_connect"))
    yield made
    made.close()


@pytest.fixture
def store(site: Site) -> MetadataStore:
    return site.open()


@pytest.fixture
def rival(site: Site) -> MetadataStore:
    """Another session on the same tree."""
    return site.open()


def without_repeats(told: list[Any]) -> list[Any]:
    """Several changes may be told as one, and one change twice."""
    return [one for one, before in zip(told, [None, *told], strict=False) if one != before]


def test_a_transaction_tells_its_zxid_its_paths_and_their_versions(site: Site, store: MetadataStore) -> None:
    first = submit(site, store, Create("/a", b"1"), Create("/a/b"), Create("/a/s-", sequential=True))
    assert (first.paths, first.versions) == (["/a", "/a/b", "/a/s-0000000001"], [0, 0, 0])
    second = submit(site, store, SetData("/a", b"2", 0), Check("/a/b", 0), Delete("/a/b"), Check("/a"))
    assert second.paths == ["/a", "/a/b", "/a/b", "/a"]
    assert second.versions == [1, 0, NO_VERSION, NO_VERSION]
    assert second.zxid > first.zxid
    assert ask(site, store.get, "/a") == (b"2", 1, first.zxid, second.zxid, 0)


def test_a_deletion_alone_has_a_zxid_of_its_own(site: Site, store: MetadataStore) -> None:
    created = submit(site, store, Create("/a"))
    deleted = submit(site, store, Delete("/a"))
    again = submit(site, store, Create("/a"))
    assert created.zxid < deleted.zxid < again.zxid


@of_several_sessions
def test_the_zxid_of_a_registration_is_its_czxid_though_others_write_at_the_same_time(
    site: Site, store: MetadataStore, rival: MetadataStore
) -> None:
    submit(site, store, Create("/ids"))
    answers: list[Any] = []
    for number in range(100):
        rival.submit([SetData("/ids", b"x")], lambda result: None)
        path = f"/ids/{number}"
        store.submit([Create(path, ephemeral=True)], answers.append)
        store.get(path, answers.append)
    site.turns.until(lambda: len(answers) == 200)
    assert [committed.zxid for committed in answers[::2]] == [node.czxid for node in answers[1::2]]


def test_all_operations_happen_or_none_and_the_refusal_names_the_first_that_could_not(
    site: Site, store: MetadataStore
) -> None:
    submit(site, store, Create("/a", b"1"), Create("/a/b"), Create("/e", ephemeral=True))
    for ops, refusal in [
        ([Create("/n"), Create("/a")], NodeExists("/a", 1)),
        ([Create("/n"), SetData("/a", b"", 7)], BadVersion("/a", 1)),
        ([Create("/n"), Delete("/a", 7)], BadVersion("/a", 1)),
        ([Create("/n"), Check("/a", 7)], BadVersion("/a", 1)),
        ([Check("/nowhere"), Create("/n")], NoNode("/nowhere", 0)),
        ([Create("/n"), Create("/nowhere/x")], NoNode("/nowhere/x", 1)),
        ([Create("/n"), SetData("/nowhere", b"")], NoNode("/nowhere", 1)),
        ([Create("/n"), Delete("/nowhere")], NoNode("/nowhere", 1)),
        ([Create("/n"), Delete("/a")], NotEmpty("/a", 1)),
        ([Create("/n"), Create("/e/x")], NoChildrenForEphemerals("/e/x", 1)),
        ([Create("/n"), Create("/a//b")], BadPath("/a//b", 1)),
        ([Create("/n"), Create("/n/")], BadPath("/n/", 1)),
        ([Create("/n"), Create("relative")], BadPath("relative", 1)),
        ([Create("/n"), Delete("/")], BadPath("/", 1)),
        ([Create("/n"), SetData("no/path", b"")], NoNode("no/path", 1)),
    ]:
        assert submit(site, store, *ops) == refusal
    assert sorted(path for path, _ in ask(site, store.tree, "/")) == ["/", "/a", "/a/b", "/e"]
    assert ask(site, store.get, "/a").data == b"1"


def test_a_transaction_of_nothing_or_of_checks_alone_is_committed(site: Site, store: MetadataStore) -> None:
    zxid = submit(site, store, Create("/a")).zxid
    assert submit(site, store).zxid >= zxid
    assert submit(site, store, Check("/a", 0)).zxid >= zxid


def test_a_later_operation_sees_what_an_earlier_one_of_its_transaction_did(site: Site, store: MetadataStore) -> None:
    result = submit(
        site, store, Create("/a"), Create("/a/b"), SetData("/a", b"x", 0), Check("/a", 1), Delete("/a/b"), Delete("/a")
    )
    assert result.versions == [0, 0, 1, 1, NO_VERSION, NO_VERSION]
    assert ask(site, store.exists, "/a") is None


def test_sequence_numbers_count_all_that_was_ever_created(site: Site, store: MetadataStore) -> None:
    submit(site, store, Create("/q"))
    first = submit(site, store, Create("/q/", sequential=True))
    assert first.paths == ["/q/0000000000"]
    submit(site, store, Delete(first.paths[0]))
    assert isinstance(submit(site, store, Create("/q/n-", sequential=True), Delete("/nowhere")), NoNode)
    assert submit(site, store, Create("/q/n-", sequential=True)).paths == ["/q/n-0000000001"]


def test_reads_tell_what_is_not_there(site: Site, store: MetadataStore) -> None:
    for path in ("/nowhere", "/a//b", "relative", "/nowhere/"):
        assert ask(site, store.get, path) == NoNode(path)
        assert ask(site, store.exists, path) is None
        assert ask(site, store.children, path) == NoNode(path)
        assert ask(site, store.tree, path) == NoNode(path)


def test_children_are_sorted_names(site: Site, store: MetadataStore) -> None:
    submit(site, store, Create("/a"), *(Create(f"/a/{name}") for name in ("10", "9", "ü", "<default>", "a b")))
    submit(site, store, Create("/a/9/below"))
    assert ask(site, store.children, "/a") == sorted(["10", "9", "ü", "<default>", "a b"])
    assert ask(site, store.children, "/a/10") == []


def test_a_tree_has_parents_before_their_children_and_nothing_else(site: Site, store: MetadataStore) -> None:
    paths = ["/t", *(f"/t/{n}" for n in range(600)), *(f"/t/{n}/state" for n in range(0, 600, 2))]
    submit(site, store, Create("/other"), Create("/t2"), *(Create(path, path.encode()) for path in paths))
    found = ask(site, store.tree, "/t")
    assert {path: node.data for path, node in found} == {path: path.encode() for path in paths}
    seen = {""}
    for path, _ in found:
        assert path == "/t" or path[: path.rfind("/")] in seen
        seen.add(path)


def test_answers_come_in_the_order_of_the_calls_whatever_they_ask(site: Site, store: MetadataStore) -> None:
    told: list[Any] = []

    def first(result: object) -> None:
        told.append("created")
        store.exists("/", lambda node: told.append("asked in the first callback"))

    store.submit([Create("/a", b"1")], first)
    store.tree("/", lambda result: told.append(len(result)))
    store.submit([Create("bad")], lambda result: told.append(type(result).__name__))
    store.get("/a", lambda node: told.append(node.data))
    store.submit([SetData("/a", b"2", 0)], lambda result: told.append("set"))
    store.submit([SetData("/a", b"3", 0)], lambda result: told.append(type(result).__name__))
    store.children("/", lambda result: told.append(result))
    store.exists("/a", lambda node: told.append(node.data))
    site.turns.until(lambda: len(told) == 9)
    told.remove("asked in the first callback")
    assert told == ["created", 2, "BadPath", b"1", "set", "BadVersion", ["a"], b"2"]


def test_a_callback_that_raises_takes_no_answer_of_others_with_it(site: Site, store: MetadataStore) -> None:
    told: list[Any] = []

    def fail(result: object) -> None:
        raise LookupError("of the caller")

    def three(result: object) -> None:
        store.get("/", lambda node: told.append("before"))
        store.get("/", fail)
        store.get("/", lambda node: told.append("after"))

    with pytest.raises(LookupError):
        store.submit([Create("/a")], three)
        site.turns.until(lambda: False)
    site.turns.until(lambda: len(told) == 2)
    assert told == ["before", "after"]


def test_a_watch_stays_and_tells_each_kind_of_change_before_the_answer(site: Site, store: MetadataStore) -> None:
    told: list[Any] = []
    watch = store.watch("/a", told.append)
    ask(site, store.exists, "/a")
    steps: list[tuple[Any, EventKind]] = [
        (Create("/a"), EventKind.CREATED),
        (SetData("/a", b"1"), EventKind.CHANGED),
        (Create("/a/b"), EventKind.CHILDREN),
        (SetData("/a", b"2"), EventKind.CHANGED),
        (Create("/a/c"), EventKind.CHILDREN),
        (Delete("/a/b"), EventKind.CHILDREN),
    ]
    for op, kind in steps:
        told.clear()
        store.submit([op], lambda result: told.append("done"))
        site.turns.until(lambda: "done" in told)
        assert without_repeats(told) == [WatchEvent("/a", kind), "done"], op
    told.clear()
    store.submit([SetData("/a", b"3", 77)], lambda result: told.append("refused"))
    site.turns.until(lambda: "refused" in told)
    submit(site, store, Delete("/a/c"))
    submit(site, store, Delete("/a"))
    assert WatchEvent("/a", EventKind.DELETED) in told
    submit(site, store, Create("/a"))
    assert told[-1] == WatchEvent("/a", EventKind.CREATED)
    submit(site, store, Create("/a/d"))
    assert told[-1] == WatchEvent("/a", EventKind.CHILDREN)
    told.clear()
    watch.cancel()
    submit(site, store, SetData("/a", b"4"))
    ask(site, store.get, "/a")
    assert told == []


def test_two_watchers_of_a_path_both_hear_and_one_may_leave(site: Site, store: MetadataStore) -> None:
    told: list[str] = []
    one = store.watch("/a", lambda event: told.append("one"))
    store.watch("/a", lambda event: told.append("two"))
    submit(site, store, Create("/a"))
    assert sorted(told) == ["one", "two"]
    one.cancel()
    told.clear()
    submit(site, store, SetData("/a", b"x"))
    assert told == ["two"]
    one = store.watch("/a", lambda event: told.append("again"))
    told.clear()
    submit(site, store, SetData("/a", b"y"))
    assert sorted(told) == ["again", "two"]


@of_several_sessions
def test_what_a_rival_does_is_told_before_any_read_that_shows_it(
    site: Site, store: MetadataStore, rival: MetadataStore
) -> None:
    """The rival writes without a pause while we read without a pause. What a read shows and the one before it did not
    show changed after that one was asked: from then on an event must have come."""
    changes = 300
    submit(site, store, Create("/a", b"0"))
    order: list[Any] = []
    store.watch("/a", lambda event: order.append("event"))
    ask(site, store.get, "/a")
    written: list[Any] = []
    for number in range(1, changes + 1):
        rival.submit([SetData("/a", b"%d" % number)], written.append)

    def read(node: Any) -> None:
        order.append(int(node.data))
        if order[-1] < changes:
            store.get("/a", read)

    store.get("/a", read)
    site.turns.until(lambda: len(written) == changes and order[-1] == changes)
    reads = [0, *(at for at, one in enumerate(order) if one != "event")]
    for asked, before, at in zip(reads, reads[1:], reads[2:], strict=False):
        if order[at] != order[before]:
            assert "event" in order[asked:at], f"{order[at]} was read after {order[before]}, and no event had come"


@of_several_sessions
def test_the_last_of_many_changes_is_told(site: Site, store: MetadataStore, rival: MetadataStore) -> None:
    submit(site, store, Create("/a", b"0"))
    latest: list[Any] = []
    watch = store.watch("/a", lambda event: store.get("/a", latest.append))
    ask(site, store.get, "/a")
    for number in range(1, 101):
        rival.submit([SetData("/a", b"%d" % number)], lambda result: None)
    site.turns.until(lambda: latest and latest[-1].data == b"100")
    watch.cancel()


@of_several_sessions
def test_ephemeral_nodes_belong_to_their_session_and_go_with_it(
    site: Site, store: MetadataStore, rival: MetadataStore
) -> None:
    submit(site, store, Create("/ids"))
    submit(site, rival, Create("/ids/2", ephemeral=True))
    submit(site, store, Create("/ids/1", ephemeral=True))
    owners = {path: node.ephemeral_owner for path, node in ask(site, store.tree, "/ids")}
    assert owners == {"/ids": 0, "/ids/1": store.session_id, "/ids/2": rival.session_id}
    assert store.session_id != rival.session_id
    events: list[Any] = []
    store.watch("/ids", events.append)
    ask(site, store.children, "/ids")
    rival.close()
    site.turns.until(lambda: events)
    assert events == [WatchEvent("/ids", EventKind.CHILDREN)]
    assert ask(site, store.children, "/ids") == ["1"]


def test_closing_answers_what_was_asked_then_tells_every_watch_once_and_refuses_the_rest(
    site: Site, store: MetadataStore
) -> None:
    submit(site, store, Create("/x"))
    told: list[Any] = []
    store.watch("/a", told.append)
    store.watch("/x", told.append)
    store.watch("/never/there", told.append)
    store.submit([Create("/a")], lambda result: told.append("done"))
    store.close()
    site.turns.until(lambda: len(told) >= 5)
    assert told[:2] == [WatchEvent("/a", EventKind.CREATED), "done"]
    ended = [WatchEvent(path, EventKind.SESSION_EXPIRED) for path in ("/a", "/x", "/never/there")]
    assert sorted(told[2:], key=str) == sorted(ended, key=str)
    call: Callable[..., None]
    for call, argument in [(store.get, "/x"), (store.exists, "/x"), (store.children, "/x"), (store.tree, "/x")]:
        assert isinstance(ask(site, call, argument), SessionExpired)
    assert isinstance(submit(site, store, Create("/b")), SessionExpired)
