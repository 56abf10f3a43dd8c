"""Errors for people: what went wrong, what to do, and the exit code."""

from __future__ import annotations

from typing import Final

import click

from tidelog.cli.options import speaks_json
from tidelog.client.errors import ClientError, Denied, NotFound, Refused, Unreachable
from tidelog.config.errors import ConfigError

FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
DENIED: Final = 5


def explain(error: Exception) -> int:
    """Prints what went wrong and returns the exit code."""
    if isinstance(error, ClientError):
        tell_error(str(error), error.hint)
        return exit_code(error)
    if isinstance(error, ConfigError):
        if speaks_json():
            tell_error(f"{error.where}: {error}" if error.where else str(error), error.hint)
        else:
            tell_error(error.explain())
        return USAGE
    if isinstance(error, OSError) and error.strerror:
        tell_error(f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower())
        return FAILED
    tell_error(f"unexpected error: {type(error).__name__}: {error}", "use tidelog --debug … to see the traceback")
    return FAILED


def tell_error(message: str, hint: str | None = None) -> None:
    if speaks_json():
        from tidelog.cli.output import json_line

        click.echo(json_line({"error": message, "hint": hint}), err=True)
        return
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
    if hint:
        click.echo(f"  {hint}", err=True)


def exit_code(error: ClientError) -> int:
    for kind, code in ((Unreachable, UNREACHABLE), (NotFound, NOT_FOUND), (Denied, DENIED)):
        if isinstance(error, kind):
            return code
    # What was refused here, before a broker was asked, was asked wrongly.
    return USAGE if isinstance(error, Refused) and error.code < 0 else FAILED
