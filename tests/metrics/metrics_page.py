"""Writes the tables of metrics in docs/monitoring.md: `python -m tests.metrics.metrics_page`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tidelog.metrics.catalog import FAMILIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"
BEGIN = "<!-- written by `python -m tests.metrics.metrics_page` from src/tidelog/metrics/catalog.py -->\n"
END = "<!-- end of the generated part -->\n"


def tables() -> str:
    lines: list[str] = []
    for section, families in groupby(FAMILIES.values(), lambda family: family.section):
        lines += [f"### {section}", "", "| name | type | labels | meaning |", "|---|---|---|---|"]
        for name, kind, labels, meaning, _ in families:
            shown = ", ".join(f"`{label}`" for label in labels)
            lines.append(f"| `{name}` | {kind} | {shown} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def with_tables(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
