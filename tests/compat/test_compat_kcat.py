"""kcat, where it is installed: an older librdkafka than the Python client carries."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from bench.systems.process import BrokerProcess
from stock import CODECS, Message
from stock_python import ConfluentClient

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def kcat(broker: BrokerProcess, *args: str, stdin: str = "") -> str:
    command = ["kcat", "-b", broker.bootstrap, "-q", *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_writes_kcat_reads(broker: BrokerProcess, confluent: ConfluentClient, topic: str, codec: str) -> None:
    lines = [f"key{n}:value {n}" for n in range(100)]
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K", ":", "-z", codec, "-H", "a=b", stdin="\n".join(lines))
    read = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-f", "%o %k:%s %h\n").splitlines()
    assert read == [f"{n} {line} a=b" for n, line in enumerate(lines)]
    assert [record.value for record in confluent.read(topic, 100)] == [b"value %d" % n for n in range(100)]


def test_kcat_lists_the_cluster(broker: BrokerProcess, topic: str) -> None:
    listed = json.loads(kcat(broker, "-L", "-J"))
    assert sorted(one["name"] for one in listed["brokers"]) == sorted(broker.bootstrap.split(","))
    (mine,) = [one for one in listed["topics"] if one["topic"] == topic]
    assert [partition["partition"] for partition in mine["partitions"]] == [0]


def test_kcat_finds_offsets_by_time_and_from_the_end(
    broker: BrokerProcess, confluent: ConfluentClient, topic: str
) -> None:
    confluent.produce(topic, [Message(b"%d" % n, timestamp_ms=1_000 * n) for n in range(1, 21)])
    assert f"{topic} [0] offset 9" in kcat(broker, "-Q", "-t", f"{topic}:0:9500")
    assert kcat(broker, "-C", "-t", topic, "-o", "-3", "-e", "-f", "%o ") == "17 18 19 "
    assert kcat(broker, "-C", "-t", topic, "-o", "s@19000", "-e", "-f", "%o ") == "18 19 "
