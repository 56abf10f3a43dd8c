"""`tidelog storage`: convert a data directory to the other layout, and show what its files hold."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.cli.options import dry_run_option, examples, noun, output_option
from tidelog.cli.output import Column, Row, plural, show, size, tell, warn

if TYPE_CHECKING:
    from tidelog.cli.progress import Progress
    from tidelog.log.conversion.planning import ConversionPlan
    from tidelog.log.directories.layout import Conversion

command = noun("Convert a data directory to the other layout, and show what its files hold.")


# --- converting -------------------------------------------------------------------------------------


@command.command(
    epilog=examples(
        "tidelog storage convert --to shared /var/lib/tidelog --dry-run",
        "tidelog storage convert --to shared /disks/a /disks/b",
        "tidelog storage convert --to partitioned /var/lib/tidelog",
    )
)
@click.option("--to", required=True, type=click.Choice(["shared", "partitioned"]), help="The layout to convert to.")
@click.option(
    "--keep",
    multiple=True,
    metavar="TOPIC",
    help="Leave this topic in files of its own; may be repeated. Needed only for compacted topics of a cluster with "
    "ZooKeeper, or if log.cleanup.policy says compact: other compacted topics are known.",
)
@dry_run_option
@output_option("table", "json", "yaml")
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(exists=True, file_okay=False))
@click.pass_context
def convert(
    ctx: click.Context, to: str, keep: tuple[str, ...], dry_run: bool, output: str, directories: tuple[str, ...]
) -> None:
    """Convert data directories to the other layout, while no broker runs on them.

    Every record batch is copied and compared before anything is removed, so there must be space for a second copy. If
    the conversion is interrupted, run the same command again to go on; the other layout with --to undoes what was not
    completed. Internal and compacted topics have files of their own in both layouts. Start the broker with log.layout
    set to the new layout afterwards.
    """
    from tidelog.cli.error_messages import FAILED, tell_error
    from tidelog.log.errors import LogError
    from tidelog.metadata.embedded import CorruptMetadata
    from tidelog.node.stored_policies import compacted_topics

    paths = [os.path.abspath(directory) for directory in directories]
    try:
        known = compacted_topics(paths)
        if known is None and to == "shared" and not keep:
            warn(
                "the configurations of the topics are not in these directories: topics that were never compacted are "
                "converted. Name those that are to be compacted with --keep"
            )
        kept = {*keep, *(known or ())}
        work = _preview if dry_run else _convert
        rows = [work(path, to, lambda topic: topic in kept) for path in paths]
    except (LogError, CorruptMetadata) as error:
        tell_error(str(error))
        ctx.exit(FAILED)
    show(rows, _PLANNED if dry_run else _DONE, output)


_PLANNED: Final = [
    Column("DIRECTORY", "directory"),
    Column("TO", "to"),
    Column("WOULD BE", "state"),
    Column("PARTITIONS", "partitions", right=True),
    Column("SIZE", lambda row: size(row["size_bytes"]), right=True),
    Column("NEEDED", lambda row: size(row["needed_bytes"]), right=True),
    Column("FREE", lambda row: size(row["free_bytes"]), right=True),
    Column("KEPT", lambda row: len(row["kept"]), right=True),
]
_DONE: Final = [
    Column("DIRECTORY", "directory"),
    Column("LAYOUT", "layout"),
    Column("STATE", "state"),
    Column("PARTITIONS", "partitions", right=True),
    Column("SIZE", lambda row: size(row["size_bytes"]), right=True),
]


def _preview(path: str, to: str, is_kept: Callable[[str], bool]) -> Row:
    from tidelog.log.conversion.converter import preview
    from tidelog.log.overlay_disk import OverlayDisk
    from tidelog.node.checkup import is_in_use

    if is_in_use(path):
        warn(f"{path} is in use: stop the broker before you convert it")
    return {"directory": path, "to": to, **_planned(preview(OverlayDisk(), path, to, is_kept), to)}


def _planned(found: ConversionPlan | Conversion | None, to: str) -> Row:
    from tidelog.log.directories.layout import Conversion

    nothing: Row = {"partitions": 0, "size_bytes": 0, "needed_bytes": 0, "free_bytes": None, "kept": []}
    if found is None:
        return {"state": "unchanged", **nothing}
    if isinstance(found, Conversion):
        state = "finished" if found.is_switching else "resumed" if found.to == to else "undone"
        return {"state": state, **nothing, "partitions": len(found.partitions), "size_bytes": None}
    return {
        "state": "converted" if found.fits else "refused: too little space",
        "partitions": len(found.converted),
        "size_bytes": found.size_bytes,
        "needed_bytes": found.needed_bytes,
        "free_bytes": found.usage.usable_bytes,
        "kept": [each._asdict() for each in found.kept],
    }


def _convert(path: str, to: str, is_kept: Callable[[str], bool]) -> Row:
    from tidelog.config.definitions import BROKER_KEYS
    from tidelog.log.conversion import converter
    from tidelog.log.directories.layout import layout_of
    from tidelog.log.disk import SystemDisk

    commit_bytes = int(BROKER_KEYS["shared.segment.bytes"].default or 0)
    disk = SystemDisk()
    with _Steps(path) as steps:
        try:
            done = converter.convert(disk, path, to, is_kept, commit_bytes, int(time.time() * 1000), steps.tell)
        except KeyboardInterrupt:
            tell(f"{path} is not converted yet: run the same command again to go on, or --to the other layout to undo")
            raise
    for notice in done.notices:
        warn(notice)
    layout = layout_of(disk, path)
    if layout != to:
        tell(f"{path} is in the {layout} layout again: nothing of it was changed")
    elif done.partitions:
        tell(f"{path}: {plural(done.partitions, 'partition')} converted. Start the broker with log.layout={to}")
    else:
        tell(f"{path} is in the {layout} layout")
    return {
        "directory": path,
        "layout": layout,
        "state": done.done,
        "partitions": done.partitions,
        "size_bytes": done.size_bytes,
    }


class _Steps:
    """Shows how a conversion goes on: a line of progress for each of its steps."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._what = ""
        self._progress: Progress | None = None

    def __enter__(self) -> _Steps:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._progress is not None:
            self._progress.__exit__(None, None, None)

    def tell(self, what: str, done: int, total: int) -> None:
        from tidelog.cli.progress import Progress

        if what != self._what:
            self.__exit__()
            self._what, self._progress = what, Progress(f"{self._path}: {what}, bytes", total)
        if self._progress is not None:
            self._progress.update(done)


