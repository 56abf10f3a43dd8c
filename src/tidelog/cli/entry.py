"""Where the `tidelog` command begins. Importing takes a moment, and Ctrl-C in that moment is no failure of the code."""

from __future__ import annotations


def main() -> None:
    try:
        from tidelog.cli.main import main as run

        run()
    except KeyboardInterrupt:
        # As the shell counts it; there is nothing to put in order yet.
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
