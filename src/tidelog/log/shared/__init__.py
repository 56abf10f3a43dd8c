"""The shared layout: one commit log for all partitions of a log directory, and queues that point into it.

Is: the commit log and its entries, queues, and segments that are made of them.
Takes: batches with their offsets, the partition that they belong to.
Gives: segments, as `log.segment` describes them; after a crash, what the queues lack.
Never: decides what is to be kept: the log above does.
"""

from typing import Final

#: how the files of the layout are called: known without it, to tell which of the two a directory is in
COMMIT_DIRECTORY: Final = "tidelog-commit"
QUEUE: Final = ".queue"
