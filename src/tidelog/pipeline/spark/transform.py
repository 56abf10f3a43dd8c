"""What a pipeline does with its decoded rows: a query over the view `records`, or a function of a DataFrame.

`apply` gives the DataFrame that the transform makes, not yet computed, or a `PipelineError` that says which part of the
pipeline file to mend. Spark finds most mistakes in a query before it runs, and says so in many lines with its plans
below; what is useful of that is the first sentence and the place.

A function comes from a module beside the pipeline file, or from an installed one. What lies beside the file exists on
the driver only; functions of it that end up in Spark's tasks are therefore sent there whole, not by name.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tidelog.pipeline.errors import NotReady, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.pipeline.spec import Transform

VIEW = "records"
_COMMENTS = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_QUERY = re.compile(r"[\s(]*(SELECT|WITH|FROM|VALUES|TABLE)\b", re.IGNORECASE)


def apply(transform: Transform, records: DataFrame) -> DataFrame:
    """The rows that the transform makes of the records."""
    if transform.python is not None:
        rows = _call(transform.python, transform.directory, records)
    else:
        rows = _query(*_sql_of(transform), records)
    _check_columns(rows, transform)
    return rows


def _where(transform: Transform) -> str:
    if transform.python is not None:
        return f"[transform] python = {transform.python!r}"
    return f"[transform] sql_file {transform.sql_file}" if transform.sql_file is not None else "[transform] sql"


# --- SQL ----------------------------------------------------------------------------------------------


def _sql_of(transform: Transform) -> tuple[str, str]:
    where = _where(transform)
    if transform.sql_file is None:
        return transform.sql or "", where
    try:
        with open(transform.sql_file, encoding="utf-8-sig") as file:
            return file.read(), where
    except (OSError, UnicodeDecodeError) as error:
        raise NotReady(f"{where} cannot be read: {error}", "paths are relative to the pipeline file") from error


def _query(sql: str, where: str, records: DataFrame) -> DataFrame:
    from pyspark.errors import PySparkException

    if not _QUERY.match(_COMMENTS.sub(" ", sql)):
        # Spark would run any other statement there and then, for every batch.
        raise PipelineError(f"{where} is not a query", f"begin it with SELECT or WITH; the view is called {VIEW}")
    records.createOrReplaceTempView(VIEW)
    try:
        return records.sparkSession.sql(sql.strip().rstrip(";"))
    except PySparkException as error:
        raise _explained(where, error, records) from error


def _explained(where: str, error: Exception, records: DataFrame) -> PipelineError:
    told = str(error).strip()
    # Below the first lines come the logical plan, or the whole query again with a mark.
    sentence = told.split("\n", 1)[0].strip().rstrip(";")
    marked = re.search(r"\n== SQL[^\n]*==\n(.*?)(?:\n\n|\Z)", told, re.DOTALL)
    if marked and "pos" not in sentence:
        place = re.search(r"\(line (\d+), pos (\d+)\)", told)
        sentence += f" (line {place[1]}, pos {place[2]})" if place else ""
    names = ", ".join(records.columns)
    return PipelineError(f"{where}: {sentence}", f"the columns of {VIEW} are {names}")


# --- functions ----------------------------------------------------------------------------------------


def _call(python: str, directory: str, records: DataFrame) -> DataFrame:
    where = f"[transform] python = {python!r}"
    function = load_function(python, directory)
    try:
        rows = function(records)
    except Exception as error:
        # Whatever a function of somebody else's raises.
        raise PipelineError(f"{where}: {_last_word(error)}", "mend the function; it is given a DataFrame") from error
    from pyspark.sql import DataFrame

    if not isinstance(rows, DataFrame):
        found = "nothing" if rows is None else f"a {type(rows).__name__}"
        raise PipelineError(f"{where} returned {found}", "a transform returns the DataFrame that is to be written")
    return rows


def load_function(python: str, directory: str) -> Callable[[Any], Any]:
    """`module:function`; the module is looked for in the directory first."""
    where = f"[transform] python = {python!r}"
    name, _, attribute = python.partition(":")
    module = _load_module(name, directory, where)
    function = getattr(module, attribute, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        local = [key for key in own if getattr(getattr(module, key), "__module__", None) == module.__name__]
        hint = f"{name} has {', '.join(local)}" if local else f"{name} has no function"
        raise NotReady(f"{where}: there is no function {attribute} in {module.__file__ or name}", hint)
    _send_whole(directory)
    return function  # type: ignore[no-any-return]


def _load_module(name: str, directory: str, where: str) -> ModuleType:
    directory = os.path.abspath(directory)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()
    _forget_namesake(name.partition(".")[0], directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"put {name}.py beside the pipeline file, in {directory}, or install the module"
            raise NotReady(f"{where}: there is no module {name}", hint) from error
        hint = "install it for the Python that runs the pipeline"
        raise NotReady(f"{where}: module {name} imports {error.name}, which is not there", hint) from error
    except Exception as error:
        # Whatever the module does when it is imported.
        raise PipelineError(f"{where}: cannot be imported: {_last_word(error)}", "mend the module") from error


def _forget_namesake(top: str, directory: str) -> None:
    """A module of this name that was loaded from elsewhere gives way to the one beside the pipeline file."""
    loaded = sys.modules.get(top)
    beside = [os.path.join(directory, f"{top}.py"), os.path.join(directory, top, "__init__.py")]
    there = [path for path in beside if os.path.isfile(path)]
    if loaded is None or not there or getattr(loaded, "__file__", None) in there:
        return
    for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
        del sys.modules[name]


def _send_whole(directory: str) -> None:
    from pyspark import cloudpickle

    for module in _modules_in(os.path.abspath(directory)):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _modules_in(directory: str) -> Iterator[ModuleType]:
    """Modules that were imported from the directory; not those that are installed somewhere below it."""
    for name, module in list(sys.modules.items()):
        beside = os.path.join(directory, *name.split("."))
        if getattr(module, "__file__", None) in (f"{beside}.py", os.path.join(beside, "__init__.py")):
            yield module


def _last_word(error: BaseException) -> str:
    """The exception, and where in the user's own code it was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "pyspark" not in frame.filename]
    place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    said = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {said}{place}"


