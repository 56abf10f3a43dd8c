"""The house stays tidy: everything is on the map, has a user, and has a name of its own.

The lists below are short on purpose. What they name is allowed for the reason beside it; an entry that is no longer
needed fails as well, so that they shrink.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from typing import Final

from modules_page import PAGE, page
from source_tree import ROOT, Module, Names, modules, unused

#: a disk, a store and a network that tests break at will; they stand where mypy checks them against their interfaces
FOR_TESTS: Final = {
    "tidelog.log.memory_disk",
    "tidelog.metadata.memory",
    "tidelog.metadata.zookeeper_server",
    "tidelog.net.memory_network",
}

#: what programs of senders use
FOR_PROGRAMS: Final = {"tidelog.client.half_sender"}

#: a library whose users are other people's tests
LIBRARIES: Final = {"testing"}

#: nouns of the field of which several rooms have their own view: the client's of what a broker has, the controller's of
#: what it decides about, an interface and whoever keeps it, what stands in a directory and what in a commit log
SHARED_NOUNS: Final = {
    "Broker",
    "Connection",
    "Entry",
    "FileSlice",
    "Groups",
    "LogDir",
    "Message",
    "OffsetOutOfRange",
    "Partition",
    "Producer",
    "Topic",
    "Transactions",
    "Workers",
}

#: rooms that are asked and answer in terms of their own: `api` alone knows what a request or a response looks like
WITHOUT_REQUESTS: Final = {"group"}

#: modules that are the same kind of thing in each of their rooms
SAME_KIND: Final = {
    "admin": "what administrators ask of a room",
    "broker": "a broker, and one that runs for a test",
    "cluster": "a cluster as a client sees it, and one that runs for a test",
    "config": "what a room reads from the configuration",
    "connection": "one connection, from either end",
    "errors": "what a room raises",
    "groups": "all groups: deciding about them, running that, asking a broker for it",
    "kernel": "loops over bytes, compiled where possible",
    "producer": "a producer, as its coordinator and as its program sees it",
    "records": "how a room's records look as bytes",
    "requester": "how a broker asks others: the interface, and who keeps it",
    "server": "sockets, and the broker behind them",
    "shard": "one coordinator partition",
    "store": "where things are kept: the metadata, and the batches of a log",
    "transactions": "all transactions: deciding about them, running that, asking a broker for it",
    "turn": "one event being decided",
}

# --- left to be mended ------------------------------------------------------------------------------

UNUSED_FOR_NOW: Final = {
    # Quotas will mute connections.
    "tidelog.net.connection.Connection._unmute",
    "tidelog.net.connection.Connection.mute",
    # kazoo calls it to read a reply.
    "tidelog.metadata.zookeeper_requests.MultiRead.deserialize",
    "tidelog.metadata.zookeeper_requests._read_part",
    "tidelog.wire.kernel.RECORD_END",
    # Compaction has a kernel of its own; these are what it is tested against.
    "tidelog.wire.records._rebased",
    "tidelog.wire.records.retain",
}
CITED_BY_WIRE: Final = {"XKey", "XValue"}


@cache
def names() -> Names:
    return Names(modules())


def ours() -> list[Module]:
    return [
        module for module in modules() if module.room not in LIBRARIES and module.name not in FOR_TESTS | FOR_PROGRAMS
    ]


def test_every_module_is_on_the_map_with_what_it_says_of_itself() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.modules_page`"


def test_every_module_says_what_it_is() -> None:
    assert [module.name for module in modules() if not module.first_sentence] == []


def test_every_definition_has_a_user() -> None:
    allowed = {str(d) for m in modules() if m not in ours() for d in m.definitions}
    found = {str(definition) for definition in unused(modules(), allowed)}
    assert sorted(found - UNUSED_FOR_NOW) == []
    assert sorted(UNUSED_FOR_NOW - found) == [], "these are used or gone: take them off the list"


def test_only_api_shapes_requests_and_responses() -> None:
    """Messages that a room stores in records are its own business."""
    known = [use.of for m in modules() if m.room in WITHOUT_REQUESTS for use in m.uses]
    messages = {of for of in known if of.startswith("tidelog.wire.messages.")}
    assert messages and [of for of in messages if of.endswith(("Request", "Response"))] == []
    assert [of for of in known if of == "tidelog.deciding.turn.RequestContext" or of == ".api_version"] == []


def test_the_rules_of_versions_have_names() -> None:
    """A schema says which version has which field; what else depends on the version is a constant of its handler."""
    bare = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        if module.room == "api"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(side, ast.Attribute) and side.attr == "version" for side in (node.left, *node.comparators))
        and any(isinstance(side, ast.Constant) for side in (node.left, *node.comparators))
    ]
    assert bare == []


def test_every_name_that_prose_cites_exists() -> None:
    cited = [citation for module in modules() for citation in module.citations()]
    missing = [f"{where}: {text}" for where, text in cited if names().missing(text) and text not in CITED_BY_WIRE]
    assert missing == []


def test_every_name_in_the_architecture_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert [cited for cited in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text) if names().missing(cited)] == []
    pictures = "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL))
    drawn = set(re.findall(r"\b[a-z_]+\.[a-z_]+\b", pictures))
    assert drawn and {f"tidelog.{name}" for name in drawn} <= names().modules


def test_a_class_name_means_one_thing() -> None:
    where = defaultdict(list)
    for module in modules():
        for node in module.classes:
            is_own_kind = any(getattr(base, "attr", getattr(base, "id", "")) == node.name for base in node.bases)
            if not node.name.startswith("_") and not is_own_kind:
                where[node.name].append(module.name)
    twins = {name for name, places in where.items() if len(places) > 1}
    assert {name: where[name] for name in twins - SHARED_NOUNS} == {}
    assert sorted(SHARED_NOUNS - twins) == [], "no twins any more: take them off the list"


def test_a_module_name_means_one_thing() -> None:
    where = defaultdict(set)
    for module in modules():
        # A module of api is named after Kafka's API, and one of cli after its command; so may be what decides about it.
        is_command = module.room == "cli" and any(d.name in ("command", module.path.stem) for d in module.definitions)
        if not module.is_package and module.room != "api" and not is_command:
            where[module.path.stem].add(module.name)
    twins = {name for name, places in where.items() if len(places) > 1}
    assert {name: where[name] for name in twins - SAME_KIND.keys()} == {}
    assert sorted(SAME_KIND.keys() - twins) == [], "no twins any more: take them off the list"


def test_at_most_six_modules_stand_beside_the_rooms() -> None:
    assert len([module for module in modules() if not module.room and not module.is_package]) <= 6
