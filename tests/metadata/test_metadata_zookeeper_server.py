"""A ZooKeeper server out of PySpark's jars: it starts, ends and fails as its operator expects."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from metadata_sites import ZooKeeperSite, ask, submit

from tidelog.metadata.store import Create
from tidelog.metadata.zookeeper_server import ZooKeeperFailed, ZooKeeperServer, mode_of


@pytest.mark.zookeeper
def test_a_server_that_is_stopped_is_gone_and_has_its_data_and_its_port_when_it_starts_again(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path, tick_ms=200)
    site = ZooKeeperSite(f"{server.connect}/kafka")
    store = site.open()  # before there is a server
    with server:
        assert server.mode == "standalone"
        submit(site, store, Create("/a"))
    assert not server.running and server.mode is None
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)
    with server:
        assert ask(site, store.children, "/") == ["a"]
        site.close()


def test_a_port_that_somebody_else_has_is_an_error_and_not_taken_for_the_server(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with pytest.raises(ZooKeeperFailed, match=f"{zookeeper.connect}: Address already in use"):
        ZooKeeperServer(tmp_path, zookeeper.port).start()
    assert mode_of("127.0.0.1", zookeeper.port) == "standalone"


@pytest.mark.zookeeper
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperFailed, match=r"(?s)ended while it started.*nowhere does not have the form"):
        ZooKeeperServer(tmp_path, peers=["server.1=nowhere"]).start()


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ZooKeeperFailed, match=r"no `java` was found.*install a Java runtime"):
        ZooKeeperServer(tmp_path).start()


def test_without_pyspark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ZooKeeperFailed, match=r"PySpark is not installed: install PySpark"):
        ZooKeeperServer(tmp_path).start()
