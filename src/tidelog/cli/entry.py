"""Entry point of the `tidelog` command. Importing takes a moment, and Ctrl-C during it must not look like a bug."""

from __future__ import annotations


def main() -> None:
    try:
        from tidelog.cli.main import main as run

        run()
    except KeyboardInterrupt:
        # As the shell counts it; there is nothing to put in order yet.
        raise SystemExit(130) from None
