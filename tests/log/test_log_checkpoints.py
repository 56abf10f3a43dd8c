"""The small files, byte for byte."""

from __future__ import annotations

import pytest

from tidelog.log.checkpoints import (
    MalformedCheckpoint,
    MetaProperties,
    format_clean_shutdown,
    format_id,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_id,
    parse_partition_metadata,
    read_offsets,
    write_offsets,
)
from tidelog.log.directories.directory_names import DELETE, FUTURE, name_of, parse_name
from tidelog.log.memory_disk import MemoryDisk


def test_offsets_are_written_as_kafka_writes_them() -> None:
    assert format_offsets({("a", 0): 5, ("b.c", 12): 0}) == b"0\n2\na 0 5\nb.c 12 0\n"
    assert format_offsets({}) == b"0\n0\n"


def test_a_checkpoint_is_read_back_and_replaced_as_a_whole() -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    assert read_offsets(disk, "/d/c") == {}
    write_offsets(disk, "/d/c", {("t", 1): 7, ("t", 2): 9})
    assert read_offsets(disk, "/d/c") == {("t", 1): 7, ("t", 2): 9}
    disk.fail("sync")
    with pytest.raises(OSError, match="error"):
        write_offsets(disk, "/d/c", {})
    assert read_offsets(disk, "/d/c") == {("t", 1): 7, ("t", 2): 9}


@pytest.mark.parametrize("data", [b"0\n2\nt 1 7\n", b"9\n0\n", b"0\n1\nt 1\n", b"0\n1\nt x 7\n"])
def test_a_torn_checkpoint_is_told(data: bytes) -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    disk.open("/d/c", create=True).write(data, 0)
    with pytest.raises(MalformedCheckpoint, match="/d/c"):
        read_offsets(disk, "/d/c")


def test_ids_are_printed_as_kafka_prints_them() -> None:
    # From a partition.metadata that Apache Kafka 4.3 wrote.
    topic_id = bytes.fromhex("f34627c43fbd4ade9927fb077333bd7e")
    assert format_id(topic_id) == "80YnxD-9St6ZJ_sHczO9fg"
    assert parse_id("80YnxD-9St6ZJ_sHczO9fg") == topic_id
    assert format_partition_metadata(topic_id) == b"version: 0\ntopic_id: 80YnxD-9St6ZJ_sHczO9fg"
    assert parse_partition_metadata(format_partition_metadata(topic_id)) == topic_id


@pytest.mark.parametrize("data", [b"", b"version: 0\n", b"version: 0\ntopic_id: 80Yn", bytes(43)])
def test_a_torn_topic_id_counts_as_unknown(data: bytes) -> None:
    assert parse_partition_metadata(data) is None


def test_meta_properties_are_read_as_kafka_writes_them() -> None:
    written = (
        b"#\n#Sun Nov 15 09:57:19 UTC 2026\nnode.id=1\ndirectory.id=8fac-SkeSumYu0gHpDumRw\nversion=1\n"
        b"cluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    )
    meta = MetaProperties.parse(written, "path")
    assert (meta.cluster_id, meta.node_id) == ("MkU3OEVBNTcwNTJENDM2Qg", 1)
    assert format_id(meta.directory_id) == "8fac-SkeSumYu0gHpDumRw"
    assert MetaProperties.parse(meta.format(), "path") == meta
    old = MetaProperties.parse(b"version=0\nbroker.id=3\ncluster.id=x\n", "path")
    assert old.node_id == 3
    with pytest.raises(MalformedCheckpoint, match="path"):
        MetaProperties.parse(b"version=1\n", "path")


def test_the_clean_shutdown_marker_carries_the_broker_epoch() -> None:
    assert format_clean_shutdown(17) == b'{"version":0,"brokerEpoch":17}'
    assert parse_clean_shutdown(b'{"version":0,"brokerEpoch":17}') == 17
    assert parse_clean_shutdown(b"") == -1


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("t-0", (("t", 0), "")),
        ("a-b.c-12", (("a-b.c", 12), "")),
        ("t-0.0123abc-delete", (("t", 0), "-delete")),
        ("t-0.0123abc-future", (("t", 0), "-future")),
        ("t.x-0.0123abc-stray", (("t.x", 0), "-stray")),
        ("lost+found", None),
        ("t-x", None),
        ("-3", None),
        ("__cluster_metadata-0", None),
    ],
)
def test_directory_names(name: str, parsed: tuple[tuple[str, int], str] | None) -> None:
    assert parse_name(name) == parsed


def test_the_longest_topic_can_still_be_deleted() -> None:
    topic = "t" * 249
    for kind in (DELETE, FUTURE):
        name = name_of((topic, 12345), kind, "0" * 32)
        assert len(name) <= 255 and parse_name(name) is not None
