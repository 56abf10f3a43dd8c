"""The picture that `make run` draws: everything on it can be read."""

from __future__ import annotations

from itertools import combinations

import pytest
from examples.pipeline_demo import Commit, Story, picture


@pytest.mark.parametrize("killed_s", [0.5, 6.0, 19.0])
def test_labels_of_the_picture_overlap_neither_each_other_nor_the_bars(killed_s: float) -> None:
    from matplotlib import pyplot

    story = Story()
    story.commits = [Commit(float(n), 40_000 + 1000 * n, 0.8, 1_000_000 - 40_000 * n) for n in range(20)]
    story.moments = [(killed_s, "kill -9 in the middle of a batch"), (killed_s + 0.2, "started again")]
    figure = picture(story)
    try:
        rate = figure.axes[0]
        figure.canvas.draw()
        labels = [text.get_window_extent() for text in rate.texts]
        bars = [bar.get_window_extent() for bar in rate.patches]
        assert len(labels) == 2 and bars
        assert not any(one.overlaps(other) for one, other in combinations(labels, 2))
        assert not any(label.overlaps(bar) for label in labels for bar in bars)
        inside = figure.bbox
        assert all(inside.x0 <= label.x0 and label.x1 <= inside.x1 for label in labels)
    finally:
        pyplot.close(figure)
