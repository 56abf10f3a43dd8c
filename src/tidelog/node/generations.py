"""Recognises log directories that were restored from an old copy: their generation is behind the one in the store.

Each directory has a generation, on its own disk and in a node of the store (`nodes.directories_path`). It is counted up
when the broker has joined, and at every checkpoint: first on the disk, then in the store.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.control import nodes
from tidelog.control.malformed_nodes import MALFORMED
from tidelog.log.directories.generation import read_generation, write_generation
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import LogError
from tidelog.log.log_dir import LogDir
from tidelog.metadata.store import ExistsResult, MetadataStore, StoreRefusal
from tidelog.node.founding import write_node


class Generations:
    def __init__(self, broker_id: int, logs: LogDirs) -> None:
        self._path = nodes.directories_path(broker_id)
        self._logs = logs
        #: as the store knows them, by the ids of the directories, with those that are missing
        self._known: dict[bytes, int] = {}

    def read(self, store: MetadataStore, done: Callable[[StoreRefusal | None], None]) -> None:
        def found(node: ExistsResult) -> None:
            if isinstance(node, StoreRefusal):
                done(node)
                return
            try:
                self._known = {} if node is None else nodes.decode_generations(node.data)
            except MALFORMED:
                self._known = {}  # nothing is known then, and it is written anew
            done(None)

        store.exists(self._path, found)

    def compare(self) -> list[str]:
        """After the logs were opened: those of old copies are marked. Returns what an operator should know."""
        return [notice for each in self._working() if (notice := self._compare(each)) is not None]

    def _working(self) -> list[LogDir]:
        return [directory for directory in self._logs.dirs if directory.failure is None]

    def _compare(self, directory: LogDir) -> str | None:
        known = self._known.get(directory.directory_id, 0)
        try:
            if read_generation(directory.disk, directory.path) >= known:
                return None
            for log in directory.logs.values():
                self._logs.mark_incomplete(log, True)
            # Only now: what was marked need not be found again.
            write_generation(directory.disk, directory.path, known)
        except OSError as error:
            directory.keep_old_checkpoints(error)
            return None
        except LogError as error:
            return f"log directory {directory.path} is an old copy, and its logs cannot be marked: {error}"
        return (
            f"log directory {directory.path} was restored from an old copy: what was written to it later is missing. "
            "Its partitions are copied from replicas that have everything. Where there are none they have no leader: "
            "put the right disk back, or accept the loss with `tidelog cluster elect --unclean`"
        )

    def count(self, store: MetadataStore) -> None:
        """Counts up, on the disks and then in the store."""
        for directory in self._working():
            if directory.logs and all(log.notes.incomplete for log in directory.logs.values()):
                # Nothing was done with an old copy yet: the right disk may take its place again.
                continue
            try:
                have = read_generation(directory.disk, directory.path)
                generation = max(have, self._known.get(directory.directory_id, 0)) + 1
                write_generation(directory.disk, directory.path, generation)
            except OSError as error:
                directory.keep_old_checkpoints(error)
            else:
                self._known[directory.directory_id] = generation
        write_node(store, self._path, nodes.encode_generations(self._known))
