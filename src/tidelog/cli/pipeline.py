"""`tidelog pipeline`: load topics into Delta tables, each record exactly once, as described in a small file."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tidelog import how_to_install
from tidelog.cli.options import (
    confirm,
    debug_option,
    debugging,
    dry_run_option,
    examples,
    noun,
    output_option,
    yes_option,
)
from tidelog.cli.pipeline_load import load as load_command
from tidelog.cli.pipeline_scope import replay_scope
from tidelog.cli.places import Place, where
from tidelog.cli.stopping import Stopping, stoppable
from tidelog.config.units import duration_ms

if TYPE_CHECKING:
    from tidelog.pipeline.land.executor import Executor
    from tidelog.pipeline.land.progress_events import Listener
    from tidelog.pipeline.spec import Pipeline

command = noun("Load topics into Delta tables, each record exactly once.")
DECORATED = Callable[..., Any]


def piped(function: DECORATED) -> DECORATED:
    """Gives the command the pipeline of FILE as its first argument, and tells its errors in words."""

    @click.argument("file", metavar="FILE", type=click.Path())
    @click.option("-b", "--bootstrap", metavar="HOST:PORT", help="Brokers to use instead of those in the file.")
    @debug_option
    @functools.wraps(function)
    def wrapper(file: str, bootstrap: str | None, **arguments: Any) -> Any:
        from tidelog.cli.error_messages import FAILED, USAGE, tell_error
        from tidelog.pipeline.errors import PipelineError
        from tidelog.pipeline.spec import DEFAULT_BOOTSTRAP, SpecError, load

        fallback = os.environ.get("TIDELOG_BOOTSTRAP") or DEFAULT_BOOTSTRAP
        pipeline = None
        try:
            pipeline = load(file, bootstrap=bootstrap, fallback=fallback)
            return function(pipeline, **arguments)
        except (SpecError, PipelineError, ModuleNotFoundError, OSError) as error:
            ctx = click.get_current_context()
            if debugging(ctx):
                raise
            if isinstance(error, OSError):
                if error.filename or pipeline is None or isinstance(error, ConnectionError):
                    raise
                # The storage of a table names nothing when it fails: neither its path nor what is to be done.
                from tidelog.pipeline.table.storage import explained

                error = explained(pipeline.table.path, error)
            if isinstance(error, SpecError):
                for problem in error.problems:
                    tell_error(f"{problem.where}: {problem.message}", problem.hint)
                ctx.exit(USAGE)
            hint = error.hint if isinstance(error, PipelineError) else how_to_install("spark", "schema")
            tell_error(str(error), hint)
            ctx.exit(FAILED)

    return wrapper


timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    metavar="SECONDS",
    help="How long to keep trying to reach a broker.  [default: 30]",
)
master_option = click.option("--master", metavar="URL", help="Spark master to use instead of the one in the file.")


def _on(pipeline: Pipeline, master: str | None) -> Pipeline:
    from dataclasses import replace

    return pipeline if master is None else replace(pipeline, spark=replace(pipeline.spark, master=master))


def _executor(pipeline: Pipeline, listener: Listener) -> Executor:
    from tidelog.pipeline.spark.session import NONE, spark_session

    if pipeline.spark.master == NONE:
        from tidelog.pipeline.land.executor import InProcess

        return InProcess()
    session = spark_session(pipeline.spark, pipeline.name)
    from tidelog.pipeline.spark.on_spark import OnSpark

    return OnSpark(session, [listener])


# --- run ----------------------------------------------------------------------------------------------


@command.command(
    epilog=examples(
        "tidelog pipeline run orders.toml",
        "tidelog pipeline run orders.toml --once",
        "tidelog pipeline run orders.toml --metrics-port 9400 -o json",
    )
)
@stoppable("batch", "this batch")
@piped
@click.option("--once", is_flag=True, help="Read the existing records, then exit.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics on this port.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["auto", "live", "json", "quiet"]),
    default="auto",
    help="How to show progress: a live table or JSON lines; auto means live on a terminal.",
    show_default=True,
)
@master_option
@timeout_option
def run(
    pipeline: Pipeline,
    once: bool,
    metrics_port: int | None,
    output: str,
    master: str | None,
    timeout_s: float,
    stopping: Stopping,
) -> None:
    """Run a pipeline. It runs until it is stopped, or with --once until it has caught up.

    After Ctrl-C or SIGTERM the current batch is finished first; a second signal does not wait for it. Nothing is lost
    either way: the next run continues from what the table contains.
    """
    from dataclasses import replace

    from tidelog.cli.output import tell
    from tidelog.cli.pipeline_view import view_for
    from tidelog.pipeline.run.runner import Runner

    pipeline = _on(pipeline, master)
    if once:
        pipeline = replace(pipeline, trigger=replace(pipeline.trigger, once=True))
    metrics = None
    if metrics_port is not None:
        from tidelog.pipeline.run.metrics import Metrics

        metrics = Metrics(pipeline.name)
        tell(f"metrics at http://localhost:{metrics.serve(metrics_port)}/metrics")
    view = view_for(output)
    executor = _executor(pipeline, view)
    runner = Runner(pipeline, executor, [view, *([metrics] if metrics else [])], timeout_s=timeout_s)
    stopping.hand_over(runner.stop)
    try:
        with view:
            outcome = runner.run()
        view.end(outcome)
    finally:
        stopping.is_over = True
        executor.close()
        if metrics is not None:
            metrics.close()


# --- plan and status ----------------------------------------------------------------------------------


@command.command(epilog=examples("tidelog pipeline plan orders.toml", "tidelog pipeline plan orders.toml -o json"))
@piped
@output_option("table", "json", "yaml")
@timeout_option
def plan(pipeline: Pipeline, output: str, timeout_s: float) -> None:
    """Show what the next batch would read, without reading it."""
    from tidelog.cli.output import Column, plural, show_one, show_table, tell
    from tidelog.pipeline.run.status import next_plan

    found = next_plan(pipeline, timeout_s)
    rows = [
        {
            "task": number,
            "topic": r.topic,
            "partition": r.partition,
            "start": r.start,
            "until": r.until,
            "offsets": r.size,
        }
        for number, ranges in enumerate(found.tasks)
        for r in ranges
    ]
    about = {
        "pipeline": pipeline.name,
        "offsets": found.size,
        "lag": found.lag,
        "gaps": [gap._asdict() for gap in found.gaps],
        "tasks": rows,
    }

    def people() -> None:
        for gap in found.gaps:
            tell(f"records are lost: {gap}")
        if not rows:
            tell("nothing to read: the table is up to date")
            return
        columns = [Column("TASK", "task", right=True), Column("TOPIC", "topic")]
        columns += [Column(n.upper(), n, right=True) for n in ("partition", "start", "until", "offsets")]
        show_table(rows, columns)
        tell(f"{plural(found.size, 'offset')} in {plural(len(found.tasks), 'task')}, of a lag of {found.lag}")

    show_one(about, output, people)


@command.command(
    epilog=examples("tidelog pipeline status orders.toml", "tidelog pipeline status orders.toml -o json | jq .lag")
)
@piped
@output_option("table", "json", "yaml")
@timeout_option
def status(pipeline: Pipeline, output: str, timeout_s: float) -> None:
    """Show the position of a pipeline. Compares the table, the consumer group and the log.

    If a run could not continue, for example because a topic was recreated, this is reported with exit code 1.
    """
    from dataclasses import asdict

    from tidelog.cli.error_messages import FAILED, tell_error
    from tidelog.cli.output import show_one
    from tidelog.pipeline.run.status import status as look

    found = asdict(look(pipeline, timeout_s))
    found["partitions"] = list(found["partitions"])
    show_one(found, output, lambda: _show_status(found))
    if found["problem"] is not None:
        tell_error(found["problem"], found["hint"])
        click.get_current_context().exit(FAILED)


def _show_status(found: dict[str, Any]) -> None:
    from tidelog.cli.output import Column, show_fields, show_table, size
    from tidelog.cli.places import iso

    table, letters = found["table"], found["dead_letters"]
    fields = [("Pipeline", found["pipeline"]), ("Lag", found["lag"])]
    if table is None:
        fields.append(("Table", "none yet: the pipeline has never run"))
    else:
        fields += [
            ("Table", table["path"]),
            ("Version", table["version"]),
            ("Last commit", iso(table["last_commit_ms"] or -1)),
            ("Rows", table["rows"]),
            ("Files", f"{table['files']} ({size(table['size_bytes'])})"),
            ("Dead letters", letters["rows"] if letters else None),
            ("Runner epoch", found["epoch"]),
        ]
    show_fields(fields)
    click.echo()
    columns = [Column("TOPIC", "topic")]
    columns += [Column(n.upper(), n, right=True) for n in ("partition", "committed", "group", "end", "lag")]
    show_table(found["partitions"], columns)


# --- check --------------------------------------------------------------------------------------------


@command.command(epilog=examples("tidelog pipeline check orders.toml", "tidelog pipeline check orders.toml --spark"))
@piped
@click.option("--spark", "with_spark", is_flag=True, help="Also start Spark and check whether the transform fits.")
@output_option("table", "json", "yaml")
@master_option
@timeout_option
@click.pass_context
def check(
    ctx: click.Context, pipeline: Pipeline, with_spark: bool, output: str, master: str | None, timeout_s: float
) -> None:
    """Check whether a pipeline can run. Checks its file, brokers, topics, schema, table, Java and Spark."""
    from tidelog.cli.error_messages import FAILED
    from tidelog.cli.output import Column, show
    from tidelog.pipeline.run.checking import findings

    found = list(findings(_on(pipeline, master), timeout_s, with_spark))
    rows = [finding._asdict() for finding in found]
    columns = [
        Column("CHECK", "what"),
        Column("RESULT", lambda row: "ok" if row["ok"] else "PROBLEM"),
        Column("", "message"),
    ]
    show(rows, columns, output, name="what")
    for finding in found:
        if not finding.ok and output == "table":
            from tidelog.cli.error_messages import tell_error

            tell_error(f"{finding.what}: {finding.message}", finding.hint)
    if not all(finding.ok for finding in found):
        ctx.exit(FAILED)


# --- replay -------------------------------------------------------------------------------------------


@command.command(
    epilog=examples(
        "tidelog pipeline replay orders.toml --dry-run",
        "tidelog pipeline replay orders.toml --yes",
        "tidelog pipeline replay orders.toml --from -1h",
        "tidelog pipeline replay orders.toml --topic orders:0,2 --from 1200 --until 1300",
        "tidelog pipeline replay orders.toml --where day=2026-01-31",
    )
)
@piped
@click.option(
    "--from", "since", type=where, metavar="POSITION", help="Start of the range: an offset or a time, as in `consume`."
)
@click.option("--until", type=where, metavar="POSITION", help="End of the range, exclusive.")
@click.option(
    "--where",
    "values",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Only the offsets of rows with this value in a partition column of the table.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITIONS]",
    help="Only these partitions, such as orders or orders:0,2.",
)
@click.option("--allow-missing", is_flag=True, help="Continue even if some of the records are no longer in the log.")
@click.option(
    "--drop-most-rows", "drop_most", is_flag=True, help="Continue even if most rows of the table would be dropped."
)
@yes_option
@dry_run_option
@output_option("table", "json", "yaml")
@master_option
@timeout_option
def replay(
    pipeline: Pipeline,
    since: Place | None,
    until: Place | None,
    values: tuple[str, ...],
    topics: tuple[str, ...],
    allow_missing: bool,
    drop_most: bool,
    yes: bool,
    dry_run: bool,
    output: str,
    master: str | None,
    timeout_s: float,
) -> None:
    """Rebuild the table from the log. The table, or a part of it, is replaced atomically.

    Readers see either the old rows or the new ones, never a mix. Without --from, --until, --topic and --where the whole
    table is rebuilt. A running pipeline is stopped; start it again afterwards.
    """
    from dataclasses import asdict

    from tidelog.cli.output import Column, plural, show, show_one, tell
    from tidelog.cli.pipeline_view import Quiet
    from tidelog.pipeline.run.table_replay import Replay, check_scope, scope_of

    pipeline = _on(pipeline, master)
    wanted, tables, ends, topic_ids = replay_scope(pipeline, since, until, topics, values, timeout_s)
    scope = scope_of(tables, ends, wanted, topic_ids)
    rows = [{**r._asdict(), "offsets": r.size} for r in scope.ranges]
    columns = [Column("TOPIC", "topic")]
    columns += [Column(n.upper(), n, right=True) for n in ("partition", "start", "until", "offsets")]
    if dry_run or output == "table":
        show(rows, columns, output)
    check_scope(scope, pipeline, tables.table.schema.names, allow_missing)
    if not scope.ranges and not scope.whole:
        tell("nothing to replay: no record in the table falls into this range")
    if dry_run or (not scope.ranges and not scope.whole):
        return
    what = "the whole table" if scope.whole else f"{plural(scope.size, 'offset')} of it"
    confirm(f"Rebuild {what} at {pipeline.table.path}?", yes)
    quiet = Quiet()
    executor = _executor(pipeline, quiet)
    try:
        again = Replay(pipeline, executor, [quiet], timeout_s=timeout_s)
        done = again.run(wanted, allow_missing=allow_missing, drop_most=drop_most)
    finally:
        executor.close()
    show_one(asdict(done), output, lambda: tell(_replayed(asdict(done))))


def _replayed(done: dict[str, Any]) -> str:
    from tidelog.cli.output import plural

    return (
        f"replayed: {plural(done['rows'], 'row')} in {plural(done['files'], 'file')} instead of "
        f"{plural(done['removed_files'], 'file')}, {plural(done['dead_letters'], 'dead letter')}; "
        f"the table is at version {done['table_version']}"
    )


# --- vacuum -------------------------------------------------------------------------------------------


@command.command(
    epilog=examples(
        "tidelog pipeline vacuum orders.toml --dry-run", "tidelog pipeline vacuum orders.toml --older-than 2d --yes"
    )
)
@piped
@click.option(
    "--older-than", default="7d", show_default=True, metavar="AGE", help="Only files at least this old, such as 12h."
)
@click.option(
    "--newest-runner", is_flag=True, help="Also remove young files of the newest runner, which must not be running."
)
@yes_option
@dry_run_option
@output_option("table", "json", "yaml", "name")
def vacuum(pipeline: Pipeline, older_than: str, newest_runner: bool, yes: bool, dry_run: bool, output: str) -> None:
    """Remove unneeded files. They are left by failed tasks, dead runners, replays and compaction.

    Versions of the table older than AGE can no longer be read afterwards.
    """
    import time

    from tidelog.cli.output import Column, plural, show, size, tell
    from tidelog.pipeline.table.tables import Tables
    from tidelog.pipeline.table.vacuum import find, remove

    try:
        age_ms = int(duration_ms(older_than))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    tables = Tables.look(pipeline)
    found = [] if tables is None else find(tables, age_ms, int(time.time() * 1000), newest_runner)
    rows = [{"path": os.path.join(o.root, o.path), "size_bytes": o.size_bytes} for o in found]
    if not rows and output == "table":
        tell("nothing to remove")
        return
    show(rows, [Column("FILE", "path"), Column("SIZE", lambda r: size(r["size_bytes"]), right=True)], output, "path")
    if dry_run or not rows:
        return
    total = size(sum(o.size_bytes for o in found))
    confirm(f"Remove {plural(len(found), 'file')} ({total})?", yes)
    remove(found)
    tell(f"removed {plural(len(found), 'file')} ({total})")


# --- load ---------------------------------------------------------------------------------------------

command.add_command(load_command)
