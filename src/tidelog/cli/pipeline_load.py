"""`tidelog pipeline load`: files into a topic, each row once however often it is run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tidelog import how_to_install
from tidelog.cli.complete import complete_topic
from tidelog.cli.options import CONTEXT, broker_options, compression_option, debugging, dry_run_option, examples, pairs

if TYPE_CHECKING:
    from tidelog.pipeline.loading import Load, Loaded, Todo


@click.command(
    "load",
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog pipeline load orders data/orders.parquet --key customer",
        "tidelog pipeline load orders 'inbox/*.csv' --job inbox --key 'upper(customer)' --timestamp ordered_at",
        "tidelog pipeline load words notes.txt --value value -z zstd",
        "tidelog pipeline load orders lake/orders --header source='orders' --where 'amount > 0' --dry-run",
    ),
)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--job", metavar="NAME", help="Remembers what it has loaded.  [default: the topic's name]")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["auto", "parquet", "csv", "json", "text", "delta"]),
    default="auto",
    show_default=True,
    help="What is in the files; auto goes by their names. json is a document a line.",
)
@click.option("--schema", metavar="DDL", help="The columns, such as 'id long, name string', where files do not say.")
@click.option("-k", "--key", metavar="SQL", help="The key of a record: a column, or an expression over columns.")
@click.option("--value", metavar="SQL", help="Its value.  [default: the row as JSON]")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=SQL", help="A header; may be repeated.")
@click.option("--partition", metavar="SQL", help="Its partition.  [default: by key, as Java's client]")
@click.option("--timestamp", metavar="SQL", help="Its time.  [default: now]")
@click.option("--where", metavar="SQL", help="Only rows for which this is true.")
@click.option("--read-option", "read_options", multiple=True, metavar="NAME=VALUE", help="For Spark's reader.")
@click.option("--write-option", "write_options", multiple=True, metavar="NAME=VALUE", help="As of format('tidelog').")
@compression_option
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="The Spark master.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
@click.option(
    "-o", "--output", type=click.Choice(["summary", "json"]), default="summary", show_default=True, help="How to print."
)
@dry_run_option
@broker_options
def load(
    topic: str,
    paths: tuple[str, ...],
    job: str | None,
    kind: str,
    headers: tuple[str, ...],
    read_options: tuple[str, ...],
    write_options: tuple[str, ...],
    compression: str,
    master: str,
    conf: tuple[str, ...],
    output: str,
    dry_run: bool,
    bootstrap: str,
    timeout: float,
    **expressions: str | None,
) -> None:
    """Load files into a topic: Parquet, CSV, JSON lines, text, or a Delta table.

    PATH is a file, a directory or a pattern. A job loads a file once: run again, it loads what is new, and after a
    failure what is missing. Rows appear to readers of committed records, all of them when the load has succeeded.
    """
    try:
        from tidelog.pipeline.loading import Load
        from tidelog.pipeline.session import leave_errors_to_callers, spark_session
        from tidelog.pipeline.spec import Spark

        wanted = Load(
            job=job or topic,
            bootstrap=bootstrap,
            topic=topic,
            paths=paths,
            format=kind,
            headers=pairs(headers, "header"),
            read_options=pairs(read_options),
            write_options={**pairs(write_options), "kafka.compression.type": compression},
            timeout_s=timeout,
            **expressions,
        )
        leave_errors_to_callers()
        session = spark_session(Spark(master=master, conf=pairs(conf)), f"load {wanted.job}")
        try:
            _load(session, wanted, dry_run, output)
        finally:
            session.stop()
    except Exception as error:
        _explain(error)


def _load(session: Any, wanted: Load, dry_run: bool, output: str) -> None:
    from tidelog.cli.output import tell
    from tidelog.cli.progress import Progress
    from tidelog.pipeline.loading import plan, records, run

    todo = plan(session, wanted)
    if dry_run:
        _show_plan(todo, records(session, wanted, todo).schema if todo.file_count else None, output)
        return
    if not todo.file_count:
        _tell(wanted, todo, None, output)
        return
    if output == "summary":
        tell(f"loading {_what(todo)} into {wanted.topic} …")
    with Progress("tasks done:", None, shown=output == "summary") as progress:
        done = run(session, wanted, todo, lambda done, total: progress.update(done))
    _tell(wanted, todo, done, output)


def _what(todo: Todo) -> str:
    from tidelog.cli.output import plural, size

    return f"{plural(todo.file_count, f'{todo.format} file')} ({size(todo.size_bytes)})"


def _show_plan(todo: Todo, schema: Any, output: str) -> None:
    from tidelog.cli.output import json_line, tell

    if output == "json":
        click.echo(json_line({"files": todo.names, "size_bytes": todo.size_bytes, "format": todo.format}))
        return
    for name in todo.names:
        click.echo(name)
    if not todo.file_count:
        tell("nothing is new")
        return
    tell(f"would load {_what(todo)} as records of {', '.join(schema.fieldNames())}")


def _tell(wanted: Load, todo: Todo, done: Loaded | None, output: str) -> None:
    from tidelog.cli.output import json_line, plural, tell

    if output == "json":
        rows, files = (0, 0) if done is None else (done.rows, done.files)
        click.echo(json_line({"job": wanted.job, "topic": wanted.topic, "files": files, "records": rows}))
    elif done is None:
        tell(f"nothing is new: job {wanted.job} has loaded all of it before")
    else:
        tell(f"{plural(done.rows, 'record')} from {plural(done.files, 'file')} written to {wanted.topic}")


def _explain(error: Exception) -> None:
    """Tells what went wrong and ends; what is not known here is left to the command line."""
    ctx = click.get_current_context()
    if debugging(ctx) or isinstance(error, (click.ClickException, click.exceptions.Exit)):
        raise error
    from tidelog.cli.error_messages import FAILED, tell_error

    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("pyspark", "pyarrow"):
        tell_error(str(error), how_to_install("spark"))
        ctx.exit(FAILED)
    if "tidelog.pipeline.errors" in sys.modules:
        from tidelog.pipeline.errors import PipelineError

        if isinstance(error, PipelineError):
            tell_error(str(error), error.hint)
            ctx.exit(FAILED)
    if type(error).__module__.startswith(("pyspark", "py4j")):
        tell_error(_said_by_spark(error), "the whole story: tidelog --debug …")
        ctx.exit(FAILED)
    raise error


def _said_by_spark(error: Exception) -> str:
    """What matters of Spark's many lines: our own words where there are any, else its first line."""
    lines = [line.strip() for line in str(error).splitlines()]
    for line in reversed(lines):
        name, colon, told = line.partition(": ")
        if colon and name.startswith("tidelog.") and name.rpartition(".")[2][:1].isupper():
            return told
    return next((line for line in lines if line), type(error).__name__)
