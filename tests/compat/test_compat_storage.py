"""The files on disk are Apache Kafka's: its dump tool reads them, checks their indexes, and finds nothing wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.systems.java import ToolResult
from bench.systems.process import BrokerProcess
from stock import CODECS, Message
from stock_python import ConfluentClient

pytestmark = pytest.mark.java

Java = Callable[..., ToolResult]

COMPLAINTS = ("Non-consecutive offsets", "Mismatches in", "isvalid: false", "out of order", "Index Offset", "Found")


def files(broker: BrokerProcess, topic: str, ending: str) -> list[Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob(f"*{ending}"))


def test_the_dump_tool_reads_every_codec(
    java: Java, broker: BrokerProcess, confluent: ConfluentClient, topic: str
) -> None:
    for codec in CODECS:
        messages = [Message(b"%s %d" % (codec.encode(), n), key=b"k%d" % n, headers=(("h", b"x"),)) for n in range(50)]
        confluent.produce(topic, messages, codec=codec, linger_ms=50)
    (segment,) = files(broker, topic, ".log")
    assert segment.name == "00000000000000000000.log"
    dump = java("DumpLogSegments", "--files", str(segment), "--deep-iteration", "--print-data-log").check().out
    assert "Log starting offset: 0" in dump
    batches = re.findall(
        r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+).*compresscodec: (\w+) .*isvalid: (\w+)", dump
    )
    assert {codec for *_, codec, _ in batches} == set(CODECS)
    assert {valid for *_, valid in batches} == {"true"}
    follow = 0
    for base, last, count, *_ in batches:
        assert (int(base), int(last)) == (follow, follow + int(count) - 1)
        follow = int(last) + 1
    assert follow == 250
    payloads = re.findall(r"\| offset: (\d+) .*headerKeys: \[h\] key: (\S+) payload: (.*)", dump)
    assert payloads == [
        (str(at * 50 + n), f"k{n}", f"{codec} {n}") for at, codec in enumerate(CODECS) for n in range(50)
    ]


def test_indexes_agree_with_the_log_they_index(
    java: Java, broker: BrokerProcess, confluent: ConfluentClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"segment.bytes": "1048576", "index.interval.bytes": "4096"})
    for round_number in range(6):
        stamp = 1_700_000_000_000 + round_number * 10_000
        messages = [Message(b"x" * 500, timestamp_ms=stamp + n) for n in range(1_000)]
        confluent.produce(topic, messages, linger_ms=1)
    segments = files(broker, topic, ".log")
    assert len(segments) >= 3
    bases = [int(segment.stem) for segment in segments]
    assert bases[0] == 0
    assert bases == sorted(bases)
    for ending in (".index", ".timeindex"):
        indexes = files(broker, topic, ending)
        assert [index.stem for index in indexes] == [segment.stem for segment in segments]
        # The active segment's index may hold preallocated space, which the tool takes for corruption.
        for index in indexes[:-1]:
            checked = java("DumpLogSegments", "--files", str(index), "--index-sanity-check").check()
            assert not any(complaint in checked.out for complaint in COMPLAINTS), checked.out
            dumped = java("DumpLogSegments", "--files", str(index), "--verify-index-only").check()
            assert not any(complaint in dumped.out for complaint in COMPLAINTS), dumped.out


def test_a_clean_stop_leaves_whole_files_and_checkpoints(
    java: Java, start_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = start_broker()
    topic = unique("topic")
    client = ConfluentClient(broker.bootstrap)
    client.produce(topic, [Message(b"v%d" % n) for n in range(1_000)], idempotent=True)
    broker.stop()
    (segment,) = files(broker, topic, ".log")
    (index,) = files(broker, topic, ".index")
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    meta = (broker.data_dir / "meta.properties").read_text()
    assert "cluster.id=" in meta
    recovery = (broker.data_dir / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert f"{topic} 0 1000" in recovery
    assert (broker.data_dir / f"{topic}-0" / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ")
    version, count, *epochs = (broker.data_dir / f"{topic}-0" / "leader-epoch-checkpoint").read_text().splitlines()
    assert (version, int(count), epochs[0]) == ("0", len(epochs), "0 0")
    # Where there are several brokers, those that stop before this one hand over to it what they lead.
    assert len(epochs) == 1 or (len(broker.data_dirs) > 1 and all(each.endswith(" 1000") for each in epochs[1:]))
    checked = java("DumpLogSegments", "--files", str(segment), "--deep-iteration").check().out
    assert not any(complaint in checked for complaint in COMPLAINTS), checked
    for name in (index, index.with_suffix(".timeindex")):
        checked = java("DumpLogSegments", "--files", str(name), "--index-sanity-check").check().out
        assert not any(complaint in checked for complaint in COMPLAINTS), checked
    snapshots = files(broker, topic, ".snapshot")
    assert snapshots[-1].name == "00000000000000001000.snapshot"
    producers = java("DumpLogSegments", "--files", str(snapshots[-1])).check().out
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastTimestamp", producers)
    broker.start()
    assert client.produce(topic, [Message(b"after")]) == [(0, 1_000)]
    assert len(client.read(topic, 1_001)) == 1_001
