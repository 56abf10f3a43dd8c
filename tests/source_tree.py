"""The source as syntax trees: the modules, what each defines, who uses it, and which names its prose cites.

A definition is used if it can be reached from an entry point or from code that runs at import: by its name, by
`module.name`, or, for a method of a class that is used, wherever anything says `.method`.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
SRC: Final = ROOT / "src"

#: whoever decorates so calls the function, or hands it to somebody who does
REGISTERING: Final = frozenset({"command", "group", "fixture", "hookimpl", "register", "overload", "setter"})
#: bases that call nothing of the classes below them; click's and PySpark's do, and a Protocol's members are others'
PLAIN_BASES: Final = frozenset({"NamedTuple", "Enum", "IntEnum", "StrEnum", "Generic", "TypedDict"})


class Definition(NamedTuple):
    module: str
    #: `name`, or `Class.name`
    name: str
    line: int

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The class of a method; "" for what a module defines."""
        return f"{self.module}.{self.name.rpartition('.')[0]}" if "." in self.name else ""

    @property
    def as_used(self) -> str:
        """What a `Use` of it is of."""
        return f".{self.last}" if "." in self.name else str(self)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Use(NamedTuple):
    """`of` is a module's definition (`tidelog.log.log.Log`), or `.name` for an attribute of something."""

    of: str
    #: the innermost definition that the use stands in; None where it runs at import
    within: Definition | None


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
                foreign = bool({_first_name(base) for base in node.bases} & (self.foreign_names - PLAIN_BASES))
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

    @cached_property
    def uses(self) -> list[Use]:
        own = {definition.name: definition for definition in self.definitions}
        found = [Use(target, None) for target in self.imports.values()] if self.is_package else []
        # What a constant is made of is used where the constant is.
        left: list[tuple[ast.AST, Definition | None]] = [
            (node, own.get(next(_bound(node), ""))) for node in self.tree.body
        ]
        while left:
            node, within = left.pop()
            if isinstance(node, ast.FunctionDef) and within is not None:
                within = own.get(f"{within.name}.{node.name}", within)
            found += [Use(of, within) for of in self._named(node)]
            left += [(child, within) for child in ast.iter_child_nodes(node)]
        return found

    def _named(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield self.imports.get(node.id, f"{self.name}.{node.id}")
            # In the body of a class it may be one of its methods.
            yield f".{node.id}"
        elif isinstance(node, ast.Attribute):
            yield f".{node.attr}"
            if isinstance(node.value, ast.Name) and node.value.id in self.imports:
                yield f"{self.imports[node.value.id]}.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            # An annotation in quotes.
            yield self.imports.get(node.value, f"{self.name}.{node.value}")
        elif isinstance(node, ast.Call) and _last_name(node.func) in ("getattr", "attrgetter", "methodcaller"):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield f".{argument.value}"

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
        if not re.search(r"#.*`", self.text):
            return
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


@cache
def module_at(path: Path) -> Module:
    return Module(path)


@cache
def modules() -> list[Module]:
    """Every module of ours; of the schema tables only their package, for they are data."""
    paths = [*(SRC / "tidelog").rglob("*.py"), *SRC.glob("pyspark_*/*.py")]
    return [module_at(path) for path in sorted(paths) if path.parent.name != "schema"]


def unused(source: list[Module], roots: set[str]) -> list[Definition]:
    """The definitions that cannot be reached from `roots`, entry points, and code that runs at import."""
    outside = "\n".join(path.read_text() for path in (ROOT / "pyproject.toml", *SRC.rglob("*.pxd")))
    mentioned = set(re.findall(r"\w+", outside))
    #: what is named as -> the definitions that this may mean
    meant: dict[str, list[Definition]] = {}
    #: a definition -> what it names; None: what runs at import
    named: dict[Definition | None, set[str]] = {None: set()}
    members: dict[str, list[Definition]] = {}
    reached: list[Definition] = []
    for module in source:
        for definition in module.definitions:
            meant.setdefault(definition.as_used, []).append(definition)
            members.setdefault(definition.owner, []).append(definition)
            by_rule = definition.name in module.called_by_others
            if str(definition) in roots or definition.last in mentioned or (by_rule and not definition.owner):
                reached.append(definition)
        for use in module.uses:
            named.setdefault(use.within, set()).add(use.of)
    by_others = {f"{module.name}.{name}" for module in source for name in module.called_by_others}
    alive: set[Definition] = set()
    #: members that somebody names, whose class may not be alive
    wanted = set(named[None])
    reached += [definition for name in wanted for definition in meant.get(name, ()) if not definition.owner]
    while True:
        while reached:
            definition = reached.pop()
            if definition in alive:
                continue
            alive.add(definition)
            wanted |= named.get(definition, set())
            names = named.get(definition, set())
            reached += [other for name in names for other in meant.get(name, ()) if not other.owner]
        owners = {str(definition) for definition in alive}
        reached = [
            member
            for owner in owners
            for member in members.get(owner, ())
            if member not in alive and (str(member) in by_others or member.as_used in wanted)
        ]
        if not reached:
            return sorted({definition for module in source for definition in module.definitions} - alive)


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


def _first_name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_registered(node: ast.FunctionDef) -> bool:
    decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(_last_name(decorator) in REGISTERING for decorator in decorators)


# --- names that prose cites -------------------------------------------------------------------------


class Names:
    """Every name that the source knows, to tell whether one that is cited exists."""

    def __init__(self, source: list[Module]) -> None:
        self.modules = {module.name for module in source}
        self.files = {path.name for path in SRC.rglob("*.py*")}
        self.definitions = {str(definition) for module in source for definition in module.definitions}
        self.rooms = {module.room or module.name.rpartition(".")[2] for module in source}
        #: everything that code (not prose) says: definitions, parameters, attributes, what is imported
        self.identifiers: set[str] = set(dir(builtins))
        for module in source:
            self.identifiers.update(_identifiers(module.tree))
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        for node in (node for module in source for node in module.classes):
            self.members.setdefault(node.name, set()).update(_members(node))
            self.bases.setdefault(node.name, set()).update(_last_name(base) for base in node.bases)
        stub = (SRC / "tidelog" / "wire" / "messages.pyi").read_text()
        self.identifiers.update(re.findall(r"^\s*class (\w+)", stub, re.MULTILINE))

    def missing(self, cited: str) -> bool:
        """Whether it looks like a name of ours and there is no such name."""
        if re.fullmatch(r"[\w/]+\.py", cited):
            return cited.rpartition("/")[2] not in self.files
        path = re.fullmatch(r"(?:tidelog\.)?([a-z_]+(?:\.\w+)+)", cited)
        if path and path[1].partition(".")[0] in self.rooms and (cited.startswith("tidelog.") or CAMEL.search(cited)):
            return not self._resolves(f"tidelog.{path[1]}")
        call = re.fullmatch(r"(?:[\w.]+\.)?(\w+)\(.*\)", cited)
        if call:
            return call[1] not in self.identifiers
        dotted = re.fullmatch(r"(?:[a-z_]+\.)?([A-Z]\w*(?:\.\w+)*)", cited)
        if dotted and CAMEL.search(cited):
            first, *others = dotted[1].split(".")
            return first not in self.identifiers or not all(self._has(first, member) for member in others)
        return False

    def _has(self, name: str, member: str) -> bool:
        """Whether one of the classes of that name, or what it comes from, has the member; yes for classes of others."""
        if name not in self.members:
            return member in self.identifiers
        return member in self.members[name] or any(
            base != name and base in self.members and self._has(base, member) for base in self.bases[name]
        )

    def _resolves(self, path: str) -> bool:
        if path in self.modules or path in self.definitions:
            return True
        outer, _, last = path.rpartition(".")
        # An attribute of a class, which nothing defines but an assignment to it.
        return outer in self.definitions and last in self.identifiers


#: a class's name: `Log`, `TopicPartition`; constants are all capitals
CAMEL: Final = re.compile(r"\b[A-Z]+[a-z]\w*")


def _members(node: ast.ClassDef) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            yield part.name
        elif isinstance(part, ast.Attribute | ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.attr if isinstance(part, ast.Attribute) else part.id


def _identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).rpartition(".")[2]
