"""Half messages beside a database: whoever dies, and when, the message is there if and only if the row is."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from half_sender import QUESTIONS, SOURCE, STEPS, TARGET, is_paid, open_database
from tests.faults.delay_soak import Plan, run_alone, run_cluster
from tests.faults.half_soak import HALVES

from tidelog.client import Client
from tidelog.client.half_sender import HalfSender
from tidelog.testing.broker import RunningBroker

SENDER = Path(__file__).with_name("half_sender.py")


def test_a_message_is_delivered_once_if_and_only_if_its_local_transaction_was_committed(tmp_path: Path) -> None:
    path = str(tmp_path / "paid.db")
    with RunningBroker({}) as broker:
        with Client(broker.bootstrap) as client:
            for topic in (TARGET, QUESTIONS):
                client.admin.create_topic(topic, partitions=1)
            configs = {
                "tidelog.half.target": TARGET,
                "tidelog.half.check.topic": QUESTIONS,
                "tidelog.half.check.ms": "300",
                "tidelog.half.check.max": "1000",
            }
            client.admin.create_topic(SOURCE, partitions=1, configs=configs)
        for at, step in enumerate(STEPS):
            half_id = f"{at} {step}"
            subprocess.run([sys.executable, SENDER, broker.bootstrap, path, half_id, step], timeout=60, check=False)
            if at % 2:
                broker.kill()
                broker.restart()
        database = open_database(path)
        with Client(broker.bootstrap) as client:
            sender = HalfSender(client, SOURCE, lambda asked: is_paid(database, asked))
            while client.halves.prepared(SOURCE):
                sender.answer_checks()
                time.sleep(0.05)
            paid = sorted(row[0] for row in database.execute("SELECT id FROM paid"))
            assert len(paid) == 3
            delivered: list[str] = []
            while len(delivered) < len(paid):
                delivered = [(record.value or b"").decode() for record in client.read(TARGET, 0)]
            broker.kill()
            broker.restart()
        with Client(broker.bootstrap) as client:
            time.sleep(0.5)
            assert sorted((record.value or b"").decode() for record in client.read(TARGET, 0)) == paid


def test_half_messages_are_delivered_as_they_were_ended_through_kills() -> None:
    verdict = run_alone(Plan(records=1_000, kills=2, most_delay_ms=1_000, per_second=1_000), HALVES)
    assert verdict.sent >= 500
    assert verdict.in_time > verdict.sent // 3


@pytest.mark.long
def test_half_messages_are_delivered_as_they_were_ended_through_changes_of_leader() -> None:
    verdict = run_cluster(Plan(records=20_000, kills=6, per_second=2_000, brokers=3), HALVES)
    assert verdict.in_time > verdict.sent // 3
