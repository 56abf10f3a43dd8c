"""The source as syntax trees: the modules, what each defines, who uses it, and which names its prose cites.

A definition of a module is used where its own module names it outside of it, where another module imports it by name,
or where another says `module.name`. A method is used where anything says `.method`. A user that is itself unused does
not count, so that what only dead code calls is found as well.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
SRC: Final = ROOT / "src"

#: whoever decorates so calls the function, or hands it to somebody who does
REGISTERING: Final = frozenset({"command", "group", "fixture", "hookimpl", "register", "overload", "setter"})
#: classes of others whose members ours only describe, or whose instances are values
PLAIN_BASES: Final = frozenset(
    {"Exception", "OSError", "ValueError", "RuntimeError", "dict", "list", "str", "int", "object"}
    | {"NamedTuple", "Enum", "IntEnum", "StrEnum", "IntFlag", "Generic", "TypedDict"}
)


class Definition(NamedTuple):
    module: str
    #: `name`, or `Class.name`
    name: str
    line: int

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Use(NamedTuple):
    """`of` is a module's definition (`tidelog.log.log.Log`), or `.name` for an attribute of something."""

    of: str
    #: the definitions that the use stands in, outermost first
    within: tuple[Definition, ...]


class Citation(NamedTuple):
    where: str
    text: str


class Module:
    def __init__(self, path: Path) -> None:
        self.path = path
        parts = path.relative_to(SRC).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        self.text = path.read_text()
        self.tree = ast.parse(self.text)

    @property
    def room(self) -> str:
        """The package right below `tidelog`; "" for what stands beside the rooms."""
        parts = self.path.relative_to(SRC).parts
        return parts[1] if len(parts) > 2 else ""

    @property
    def first_sentence(self) -> str:
        docstring = " ".join((ast.get_docstring(self.tree) or "").split("\n\n")[0].split())
        return re.split(r"(?<=[.:])\s+(?=[A-Z])", docstring, maxsplit=1)[0].rstrip(":")

    # --- what it defines ----------------------------------------------------------------------------

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]

    @cached_property
    def definitions(self) -> list[Definition]:
        return list(self._definitions())

    def _definitions(self) -> Iterator[Definition]:
        for node in self.tree.body:
            for name in _bound(node):
                yield Definition(self.name, name, node.lineno)
            if isinstance(node, ast.ClassDef):
                for member in node.body:
                    if isinstance(member, ast.FunctionDef):
                        yield Definition(self.name, f"{node.name}.{member.name}", member.lineno)

    @cached_property
    def called_by_others(self) -> set[str]:
        """Definitions that somebody outside of the source calls, by rule."""
        found = set()
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and (_is_registered(node) or node.name.startswith("pytest_")):
                found.add(node.name)
            if isinstance(node, ast.ClassDef):
                bases = {_last_name(base) for base in node.bases}
                foreign = bool(bases & (self.foreign_names - PLAIN_BASES)) or "Protocol" in bases
                for member in node.body:
                    if isinstance(member, ast.FunctionDef):
                        is_dunder = member.name.startswith("__")
                        if is_dunder or _is_registered(member) or (foreign and not member.name.startswith("_")):
                            found.add(f"{node.name}.{member.name}")
        if self.name.startswith("tidelog.api."):
            found.add("handle")
        return found | {name for name in (d.name for d in self.definitions) if name.startswith("__")}

    # --- what it imports ----------------------------------------------------------------------------

    @cached_property
    def imports(self) -> dict[str, str]:
        """Name in this module -> what it stands for, with dots."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.partition(".")[0]] = alias.name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

    @cached_property
    def foreign_names(self) -> set[str]:
        return {name for name, target in self.imports.items() if not target.startswith("tidelog")}

    # --- what it uses -------------------------------------------------------------------------------

    def uses(self) -> Iterator[Use]:
        own = {definition.name: definition for definition in self.definitions}
        for target in self.imports.values():
            yield Use(target, ())
        yield from self._uses(self.tree, (), own)

    def _uses(self, node: ast.AST, within: tuple[Definition, ...], own: dict[str, Definition]) -> Iterator[Use]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and len(within) < 2:
            definition = own.get(".".join((*(d.last for d in within), node.name)))
            if definition is not None:
                within = (*within, definition)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield Use(f"{self.name}.{node.id}", within)
            if within:
                # A name in the body of a class may be one of its methods.
                yield Use(f".{node.id}", within)
        elif isinstance(node, ast.Attribute):
            yield Use(f".{node.attr}", within)
            if isinstance(node.value, ast.Name) and node.value.id in self.imports:
                yield Use(f"{self.imports[node.value.id]}.{node.attr}", within)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            # An annotation in quotes; the name of a member that is looked up.
            yield Use(f"{self.name}.{node.value}", within)
        elif isinstance(node, ast.Call) and _last_name(node.func) in ("getattr", "attrgetter", "methodcaller"):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield Use(f".{argument.value}", within)
        for child in ast.iter_child_nodes(node):
            yield from self._uses(child, within, own)

    # --- what its prose cites -----------------------------------------------------------------------

    def citations(self) -> Iterator[Citation]:
        for line, prose in self._prose():
            for text in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose):
                yield Citation(f"{self.path.relative_to(ROOT)}:{line}", text)

    def _prose(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                docstring = ast.get_docstring(node, clean=False)
                if docstring:
                    yield node.body[0].lineno, docstring
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def modules() -> list[Module]:
    return [Module(path) for path in sorted((SRC / "tidelog").rglob("*.py")) if "schema" not in path.parts]


def unused(source: list[Module], roots: set[str]) -> list[Definition]:
    """The definitions that nobody reaches; `roots` are used from outside."""
    outside = "\n".join(path.read_text() for path in (ROOT / "pyproject.toml", *SRC.rglob("*.pxd")))
    mentioned = set(re.findall(r"\w+", outside))
    #: what others on the module's own side import from it counts, an import in the module itself does not
    uses = [use for module in source for use in module.uses()]
    dead: set[Definition] = set()
    while True:
        used = {use.of: set[Definition]() for use in uses}
        alive: set[str] = set()
        for use in uses:
            if dead.isdisjoint(use.within):
                # Recursion is no user: what stands in the definition itself is remembered with it.
                if use.within:
                    used[use.of].add(use.within[-1])
                else:
                    alive.add(use.of)
        found = {
            definition
            for module in source
            for definition in module.definitions
            if str(definition) not in roots
            and definition.name not in module.called_by_others
            and definition.last not in mentioned
            and not any(
                name in alive or any(definition not in (by, *_outer(by)) for by in used.get(name, ()))
                for name in ((f".{definition.last}",) if "." in definition.name else (str(definition),))
            )
        }
        if found == dead:
            return sorted(dead)
        dead = found


def _outer(definition: Definition) -> tuple[Definition, ...]:
    outer = definition.name.rpartition(".")[0]
    return (Definition(definition.module, outer, 0),) if outer else ()


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield name.id


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_registered(node: ast.FunctionDef) -> bool:
    decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(_last_name(decorator) in REGISTERING for decorator in decorators)
