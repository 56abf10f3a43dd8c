"""What is said of connections that strangers can open and break at will."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from net_site import Site, framed

from tidelog.net import Exchange
from tidelog.net.remarks import MOST, WINDOW_MS

MakeSite = Callable[..., Site]


def malformed(site: Site, count: int) -> None:
    for _ in range(count):
        client = site.connect()
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        client.read_to_end()
        client.socket.close()


def refused_by_dispatch(site: Site, count: int) -> None:
    def refuse(exchange: Exchange, frame: memoryview) -> None:
        exchange.hang_up("API key 999 is not served")

    site.dispatch = refuse
    for _ in range(count):
        client = site.connect()
        client.send(framed(bytes(16)))
        client.read_to_end()
        client.socket.close()


@pytest.mark.parametrize("flood", [malformed, refused_by_dispatch])
def test_of_many_connections_that_break_alike_the_first_are_told_and_the_rest_counted(
    site: Site, flood: Callable[[Site, int], None]
) -> None:
    flood(site, MOST + 7)
    assert len(site.sentences) == MOST
    site.advance(WINDOW_MS)
    assert len(site.sentences) == MOST + 1
    assert site.sentences[-1].startswith("7 more of this kind within 60 s, the last: closing ")
    flood(site, 1)
    assert len(site.sentences) == MOST + 2
    assert site.sentences[-1].startswith("closing ")


def test_nothing_is_added_where_there_were_not_more(site: Site) -> None:
    malformed(site, MOST)
    site.advance(WINDOW_MS)
    assert len(site.sentences) == MOST


def test_one_kind_does_not_hide_another(make_site: MakeSite) -> None:
    site = make_site(max_connections_per_ip=1)
    malformed(site, MOST + 7)
    site.connect()
    assert site.connect().read_to_end() == b""
    assert site.sentences[-1] == "closing a connection from 127.0.0.1: it has 1 already"


def test_connections_refused_again_and_again_are_counted(make_site: MakeSite) -> None:
    site = make_site(max_connections_per_ip=0)
    for _ in range(MOST + 3):
        site.connect().read_to_end()
    assert len(site.sentences) == MOST
    site.advance(WINDOW_MS)
    assert site.sentences[-1].startswith("3 more of this kind")


@pytest.mark.parametrize("way", ["drained", "closed"])
def test_what_was_counted_is_told_when_the_server_ends(site: Site, way: str) -> None:
    malformed(site, MOST + 7)
    if way == "drained":
        ended: list[bool] = []
        site.server.drain(lambda: ended.append(True))
        site.until(lambda: ended)
    else:
        site.server.close()
    assert site.sentences[-1].startswith("7 more of this kind")
    told = len(site.sentences)
    site.advance(2 * WINDOW_MS)
    assert len(site.sentences) == told
