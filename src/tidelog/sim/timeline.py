"""The story of a run as a picture: a line for each broker from left to right, with what happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from tidelog.sim.trace import Happening

WIDTH: Final = 1400
LEFT: Final = 80
ROW: Final = 46
#: (what a happening begins with, or has in it; the colour of its mark)
COLOURS: Final = (
    ("is killed", "#c0392b"),
    ("loses", "#8e44ad"),
    ("fails", "#c0392b"),
    ("stops", "#7f8c8d"),
    ("is paused", "#e67e22"),
    ("goes on", "#27ae60"),
    ("is ready", "#27ae60"),
    ("starts", "#2980b9"),
    ("leads", "#16a085"),
    ("follows", "#95a5a6"),
)
OTHER: Final = "#34495e"
#: between a happening that ends a process or holds it up, and the one that is over with it, the line is broken
DOWN: Final = ("is killed", "has stopped", "fails", "is paused")
UP: Final = ("starts", "goes on")


def picture_of(title: str, happenings: Sequence[Happening]) -> str:
    """An SVG; each mark says on hover what happened."""
    rows = list(dict.fromkeys(each.who for each in happenings))
    rows.sort(key=lambda who: (who == "oracle", not who.startswith("b"), who))
    end_ms = max((each.at_ms for each in happenings), default=1) or 1
    height = ROW * (len(rows) + 2)

    def x(at_ms: int) -> float:
        return LEFT + (WIDTH - LEFT - 20) * at_ms / end_ms

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in range(11):
        at_ms = end_ms * tick // 10
        parts.append(f'<line x1="{x(at_ms):.0f}" x2="{x(at_ms):.0f}" y1="30" y2="{height - 20}" stroke="#ecf0f1"/>')
        parts.append(f'<text x="{x(at_ms):.0f}" y="{height - 6}" text-anchor="middle">{at_ms / 1000:.1f} s</text>')
    for number, who in enumerate(rows):
        y = 30 + ROW * number + ROW // 2
        mine = [each for each in happenings if each.who == who]
        parts.append(f'<text x="10" y="{y + 4}">{escape(who)}</text>')
        if who.startswith("b"):
            parts += [
                f'<line x1="{x(begin):.1f}" x2="{x(end):.1f}" y1="{y}" y2="{y}" stroke="#2980b9" stroke-width="3"/>'
                for begin, end in _lives(mine, end_ms)
            ]
        for each in mine:
            text = escape(f"{each.at_ms / 1000:.3f} s: {each.what}")
            parts.append(
                f'<circle cx="{x(each.at_ms):.1f}" cy="{y}" r="5" fill="{_colour(each.what)}"><title>{text}</title>'
                "</circle>"
            )
    parts.append("</svg>")
    return "\n".join(parts)


def _colour(what: str) -> str:
    return next((colour for part, colour in COLOURS if part in what), OTHER)


def _lives(happenings: Sequence[Happening], end_ms: int) -> list[tuple[int, int]]:
    """The spans in which a broker's process ran."""
    spans, since = [], None
    for each in happenings:
        if since is None and each.what.startswith(UP):
            since = each.at_ms
        elif since is not None and each.what.startswith(DOWN):
            spans.append((since, each.at_ms))
            since = None
    return spans if since is None else [*spans, (since, end_ms)]
