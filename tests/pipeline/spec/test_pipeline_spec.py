"""The pipeline file: what it means, and what is said of every mistake in it."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import pytest
from spec_reference import reference

from tidelog.pipeline.spec import METADATA, SECTIONS, Pipeline, SpecError, load, parse
from tidelog.pipeline.spec.toml_keys import keys_of

LEAST = 'name = "p"\n[source]\ntopics = ["orders"]\n[table]\npath = "lake/p"\n'


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as error:
        parse(text, "p.toml")
    return [problem.explain() for problem in error.value.problems]


def with_section(section: str, keys: str) -> str:
    return LEAST + f"[{section}]\n{keys}\n"


def test_the_least_file_has_a_value_for_everything(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(LEAST)
    pipeline = load(str(file))
    assert pipeline.table.path == str(tmp_path / "lake" / "p")
    assert pipeline.dead_letters.path == str(tmp_path / "lake" / "p_dead_letters")
    assert (pipeline.decode.format, pipeline.group.id, pipeline.spark.master) == ("raw", "p", "local[*]")
    assert (pipeline.source.isolation, pipeline.source.starting_offsets) == ("read_committed", "earliest")
    assert pipeline.transform is None and not pipeline.trigger.once
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline, "it travels to executors"


def test_values_are_read_with_their_units(tmp_path: Path) -> None:
    pipeline = parse(
        LEAST
        + 'target_file_size = "1.5 GB"\nmetadata = { offset = "at", key = false }\n'
        + '[trigger]\ninterval = "250ms"\n[limits]\nmax_bytes_per_task = 1000\n'
        + '[spark.conf]\nspark.executor.memory = "2g"\n"spark.speculation" = true\nspark.cores.max = 4\n'
        + "[source.starting_offsets.orders]\n0 = 12\n1 = -1\n"
    )
    assert pipeline.table.target_file_size == 3 << 29
    assert pipeline.trigger.interval_ms == 250 and pipeline.limits.max_bytes_per_task == 1000
    assert pipeline.spark.conf == {
        "spark.executor.memory": "2g",
        "spark.speculation": "true",
        "spark.cores.max": "4",
    }
    assert pipeline.source.starting_offsets == {"orders": {0: 12, 1: -1}}
    names = dict(pipeline.decode.metadata)
    assert names == {**{k: v for k, v in METADATA.items() if k != "key"}, "offset": "at"}


def test_an_address_given_beside_the_file_counts_and_one_in_the_environment_fills_in() -> None:
    named = LEAST.replace("[source]", '[source]\nbootstrap = "a:1"')
    assert parse(named, bootstrap="b:2", fallback="c:3").source.bootstrap == "b:2"
    assert parse(named, fallback="c:3").source.bootstrap == "a:1"
    assert parse(LEAST, fallback="c:3").source.bootstrap == "c:3"


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("s3://lake/orders/", "s3://lake/orders"),
        ("s3a://lake/orders", "s3://lake/orders"),
        ("hdfs://namenode:8020/orders", "hdfs://namenode:8020/orders"),
        ("hdfs:///orders", "hdfs:///orders"),
        ("abfss://c@account.dfs.core.windows.net/orders", "abfss://c@account.dfs.core.windows.net/orders"),
        ("file:///data/orders", "/data/orders"),
        ("/data/orders", "/data/orders"),
    ],
)
def test_a_table_is_in_a_directory_or_at_an_address_of_storage(written: str, path: str) -> None:
    assert parse(LEAST.replace("lake/p", written)).table.path == path


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("ftp://host/orders", "there is no storage called ftp"),
        ("dbfs:/orders", "there is no storage called dbfs"),
        ("s3:/lake/orders", "is no whole address"),
        ("s3://", "is no whole address"),
        ("s3://lake", "is no whole address"),
        ("s3:///orders", "is no whole address"),
        ("hdfs://namenode:8020/of tables", "characters that addresses have no place for"),
        ("s3://lake/100%", "characters that addresses have no place for"),
    ],
)
def test_an_address_where_no_table_can_be_is_a_mistake_of_the_file(written: str, says: str) -> None:
    told = problems(LEAST.replace("lake/p", written))
    assert len(told) == 1 and "[table] path" in told[0] and says in told[0]
    assert "[dead_letters] path" in problems(with_section("dead_letters", f'path = "{written}"'))[0]


def test_the_mark_of_utf8_before_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(b"\xef\xbb\xbf" + LEAST.encode())
    assert load(str(tmp_path / "p.toml")).name == "p"


def test_the_reference_names_the_words_that_a_key_takes() -> None:
    said = {row.key: row.says for row in reference()}
    assert said["format"].endswith('`"json"`, `"avro"`, `"protobuf"`, `"text"` or `"raw"`')
    assert said["isolation"].endswith('`"read_committed"` or `"read_uncommitted"`')


def test_all_mistakes_are_told_at_once_with_place_and_remedy() -> None:
    told = problems(
        'naem = "p"\n[sorce]\ntopics = ["a"]\n[table]\npath = "x"\npartition_by = 3\ncompact_evry = 2\n'
        '[decode]\nformat = "jsn"\n'
    )
    assert told == [
        "p.toml:2 [sorce]: there is no section [sorce]\n  did you mean source?",
        "p.toml:1 naem: there is no key naem\n  did you mean name?",
        'p.toml name: is missing\n  what the pipeline is called: name = "orders"',
        "p.toml:9 [decode] format: 'jsn' is not one of its values\n"
        "  did you mean json? write one of: json, avro, protobuf, text, raw",
        "p.toml:7 [table] compact_evry: there is no key compact_evry\n  did you mean compact_every?",
        'p.toml:6 [table] partition_by: 3 is not a list of names\n  write for example ["orders", "returns"]',
        'p.toml [source] topics: no topics are given\n  write topics = ["orders"] or topic_pattern = "orders-.*"',
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not toml", "not valid TOML"),
        (LEAST.replace('name = "p"', 'name = "a/b"'), "is no name for a pipeline"),
        (LEAST.replace('["orders"]', '["orders"]\ntopic_pattern = "x"'), "both topics and topic_pattern"),
        (LEAST.replace('topics = ["orders"]', 'topic_pattern = "("'), "not a regular expression"),
        (LEAST.replace('["orders"]', '["a", "a"]'), "named twice"),
        (with_section("decode", 'format = "json"'), "json needs a schema"),
        (with_section("decode", 'format = "json"\nschema = "id INT"\ninfer = true'), "both schema and infer"),
        (with_section("decode", 'format = "text"\nschema = "id INT"'), "schema does not go with text"),
        (with_section("decode", 'format = "avro"\ninfer = true'), "cannot be inferred"),
        (with_section("decode", 'format = "protobuf"\nschema_file = "p.toml"'), "[decode] message: is missing"),
        (with_section("decode", 'format = "avro"\nschema_file = "nowhere.avsc"'), "there is no file"),
        (with_section("decode", 'on_error = "ignore"'), "write one of: dead_letter, stop"),
        (with_section("transform", ""), "it says nothing"),
        (with_section("transform", 'sql = "select 1"\npython = "m:f"'), "sql and python are given"),
        (with_section("transform", 'python = "m.f"'), "names no function"),
        (with_section("trigger", 'once = true\ninterval = "1s"'), "both once and interval"),
        (with_section("trigger", "interval = 5"), 'write for example "500ms", "5s" or "1m"'),
        (with_section("trigger", 'once = "yes"'), "neither true nor false"),
        (with_section("limits", "tasks = 0"), "not a whole number from 1 on"),
        (with_section("limits", 'max_bytes_per_task = "much"'), "not a size"),
        (with_section("dead_letters", 'path = "lake/p"'), "is the table's own path"),
        (with_section("dead_letters", 'path = "lake/p/bad"'), "lie one in the other"),
        (with_section("dead_letters", 'path = "lake"'), "lie one in the other"),
        (with_section("source.starting_offsets", 'orders = "latest"'), "names no partitions"),
        (LEAST + 'metadata = { ofset = "x" }\n', "not a metadata column"),
        (LEAST.replace('["orders"]', '["orders"]\nstarting_offsets = "first"'), "not a place to start"),
    ],
)
def test_a_mistake_is_told_in_words(text: str, expected: str) -> None:
    told = problems(text)
    assert any(expected in one for one in told), told
    assert all("\n  " in one for one in told), "every one says what to do"


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no such file"):
        load(str(tmp_path / "nothing.toml"))


def test_the_reference_has_every_key_that_the_dataclasses_have() -> None:
    found = {(row.section, row.key) for row in reference()}
    assert found == {("", "name")} | {(section, name) for section, kind in SECTIONS.items() for name in keys_of(kind)}
    assert {f.name for f in fields(Pipeline)} == {"name", "file", *SECTIONS}


def test_the_documentation_has_the_reference_line_by_line() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "pipelines.md").read_text().splitlines()
    _, rows = "\n".join(page).split("\n### At the top\n", 1)
    assert [line for line in rows.splitlines() if line.startswith("| `")] == [row.row() for row in reference()]
