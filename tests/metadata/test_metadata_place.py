"""Which of a broker's log directories the store is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.metadata.embedded import EmbeddedStore
from tidelog.metadata.place import PLACE_NAME, StoreMisplaced, find_store, point_to_store
from tidelog.metadata.store import Create


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        path.mkdir()
    return [str(path) for path in paths]


def make_store(directory: str) -> None:
    store = EmbeddedStore(directory)
    store.submit([Create("/x")], lambda result: None)
    store.close()


def test_a_new_store_goes_into_the_first_directory(directories: list[str]) -> None:
    assert find_store(directories) == directories[0]


def test_a_store_is_found_in_whichever_directory_it_is(directories: list[str]) -> None:
    make_store(directories[1])
    assert find_store(directories) == find_store(directories[::-1]) == directories[1]


def test_a_store_that_is_missing_is_missed(directories: list[str]) -> None:
    make_store(directories[0])
    point_to_store(directories[0], directories)
    assert not (Path(directories[0]) / PLACE_NAME).exists()
    for left in (directories[1:], directories[:0:-1], directories[2:]):
        with pytest.raises(StoreMisplaced, match=f"was last in {directories[0]}"):
            find_store(left)
    assert find_store(directories) == directories[0]


def test_a_pointer_follows_a_store_that_was_moved(directories: list[str]) -> None:
    make_store(directories[1])
    point_to_store(directories[0], directories)
    assert find_store(directories) == directories[1]
    point_to_store(directories[1], directories)
    with pytest.raises(StoreMisplaced, match=f"was last in {directories[1]}"):
        find_store([directories[0], directories[2]])


def test_two_stores_are_refused(directories: list[str]) -> None:
    make_store(directories[0])
    make_store(directories[2])
    with pytest.raises(StoreMisplaced, match="both"):
        find_store(directories)
