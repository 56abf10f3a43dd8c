"""Writes the tables of settings without effect in docs/configuration.md: `python -m tests.config.settings_page`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidelog.config.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    FIXED,
    GROUP_KEYS,
    REFUSED,
    TOPIC_KEYS,
    UNSUPPORTED,
    ConfigKey,
)
from tidelog.config.effects import ASKED, REASONS

#: settings of ours that are named like those of Kafka's beside which they stand
OWN_NAMES = frozenset(("log.layout", "shared.segment.bytes"))

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
BEGIN = "<!-- written by `python -m tests.config.settings_page` from the tables in src/tidelog/config -->\n"
END = "<!-- end of the generated part -->\n"


def tables() -> str:
    resources = {"Topic": TOPIC_KEYS, "Group": GROUP_KEYS, "Client metrics": CLIENT_METRICS_KEYS}
    lines = [
        "Broker settings that are accepted and ignored:",
        "",
        *_table(BROKER_KEYS, UNSUPPORTED, REASONS),
        "",
        "Broker settings for which Tidelog always does what the default says, and ignores any other value:",
        "",
        *_table(BROKER_KEYS, FIXED, REASONS),
        "",
        "Broker settings that [stop the start](#what-stops-the-start) with any value other than the default:",
        "",
        *_table(BROKER_KEYS, REFUSED, ASKED, "asks for"),
    ]
    for title, keys in resources.items():
        lines += ["", f"{title} settings that are accepted and ignored:", "", *_table(keys, UNSUPPORTED, REASONS)]
        if any(key.effect == REFUSED for key in keys.values()):
            lines += ["", f"{title} settings that are refused:", "", *_table(keys, REFUSED, ASKED, "asks for")]
    return "\n".join(lines) + "\n"


def _table(keys: Mapping[str, ConfigKey], kind: str, reasons: Mapping[str, str], title: str = "because") -> list[str]:
    lines = [f"| {title} | settings |", "|---|---|"]
    for reason, text in reasons.items():
        names = [key.name for key in keys.values() if key.effect == kind and key.reason == reason]
        if names:
            lines.append(f"| {text} | {', '.join(f'`{name}`' for name in sorted(names))} |")
    return lines


def with_tables(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