# --- what comes out -----------------------------------------------------------------------------------


def _check_columns(rows: DataFrame, transform: Transform) -> None:
    where = _where(transform)
    names = [field.name.lower() for field in rows.schema.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PipelineError(f"{where} makes two columns called {twice[0]}", "name one of them otherwise: … AS other")
    if not names:
        raise PipelineError(f"{where} makes no columns", "select at least one")
    for field in rows.schema.fields:
        odd = _unstorable(field.dataType)
        if odd == "void":
            raise PipelineError(f"{where}: column {field.name} has no type", "write for example CAST(NULL AS STRING)")
        if odd is not None:
            raise PipelineError(f"{where}: column {field.name} is {odd}, which tables cannot hold", "cast it")


def _unstorable(kind: Any) -> str | None:
    """A type in it that a Delta table has no place for."""
    from pyspark.sql import types

    if isinstance(kind, types.NullType):
        return "void"
    if isinstance(kind, types.ArrayType):
        return _unstorable(kind.elementType)
    if isinstance(kind, types.MapType):
        return _unstorable(kind.keyType) or _unstorable(kind.valueType)
    if isinstance(kind, types.StructType):
        return next((odd for field in kind.fields if (odd := _unstorable(field.dataType))), None)
    plain = (types.NumericType, types.StringType, types.BinaryType, types.BooleanType, types.DateType)
    fits = isinstance(kind, (*plain, types.TimestampType, types.TimestampNTZType))
    return None if fits else str(kind.simpleString())
