"""`tidelog explain`: how a broker finds an offset in its files, step by step."""

from __future__ import annotations

import click

from tidelog.cli.options import CONTEXT, data_dirs_option, examples, output_option
from tidelog.cli.output import show


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog explain orders 0 4711 --data-dir data",
        "tidelog explain orders 0 4711 --data-dir /disks/a --data-dir /disks/b -o json",
    ),
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@data_dirs_option
@output_option("table", "json", "yaml")
@click.pass_context
def command(
    ctx: click.Context, topic: str, partition: int, offset: int, data_dirs: tuple[str, ...], output: str
) -> None:
    """Show how a broker finds an OFFSET of a PARTITION of a TOPIC in its files.

    The steps are: the log with its start, its end and its high watermark; the segment; the entry of the offset index;
    the batches that are passed over from there; the batch and the record. The files are only read, and a broker may be
    running on them.
    """
    from tidelog.cli.error_messages import NOT_FOUND, tell_error
    from tidelog.log.lookup_walk import NoSuchPartition, walk
    from tidelog.log.overlay_disk import OverlayDisk
    from tidelog.wire.partitions import TopicPartition

    try:
        steps = list(walk(OverlayDisk(), data_dirs, TopicPartition(topic, partition), offset))
    except NoSuchPartition as error:
        tell_error(str(error), "name the broker's data directories with --data-dir")
        ctx.exit(NOT_FOUND)
    if output != "table":
        show([step._asdict() for step in steps], [], output)
        return
    for number, step in enumerate(steps, 1):
        click.echo(f"{number:2}  {step.step:16}  {step.found}")
        if step.file is not None:
            click.echo(click.style(f"{'':22}{step.file}", dim=True))
