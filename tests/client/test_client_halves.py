"""Answering what a broker asks about half messages."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tidelog.client import Client
from tidelog.client.half_sender import HalfSender
from tidelog.client.producer import Message


@pytest.fixture(autouse=True)
def only_here(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") == "kafka":
        pytest.skip("Apache Kafka has no half messages")


def test_all_questions_are_answered_together_and_each_message_once_however_often_it_was_asked_about(
    client: Client, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    questions, target = new_topic(), new_topic()
    settings = {"tidelog.half.target": target, "tidelog.half.check.topic": questions}
    source = new_topic(partitions=2, **settings)
    ids = [f"half-{number}" for number in range(50)]
    for number, half_id in enumerate(ids):
        message = Message(half_id.encode(), None, [("tidelog-half-id", half_id.encode())])
        client.produce(source, [message], partition=number % 2)

    def question(number: int) -> Message:
        origin = [("tidelog-origin-topic", source.encode()), ("tidelog-origin-partition", b"%d" % (number % 2))]
        return Message(b"", ids[number].encode(), [("tidelog-half-id", ids[number].encode()), *origin])

    client.produce(questions, [question(number) for _ in range(3) for number in range(50)])
    checked: list[str] = []

    def check(half_id: str) -> bool | None:
        checked.append(half_id)
        number = int(half_id.split("-")[1])
        return None if number == 49 else number % 3 == 0

    sender = HalfSender(client, source, check, group_id=unique("group"))
    assert sender.answer_checks() == 49
    assert sorted(checked) == sorted(ids)
    while len(left := client.halves.prepared(source)) > 1:
        time.sleep(0.01)
    assert [half.half_id for half in left] == ["half-49"]
    ends = [record for partition in (0, 1) for record in client.read(source, partition) if len(record.headers) == 2]
    assert len(ends) == 49
    assert sender.answer_checks() == 0
