"""Writes docs/modules.md, the list of all modules, from their docstrings: `python -m tests.modules_page`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from source_tree import ROOT, SRC, Module, module_at

PAGE = ROOT / "docs" / "modules.md"
BESIDE = "beside the rooms"

HEAD = """\
# Modules

Every module and the first sentence of its docstring, room by room; [architecture.md](architecture.md) says what the
rooms are and how they fit together. `python -m tests.modules_page` writes this page, and a test compares it.
"""


def page() -> str:
    packages: dict[str, list[Module]] = {}
    for path in sorted((SRC / "tidelog").rglob("*.py")):
        module = module_at(path)
        if not module.is_package:
            package = ".".join(path.relative_to(SRC / "tidelog").parts[:-1])
            packages.setdefault(package or BESIDE, []).append(module)
    beside = packages.pop(BESIDE)
    return "\n".join([HEAD, *(_section(*item) for item in sorted(packages.items())), _section(BESIDE, beside)])


def _section(title: str, modules: list[Module]) -> str:
    rows = [f"| `{module.path.name}` | {_escaped(module.first_sentence)} |" for module in modules]
    return "\n".join([f"## {title}", "", "| module | what it is |", "|---|---|", *rows, ""])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
