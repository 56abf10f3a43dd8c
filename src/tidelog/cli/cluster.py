"""`tidelog cluster`: run a cluster, show its brokers and their health, and move what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.cluster_moves import balance, decommission, elect, reassign
from tidelog.cli.cluster_up import up
from tidelog.cli.options import connected, examples, noun, output_option
from tidelog.cli.output import Coloured, Column, Row, show_fields, show_one, show_table, size

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.admin import LogDir

command = noun("Run a cluster, show its brokers and their health, and move what they hold.")
command.add_command(up)


@command.command(
    epilog=examples(
        "tidelog cluster describe",
        "tidelog cluster describe -o wide",
        "tidelog cluster describe -o json | jq .under_replicated",
    )
)
@output_option()
@connected
def describe(client: Client, output: str) -> None:
    """Show the brokers, the controller, and what is down, under-replicated, offline, moving or led by others."""
    cluster = client.admin.describe_cluster()
    seen = client.describe_health()
    topics = seen.topics
    partitions = [(topic.name, p) for topic in topics.values() for p in topic.partitions.values()]
    brokers = [
        {
            "id": node.id,
            "address": f"{node.host}:{node.port}",
            "rack": node.rack,
            "controller": node.id == cluster.controller_id,
            "fenced": node.id in cluster.fenced,
            "leaders": sum(p.leader == node.id for _, p in partitions),
            "replicas": sum(node.id in p.replicas for _, p in partitions),
            **_disk(client, node.id, fenced=node.id in cluster.fenced),
        }
        for node in sorted(cluster.nodes.values())
    ]
    described = {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": brokers,
        "down": [broker for broker in seen.down if broker not in cluster.nodes],
        "topics": len(topics),
        "partitions": len(partitions),
        "under_replicated": [f"{name}-{p.partition}" for name, p in partitions if p.under_replicated],
        "offline": [f"{name}-{p.partition}" for name, p in partitions if p.leader < 0],
        "not_preferred": [f"{name}-{p.partition}" for name, p in partitions if 0 <= p.leader != p.replicas[0]],
        "moving": _moving(client),
    }

    def people() -> None:
        show_fields(
            [
                ("Cluster", cluster.cluster_id),
                ("Controller", f"broker {cluster.controller_id}" if cluster.controller_id >= 0 else None),
                ("Topics", len(topics)),
                ("Partitions", len(partitions)),
                *_down(described["down"]),
                ("Under-replicated", _health(described["under_replicated"])),
                ("Offline", _health(described["offline"])),
                *_unrest("Not led by preferred", described["not_preferred"]),
                *_unrest("Moving", described["moving"]),
            ]
        )
        click.echo()
        show_table(brokers, [column for column in _COLUMNS if output == "wide" or not column.wide])

    show_one(described, output, people, name="cluster_id")


_COLUMNS = [
    Column("BROKER", "id", right=True),
    Column("ADDRESS", "address"),
    Column("RACK", "rack"),
    Column("ROLE", lambda row: "fenced" if row["fenced"] else "controller" if row["controller"] else None),
    Column("LEADERS", "leaders", right=True),
    Column("REPLICAS", "replicas", right=True),
    Column("SIZE", lambda row: size(row["size_bytes"]), right=True),
    Column("FREE", lambda row: size(row["usable_bytes"]), wide=True, right=True),
    Column("LOG DIRS", "log_dirs", wide=True),
]


def _health(names: object) -> Coloured | str:
    return Coloured(_some(names), "red") if names else "none"


def _down(brokers: object) -> list[tuple[str, Coloured]]:
    """Only what they hold tells of brokers that are down, so there is no row for them."""
    assert isinstance(brokers, list)
    return [("Down", Coloured(", ".join(f"broker {broker}" for broker in brokers), "red"))] if brokers else []


def _unrest(title: str, names: object) -> list[tuple[str, Coloured]]:
    """What is no failure, and shown only where there is any."""
    return [(title, Coloured(_some(names), "yellow"))] if names else []


def _some(names: object) -> str:
    assert isinstance(names, list)
    return f"{len(names)}: {', '.join(names[:10])}{' …' if len(names) > 10 else ''}"


def _moving(client: Client) -> list[str]:
    from tidelog.client.errors import ClientError

    try:
        return [str(at) for at in sorted(client.admin.reassignments())]
    except ClientError:
        # Not every broker that can be asked for the rest knows of moves.
        return []


def _disk(client: Client, broker_id: int, fenced: bool) -> Row:
    from tidelog.client.errors import ClientError

    directories: list[LogDir] = []
    if not fenced:
        try:
            directories = client.admin.log_dirs(broker_id)
        except ClientError:
            # A broker that does not tell is still listed.
            directories = []
    return {
        "size_bytes": sum(replica.size_bytes for d in directories for replica in d.replicas) if directories else None,
        "usable_bytes": min((d.usable_bytes for d in directories), default=None),
        "log_dirs": [directory.path for directory in directories],
    }


for verb in (balance, reassign, elect, decommission):
    command.add_command(verb)
