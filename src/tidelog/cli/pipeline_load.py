"""`tidelog pipeline load`: load files into a topic, each row once however often you run it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tidelog import how_to_install
from tidelog.cli.complete import complete_topic
from tidelog.cli.options import CONTEXT, broker_options, compression_option, debugging, dry_run_option, examples, pairs

if TYPE_CHECKING:
    from tidelog.pipeline.load.load_job import Load, LoadDone, Todo


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
@click.option(
    "--job", metavar="NAME", help="Name of the job, which remembers what it has loaded.  [default: the topic's name]"
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["auto", "parquet", "csv", "json", "text", "delta"]),
    default="auto",
    show_default=True,
    help="Format of the files; auto goes by their names. json means one document per line.",
)
@click.option(
    "--schema", metavar="DDL", help="Columns, such as 'id long, name string', if the files do not define them."
)
@click.option("-k", "--key", metavar="SQL", help="Key of a record: a column, or an expression over columns.")
@click.option("--value", metavar="SQL", help="Value of a record.  [default: the row as JSON]")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=SQL", help="A header; may be repeated.")
@click.option("--partition", metavar="SQL", help="Partition of a record.  [default: by key, like the Java client]")
@click.option("--timestamp", metavar="SQL", help="Timestamp of a record.  [default: now]")
@click.option("--where", metavar="SQL", help="Load only rows for which this is true.")
@click.option(
    "--read-option",
    "read_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option for Spark's reader; may be repeated.",
)
@click.option(
    "--write-option",
    "write_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of format('tidelog'); may be repeated.",
)
@compression_option
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Spark master.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Spark setting; may be repeated.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["summary", "json"]),
    default="summary",
    show_default=True,
    help="Output format.",
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
    """Load files into a topic. They can be Parquet, CSV, JSON lines, text, or a Delta table.

    PATH is a file, a directory or a pattern. A job loads each file once: if you run it again, it loads new files, and
    after a failure what is missing. `read_committed` consumers see the rows when the whole load has succeeded.
    """
    try:
        from tidelog.pipeline.load.load_job import Load
        from tidelog.pipeline.spark.session import leave_errors_to_callers, spark_session
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
    from tidelog.pipeline.load.load_job import plan, records, run

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
        tell("there is nothing new")
        return
    tell(f"would load {_what(todo)} as records of {', '.join(schema.fieldNames())}")


def _tell(wanted: Load, todo: Todo, done: LoadDone | None, output: str) -> None:
    from tidelog.cli.output import json_line, plural, tell

    if output == "json":
        rows, files = (0, 0) if done is None else (done.rows, done.files)
        click.echo(json_line({"job": wanted.job, "topic": wanted.topic, "files": files, "records": rows}))
    elif done is None:
        tell(f"there is nothing new: job {wanted.job} has already loaded everything")
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
        tell_error(_said_by_spark(error), "use tidelog --debug … to see the full error")
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
