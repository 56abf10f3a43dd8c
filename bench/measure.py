"""What a benchmark is, and what it gives: samples that name their variant, unit and better direction."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.systems.process import BrokerProcess

Better = Literal["higher", "lower"]
GoalOf = Literal["ratio", "value"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured value of one system in one round."""

    variant: str
    value: float
    unit: str
    better: Better
    #: At least this where higher is better, at most this where lower is better; None where no goal was set.
    goal: float | None = 1.0
    #: What the goal is about: Tidelog divided by Kafka, or Tidelog's own value whatever Kafka's is.
    goal_of: GoalOf = "ratio"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work one round does: `work` scales the amounts, where 1 is a full run."""

    work: float = 1.0

    @property
    def quick(self) -> bool:
        return self.work < 1

    def of(self, amount: int) -> int:
        return max(1, int(amount * self.work))

    def seconds(self, full: float) -> float:
        return max(0.1, full * self.work)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`run` measures one broker, which it starts itself where `started` is False."""

    id: str
    title: str
    run: Callable[[BrokerProcess, Scale, Path], Iterator[Sample]]
    started: bool = True
    #: What the median of all its ratios should be, where more than each single goal is asked.
    median_goal: float | None = None
    config: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Series:
    """All values of one variant, per system, in the order of the rounds."""

    benchmark: str
    variant: str
    unit: str
    better: Better
    goal: float | None
    goal_of: GoalOf
    #: the system that Tidelog is measured beside
    beside: str = "kafka"
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, system: str) -> float | None:
        values = self.values.get(system)
        return statistics.median(values) if values else None

    def spread(self, system: str) -> tuple[float, float] | None:
        values = self.values.get(system)
        return (min(values), max(values)) if values else None

    @property
    def ratio(self) -> float | None:
        """Tidelog ÷ the other system, of the medians; none for a value that is judged by itself."""
        ours, theirs = self.median("tidelog"), self.median(self.beside)
        if self.goal_of == "value" or ours is None or not theirs:
            return None
        return ours / theirs

    @property
    def reached(self) -> bool | None:
        """Whether the goal was reached; None where there is none, or not enough was measured to say."""
        if self.beside != "kafka":
            return None
        judged = self.ratio if self.goal_of == "ratio" else self.median("tidelog")
        if judged is None or self.goal is None:
            return None
        return judged >= self.goal if self.better == "higher" else judged <= self.goal


def percentile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]
