"""The ratios as a picture: one bar per variant, to the right of the line where Tidelog is better."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from bench.measure import Series


def advantage(series: Series) -> float | None:
    """How many times better Tidelog is, whichever direction is the better one."""
    ratio = series.ratio
    if not ratio:
        return None
    return ratio if series.better == "higher" else 1 / ratio


def draw(results: Iterable[Series], path: Path, title: str) -> bool:
    """Draws PNG and SVG beside each other; False where only one system was measured."""
    bars = [(series, gain) for series in results if (gain := advantage(series)) is not None]
    if not bars:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.24 * len(bars)))
    positions = range(len(bars))
    colours = ["#2a7f9e" if gain >= 1 else "#c0552d" for _, gain in bars]
    axes.barh(positions, [math.log2(gain) for _, gain in bars], color=colours, height=0.72)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(positions, [f"{series.benchmark}  {series.variant}" for series, _ in bars], fontsize=7)
    axes.invert_yaxis()
    low, high = axes.get_xlim()
    ticks = range(math.floor(low), math.ceil(high) + 1)
    axes.set_xticks(list(ticks), [f"{2.0**tick:g}×" for tick in ticks], fontsize=8)
    for position, (_, gain) in zip(positions, bars, strict=True):
        aligned = "left" if gain >= 1 else "right"
        axes.text(math.log2(gain), position, f" {gain:.2f}× ", va="center", ha=aligned, fontsize=6.5)
    axes.margins(x=0.12, y=0.01)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("Tidelog better by this factor (logarithmic)", fontsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.tight_layout()
    for ending in (".png", ".svg"):
        figure.savefig(path.with_suffix(ending), dpi=150)
    pyplot.close(figure)
    return True
