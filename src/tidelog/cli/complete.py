"""Shell completion of the names of topics, groups and so on: one quick request, and no output if it fails."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import click
from click.shell_completion import CompletionItem

from tidelog.cli.options import DEFAULT_BOOTSTRAP

#: somebody waits at the prompt
PATIENCE_S: Final = 1.0


def complete_topic(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    from tidelog.client import Client, ClientError

    try:
        with Client(_bootstrap(ctx), "tidelog-completion", PATIENCE_S) as client:
            topics = client.cluster.describe().topics.values()
    except ClientError:
        return []
    return _matching((topic.name for topic in topics if typed or not topic.is_internal), typed)


def complete_group(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    from tidelog.client import Client, ClientError

    try:
        with Client(_bootstrap(ctx), "tidelog-completion", PATIENCE_S) as client:
            groups = client.groups.list_all()
    except ClientError:
        return []
    return _matching((group.group_id for group in groups), typed)


def complete_transactional_id(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    from tidelog.client import Client, ClientError

    try:
        with Client(_bootstrap(ctx), "tidelog-completion", PATIENCE_S) as client:
            listed = client.transactions.list_all()
    except ClientError:
        return []
    return _matching((row.transactional_id for row in listed), typed)


def complete_broker_setting(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    from tidelog.config.definitions import BROKER_KEYS

    return _matching((f"{name}=" for name in BROKER_KEYS), typed)


def complete_topic_setting(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    from tidelog.config.definitions import TOPIC_KEYS

    return _matching((f"{name}=" for name in TOPIC_KEYS), typed)


def complete_any_setting(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    from tidelog.config.definitions import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS

    return _matching({*BROKER_KEYS, *TOPIC_KEYS, *GROUP_KEYS}, typed)


def _bootstrap(ctx: click.Context) -> str:
    # While a line is completed, options are parsed and the environment is not yet looked at.
    return ctx.params.get("bootstrap") or os.environ.get("TIDELOG_BOOTSTRAP") or DEFAULT_BOOTSTRAP


def _matching(names: Iterable[str], typed: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(typed)]
