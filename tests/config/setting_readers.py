"""Finds in the source which settings are read, so that a test can compare that with what the tables claim.

A broker's value is read through two doors: `values.<name in snake case>`, and a call of `get` or `internal_topic` with
its name. A value that only goes into a structure, such as `Limits`, is read where that structure's field is. A topic's
value goes into the field of `LogConfig` with its name, a group's into that of `GroupOverrides`.

A read counts only in a function that something can get to, by name, from the code that runs when modules are loaded.
It does not count in the checks of the config room: that a value is refused does not mean that another does anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import tidelog
from tidelog.config.broker_config import attribute_of
from tidelog.config.definitions import (
    BROKER_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    SAME_SETTING,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
)

SOURCE = Path(tidelog.__file__).parent
#: structures that take settings over, and the rooms that read their fields
STRUCTURES = {
    "CleanerConfig": ("log",),
    "GroupConfig": ("group",),
    "GroupOverrides": ("group",),
    "Limits": ("net",),
    "LogConfig": ("log", "replica", "api", "coordinator"),
    "ControllerSettings": ("control",),
    "TxnConfig": ("txn",),
}
#: rooms that are no part of a broker, and modules that only speak about settings
ASIDE = ("client", "pipeline", "testing")
ABOUT = ("describe.py", "effects.py", "sources.py", "unkept.py")
ATTRIBUTES = {attribute_of(name): name for name in BROKER_KEYS}


class Read(NamedTuple):
    """What is read: a setting of the broker, or the field of a structure that a setting went into."""

    setting: str
    structure: str | None
    field: str | None


class Module:
    def __init__(self, path: Path) -> None:
        self.room = path.relative_to(SOURCE).parts[0]
        self.in_config = self.room == "config"
        self.may_read = self.room != "cli" and not (self.in_config and path.name in ABOUT)
        self.tree = ast.parse(path.read_text())
        self.parents: dict[ast.AST, ast.AST] = {}
        #: the names of the functions that a node stands in, the innermost first
        self.functions: dict[ast.AST, tuple[str, ...]] = {self.tree: ()}
        for node in ast.walk(self.tree):
            inside = self.functions[node]
            if isinstance(node, ast.FunctionDef):
                inside = (node.name, *inside)
            for child in ast.iter_child_nodes(node):
                self.parents[child], self.functions[child] = node, inside
        self.constants = {
            target.id: node.value.value
            for node in self.tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def is_check(self, node: ast.AST) -> bool:
        return self.in_config and any(name.startswith(("check", "_check")) for name in self.functions[node])

    def is_reached(self, node: ast.AST, reached: set[str]) -> bool:
        return all(name in reached for name in self.functions[node])

    def structure_of(self, node: ast.AST) -> tuple[str, str] | None:
        """The structure and the field that the node's value is handed to, if any."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
            above = self.parents.get(at)
            if isinstance(at, ast.keyword) and at.arg and isinstance(above, ast.Call):
                name = getattr(above.func, "id", None)
                if name in STRUCTURES:
                    return name, at.arg
            at = above
        return None


def settings_read() -> tuple[set[str], set[str], set[str]]:
    """The settings of brokers, topics and groups that change what a broker does."""
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if not path.name.startswith("definitions")]
    modules = [Module(path) for path in paths if path.relative_to(SOURCE).parts[0] not in ASIDE]
    reached = _reached(modules)
    modules = [module for module in modules if module.may_read]
    fields = _fields_read(modules, reached)
    topics = {name for name in TOPIC_KEYS if ("LogConfig", attribute_of(name)) in fields}
    brokers: set[str] = set()
    groups: set[str] = set()
    for module in modules:
        for read in _reads(module, reached):
            if read.structure is None or (read.structure, read.field) in fields:
                brokers.update({read.setting}.intersection(BROKER_KEYS))
                topics.update({read.setting}.intersection(TOPIC_KEYS))
                groups.update({read.setting}.intersection(GROUP_KEYS))
    brokers.update(synonym for name in topics for synonym, _ in TOPIC_SYNONYMS.get(name, ()))
    for name in groups:
        kind, _, what = GROUP_SYNONYMS[name].removeprefix("group.").partition(".")
        brokers.update({f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"}.intersection(BROKER_KEYS))
    for same in SAME_SETTING:
        if brokers.intersection(same):
            brokers.update(same)
    return brokers, topics, groups


def _reads(module: Module, reached: set[str]) -> Iterator[Read]:
    for node in ast.walk(module.tree):
        setting = _setting_of(module, node)
        if setting is not None and not module.is_check(node) and module.is_reached(node, reached):
            yield Read(setting, *(_declared(module, node) or module.structure_of(node) or (None, None)))


def _setting_of(module: Module, node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in ATTRIBUTES:
        through = node.value
        is_door = through.attr if isinstance(through, ast.Attribute) else getattr(through, "id", None)
        return ATTRIBUTES[node.attr] if is_door == "values" else None
    if isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        given = node.args[0]
        name = module.constants.get(given.id) if isinstance(given, ast.Name) else getattr(given, "value", None)
        if called in ("get", "internal_topic", "_named") and isinstance(name, str):
            return name if name in BROKER_KEYS or name in TOPIC_KEYS or name in GROUP_KEYS else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        # `fields` puts an internal setting in the place of another one.
        return "internal.segment.bytes" if node.slice.value == "internal_segment_bytes" else None
    return None


def _declared(module: Module, node: ast.AST) -> tuple[str, str] | None:
    """`field: int = _named(...)` of a structure: its name and the field's."""
    above = module.parents[node]
    around = module.parents.get(above)
    if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(around, ast.ClassDef):
        return (around.name, above.target.id) if around.name in STRUCTURES else None
    return None


def _fields_read(modules: list[Module], reached: set[str]) -> set[tuple[str, str]]:
    found = set()
    for module in modules:
        if module.in_config:
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            if _setting_of(module, node) is None and module.is_reached(node, reached):
                found.update((structure, node.attr) for structure, rooms in STRUCTURES.items() if module.room in rooms)
    return found


def _reached(modules: list[Module]) -> set[str]:
    """The names of functions that can be got to. A name that stands as text counts: some calls are made by name."""
    refers: dict[str, set[str]] = {}
    reached = set()
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef):
                refers.setdefault(node.name, set())
                if node.name.startswith("__") or node.decorator_list:
                    reached.add(node.name)
            name = _name(node)
            if name is None or module.is_check(node):
                continue
            if functions := module.functions[node]:
                refers.setdefault(functions[0], set()).add(name)
                # What a function defines inside is reached with it.
                for inner, outer in pairwise(functions):
                    refers.setdefault(outer, set()).add(inner)
            else:
                reached.add(name)
    waiting = list(reached)
    while waiting:
        for name in refers.get(waiting.pop(), set()) - reached:
            reached.add(name)
            waiting.append(name)
    return reached


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