# --- showing ----------------------------------------------------------------------------------------


@command.command(
    epilog=examples(
        "tidelog storage dump data",
        "tidelog storage dump data/orders-0",
        "tidelog storage dump data/orders-0/00000000000000000000.log --records -o json",
        "tidelog storage dump data/tidelog-commit/00000000000000000000.commit --limit 20",
        "tidelog storage dump data/orders-0/00000000000000000000.queue --skip 1000",
    )
)
@click.option("--skip", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N rows.")
@click.option("--limit", type=click.IntRange(min=1), default=None, metavar="N", help="Show at most N rows.")
@click.option("--records", is_flag=True, help="Show the records of batches, too (JSON and YAML only).")
@output_option("table", "wide", "json", "yaml")
@click.argument("path", type=click.Path(exists=True))
@click.pass_context
def dump(ctx: click.Context, path: str, skip: int, limit: int | None, records: bool, output: str) -> None:
    """Show what a file or a directory of a broker holds.

    PATH is a data directory (its partitions are listed), the directory of a partition (its segments) or of a commit log
    (its files), or a file: batches of a segment (.log), entries of a commit log (.commit), of a queue (.queue) and of
    indexes (.index, .timeindex, .txnindex), producers (.snapshot), leader epochs, checkpoints and properties. Damaged
    entries are shown as such. Files are only read, and a broker may be running on them.
    """
    from tidelog.cli.error_messages import FAILED, tell_error
    from tidelog.log.dumping import NotDumpable
    from tidelog.log.dumping import dump as dump_rows
    from tidelog.log.overlay_disk import OverlayDisk

    try:
        rows = list(islice(dump_rows(OverlayDisk(), path, records), skip, None if limit is None else skip + limit))
    except NotDumpable as error:
        tell_error(str(error), "`tidelog storage dump --help` names the files that can be shown")
        ctx.exit(FAILED)
    if not rows and output in ("table", "wide"):
        tell(f"{path} holds no entries" if skip == 0 else f"{path} holds no more than {skip} entries")
        return
    names = {name: None for row in rows for name in row if name != "values"}
    columns = _columns(list(names), rows)
    if output in ("table", "wide"):
        # What is damaged has fewer fields than the others.
        rows = [{**names, **row} for row in rows]
    show(rows, columns, output)


#: shown only with -o wide
_WIDE: Final = frozenset(("producer_epoch", "base_sequence", "topic_id", "previous", "leader_epoch", "max_timestamp"))


#: with more columns than these, some wait for -o wide
_MOST_COLUMNS: Final = 8


def _columns(names: list[str], rows: list[Row]) -> list[Column]:
    is_short = len(names) <= _MOST_COLUMNS
    columns = []
    for name in names:
        title = name.removesuffix("_bytes").replace("_", " ").upper()
        is_number = all(isinstance(row.get(name, 0), int) for row in rows)
        columns.append(Column(title, name, name in _WIDE and not is_short, is_number))
    return columns
