"""`tidelog sim`: whole clusters under simulated time, from seeds, with everything going wrong that can."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

import click

from tidelog.cli.options import CONTEXT, examples, output_option
from tidelog.cli.output import json_line, plural, tell
from tidelog.cli.progress import Progress
from tidelog.cli.stopping import Stopping

if TYPE_CHECKING:
    from tidelog.sim.batch_of_runs import Tally
    from tidelog.sim.simulation import RunOutcome

FAILED = 1
#: seeds are drawn from so many
SEEDS = 1 << 32


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog sim --seed 4711                     # one run; the same seed is always the same run",
        "tidelog sim --seeds 1000 --minutes 30       # fresh seeds, until either is used up",
        "tidelog sim --seeds 10000 --first 0         # counted up: after Ctrl-C it says where to go on",
        "tidelog sim --seed 4711 --picture run.svg   # a run as a picture",
    ),
)
@click.option("--seed", type=click.IntRange(min=0), help="Run this seed alone.")
@click.option("--seeds", type=click.IntRange(min=1), help="Run so many seeds, drawn by chance.")
@click.option("--first", type=click.IntRange(min=0), help="Count the seeds up from this one instead.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Stop after so long.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes to run them on [default: one for each core].")
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), help="Write an SVG of the run that is shown."
)
@click.option("--trace", is_flag=True, help="With --seed: print what happened, even if all is well.")
@click.option("--shrink/--no-shrink", default=True, help="Look for fewer faults with the same failure [default: on].")
@output_option("text", "json")
@click.pass_context
def command(
    ctx: click.Context,
    seed: int | None,
    seeds: int | None,
    first: int | None,
    minutes: float | None,
    workers: int | None,
    picture: Path | None,
    trace: bool,
    shrink: bool,
    output: str,
) -> None:
    """Simulate a cluster in which things go wrong, and check what it promises.

    A run is a cluster of brokers in one process, under simulated time: processes are killed and paused, disks lose what
    was not synced, networks are cut, sessions expire, while clients write and read. It fails if a promise is broken:
    then the exit code is 1, and the seed, the promise and what happened are printed.
    """
    if seed is not None:
        if seeds is not None or first is not None or minutes is not None:
            raise click.UsageError("--seed runs one seed: it does not go with --seeds, --first or --minutes.")
        _run_one(ctx, seed, picture, trace, shrink, output)
        return
    if seeds is None and minutes is None:
        raise click.UsageError("Say which --seed to run, or how many --seeds, or for how many --minutes.")
    processes = workers or os.cpu_count() or 1
    tally, is_stopped = _run_many(first, seeds, minutes, processes)
    next_seed = None if first is None else first + tally.runs
    _show_tally(tally, output, next_seed)
    if tally.failed:
        if output == "text":
            _show_failure(tally.failed[0], picture, shrink)
        ctx.exit(FAILED)
    left = None if seeds is None else seeds - tally.runs
    if left != 0:
        tell(f"to go on: {_going_on(next_seed, left, minutes)}")
    if is_stopped:
        from tidelog.cli.main import INTERRUPTED

        ctx.exit(INTERRUPTED)


def _run_many(first: int | None, seeds: int | None, minutes: float | None, processes: int) -> tuple[Tally, bool]:
    """What came of them, and whether a signal ended it."""
    from tidelog.sim.batch_of_runs import run_all

    random = SystemRandom()
    drawn = itertools.count(first) if first is not None else (random.randrange(SEEDS) for _ in itertools.count())
    stops: list[bool] = []
    stopping = Stopping("the runs in hand")
    stopping.hand_over(lambda: stops.append(True))
    with stopping, Progress("runs", seeds) as progress:
        which = "fresh seeds" if first is None else f"seeds {first} and up"
        tell(f"running {which} on {plural(processes, 'process', 'processes')}")
        tally = run_all(
            itertools.islice(drawn, seeds),
            minutes,
            processes,
            on_progress=lambda so_far: progress.update(so_far.runs),
            is_stopped=lambda: bool(stops),
        )
    return tally, bool(stops)


def _going_on(next_seed: int | None, seeds: int | None, minutes: float | None) -> str:
    """The command that runs what is left."""
    told = "" if next_seed is None else f" --first {next_seed}"
    told += "" if seeds is None else f" --seeds {seeds}"
    return f"tidelog sim{told}" + ("" if minutes is None else f" --minutes {minutes:g}")


def _run_one(ctx: click.Context, seed: int, picture: Path | None, trace: bool, shrink: bool, output: str) -> None:
    from tidelog.sim.batch_of_runs import run_all

    tally = run_all([seed])
    if tally.failed:
        if output == "text":
            _show_failure(tally.failed[0], picture, shrink)
        else:
            _show_tally(tally, output)
        ctx.exit(FAILED)
    if trace or picture is not None:
        from tidelog.sim.simulation import simulate

        outcome = simulate(seed)
        _draw(outcome, picture)
        if trace:
            click.echo(outcome.trace)
    _show_tally(tally, output)


def _show_tally(tally: Tally, output: str, next_seed: int | None = None) -> None:
    if output == "json":
        failed = [{"seed": each.seed, "violation": str(each.violation)} for each in tally.failed]
        told = {
            "runs": tally.runs,
            "next_seed": next_seed,
            "simulated_ms": tally.simulated_ms,
            "simulated_s_per_s": round(tally.speed, 1),
            "failed": failed,
            "faults": dict(tally.injected),
            "operations": dict(tally.operations),
            "succeeded_share": round(tally.success, 4),
            "witnessed": dict(tally.witnessed),
            "took_s": round(tally.took_s, 1),
        }
        click.echo(json_line(told))
        return
    tell(tally.line())
    tell("faults:")
    for name, count in sorted(tally.injected.items()):
        tell(f"  {count:8}  {name}")
    tell("operations, and how many of them succeeded at once:")
    for name, (tried, succeeded) in tally.by_operation().items():
        tell(f"  {tried:8}  {name}, {100 * succeeded / tried:.1f} %")
    if tally.witnessed:
        tell("beside them:")
    for name, count in sorted(tally.witnessed.items()):
        tell(f"  {count:8}  {name}")


def _show_failure(outcome: RunOutcome, picture: Path | None, shrink: bool) -> None:
    shown = outcome
    if shrink:
        from tidelog.sim.shrinking import shrink as fewer_faults

        tell(f"seed {outcome.seed} failed; looking for fewer faults that do the same")
        shown = fewer_faults(outcome)
    click.echo(shown.trace)
    click.echo(f"seed {shown.seed} broke a promise. {shown.violation}")
    click.echo(f"{len(shown.faults)} of {len(outcome.faults)} faults were needed:")
    for fault in shown.faults:
        click.echo(f"  {fault}")
    click.echo(f"To repeat it: tidelog sim --seed {shown.seed}")
    _draw(shown, picture or Path(f"tidelog-sim-{shown.seed}.svg"))


def _draw(outcome: RunOutcome, picture: Path | None) -> None:
    if picture is not None:
        from tidelog.sim.timeline import picture_of

        picture.write_text(picture_of(f"seed {outcome.seed}: {outcome.violation or 'all is well'}", outcome.happenings))
        tell(f"picture: {picture}")
