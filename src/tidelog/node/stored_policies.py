"""Which topics are compacted, as far as the files of a broker say that is not running."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tidelog.metadata.embedded import JOURNAL_NAME, SNAPSHOT_NAME, read_store
from tidelog.metadata.place import place_of
from tidelog.node.adoption import topic_configs


def compacted_topics(directories: Iterable[str]) -> frozenset[str] | None:
    """The topics that are set to be compacted; None where no directory holds the metadata, or says where it is.

    May raise CorruptMetadata or OSError.
    """
    found: set[str] = set()
    known = False
    for directory in {place_of(path) or path for path in directories}:
        if any(os.path.exists(os.path.join(directory, name)) for name in (JOURNAL_NAME, SNAPSHOT_NAME)):
            known = True
            for topic, config in topic_configs(read_store(directory).tree.walk("/")).items():
                if "compact" in config.get("cleanup.policy", ""):
                    found.add(topic)
    return frozenset(found) if known else None
