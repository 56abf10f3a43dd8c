"""Transforms: queries and functions over the view `records`, and what is said of those that do not work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.pipeline.errors import NotReady, PipelineError
from tidelog.pipeline.spark.transform import apply, load_function
from tidelog.pipeline.spec import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(autouse=True)
def modules_as_before() -> Iterator[None]:
    path, loaded = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - loaded:
        if name.startswith("shop"):
            del sys.modules[name]


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 2.5, "a"), (2, 4.0, "b")], "id BIGINT, amount DOUBLE, customer STRING")


def transform(directory: Path | str = ".", **keys: Any) -> Transform:
    return Transform(directory=str(directory), **keys)


def test_a_function_is_found_beside_the_file_before_any_other_of_its_name(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "shop_rows.py").write_text(f"def double(x): return {place!r}\n")
    assert load_function("shop_rows:double", str(tmp_path / "one"))(None) == "one"
    assert load_function("shop_rows:double", str(tmp_path / "two"))(None) == "two"
    assert load_function("os.path:basename", str(tmp_path))("a/b") == "b"


def test_what_is_missing_of_a_function_is_said(tmp_path: Path) -> None:
    (tmp_path / "shop_plain.py").write_text("import json\ndef clean(rows): return rows\nLIMIT = 5\n")
    (tmp_path / "shop_needy.py").write_text("import no_such_library\n")
    (tmp_path / "shop_broken.py").write_text("x = 1 / 0\n")
    cases = {
        "shop_nowhere:f": (NotReady, "there is no module shop_nowhere", "put shop_nowhere.py beside"),
        "shop_plain:claen": (NotReady, "there is no function claen in", "shop_plain has clean"),
        "shop_plain:LIMIT": (NotReady, "there is no function LIMIT in", "shop_plain has clean"),
        "shop_needy:f": (NotReady, "module shop_needy imports no_such_library, which is not there", "install it"),
        "shop_broken:f": (PipelineError, "ZeroDivisionError: division by zero (shop_broken.py, line 1)", "mend"),
    }
    for python, (kind, said, hint) in cases.items():
        with pytest.raises(kind) as caught:
            load_function(python, str(tmp_path))
        assert said in caught.value.message and hint in str(caught.value.hint), python


@pytest.mark.spark
def test_queries_and_functions_transform_the_records(orders: DataFrame, tmp_path: Path) -> None:
    (tmp_path / "cheap.sql").write_text("-- the cheap ones\nSELECT id FROM records WHERE amount < 3;\n")
    (tmp_path / "shop_rates.py").write_text("RATE = 10\ndef rated(amount): return amount * RATE\n")
    (tmp_path / "shop_udfs.py").write_text(
        "from pyspark.sql import functions as F\n"
        "from shop_rates import rated\n"
        "def dear(rows):\n"
        "    return rows.select('id', F.udf(rated, 'double')('amount').alias('amount'))\n"
    )
    found = apply(transform(sql="WITH r AS (SELECT * FROM records) SELECT sum(amount) AS s FROM r"), orders)
    assert [row.s for row in found.collect()] == [6.5]
    found = apply(transform(sql_file=str(tmp_path / "cheap.sql")), orders)
    assert [row.id for row in found.collect()] == [1]
    # The function runs in Spark's workers, which know neither the module nor the one that it imports.
    found = apply(transform(tmp_path, python="shop_udfs:dear"), orders)
    assert [(row.id, row.amount) for row in found.collect()] == [(1, 25.0), (2, 40.0)]


@pytest.mark.spark
def test_what_is_wrong_with_a_transform_is_said_in_a_sentence(orders: DataFrame, tmp_path: Path) -> None:
    (tmp_path / "shop_wrong.py").write_text(
        "def nothing(rows): pass\n"
        "def listed(rows): return rows.collect()\n"
        "def failing(rows):\n    return rows.select('amuont')\n"
        "def raising(rows):\n    raise KeyError('k')\n"
    )
    cases: list[tuple[dict[str, Any], str, str]] = [
        (
            {"sql": "SELECT amuont FROM records"},
            "`amuont` cannot be resolved",
            "records are id, amount, cust",
        ),
        ({"sql": "SELECT id FROM orders"}, "`orders` cannot be found", "the columns of records"),
        ({"sql": "SELECT id, FROM records WHERE"}, "Syntax error", "the columns of records"),
        ({"sql": "DROP TABLE records"}, "is not a query", "begin it with SELECT or WITH"),
        ({"sql": "SELECT id, 1 AS ID FROM records"}, "makes two columns called id", "name one of them otherwise"),
        ({"sql": "SELECT id, NULL AS n FROM records"}, "column n has no type", "CAST(NULL AS STRING)"),
        ({"sql": "SELECT INTERVAL '1' DAY AS i FROM records"}, "column i is interval day, which tables", "cast it"),
        ({"sql_file": str(tmp_path / "no.sql")}, "No such file", "relative to the pipeline file"),
        ({"python": "shop_wrong:nothing"}, "returned nothing", "returns the DataFrame"),
        ({"python": "shop_wrong:listed"}, "returned a list", "returns the DataFrame"),
        ({"python": "shop_wrong:failing"}, "`amuont` cannot be resolved", "mend the function"),
        ({"python": "shop_wrong:raising"}, "KeyError: 'k' (shop_wrong.py, line 6)", "mend the function"),
    ]
    for keys, said, hint in cases:
        with pytest.raises(PipelineError) as caught:
            apply(transform(tmp_path, **keys), orders)
        assert said in caught.value.message and hint in str(caught.value.hint), (keys, caught.value)
        assert "\n" not in caught.value.message and len(caught.value.message) < 400
