"""Half messages: prepared, then committed or rolled back together with a transaction of the sender's own.

    sender = HalfSender(client, "orders-half", check=lambda half_id: payment_exists(half_id))
    sender.send_half(Message(b"paid"), lambda half_id: store_payment(half_id))
    sender.answer_checks()      # now and then, and after a restart: what the broker asks about

`local_transaction` does what belongs to the message, and stores the id with it; `check` finds out afterwards whether
that was done. Both return True for commit, False for rollback, and None where they do not know (yet): the broker asks
again. If the sender dies in between, whoever answers next says how the message ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.client.errors import NotFound
from tidelog.client.half_messages import HALF_ID
from tidelog.client.producer import Message
from tidelog.wire.ids import uuid_to_base64
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.client import Client
    from tidelog.client.offsets import When
    from tidelog.wire.records import Record

ORIGIN_TOPIC: Final = "tidelog-origin-topic"
ORIGIN_PARTITION: Final = "tidelog-origin-partition"
#: with one request for each partition
_MOST_ANSWERED: Final = 1_000
CHECK_TOPIC_SETTING: Final = "tidelog.half.check.topic"

#: how a half message ends: True for commit, False for rollback, None where that is not known
Outcome: TypeAlias = "bool | None"


class HalfSender:
    def __init__(
        self, client: Client, topic: str, check: Callable[[str], Outcome], group_id: str = "tidelog-half-senders"
    ) -> None:
        """`group_id` is where the position on the topic of questions is kept, for this sender and its successors."""
        self._client = client
        self._topic = topic
        self._check = check
        self._group_id = group_id

    def send_half(
        self, message: Message, local_transaction: Callable[[str], Outcome], half_id: str | None = None
    ) -> Outcome:
        """Prepares the message, runs the local transaction, and ends the message as that says.

        What the local transaction raises is raised: the message stays prepared, and the broker asks how it ended.
        """
        half_id = uuid_to_base64(os.urandom(16)) if half_id is None else half_id
        headers = [*(message.headers or ()), (HALF_ID, half_id.encode())]
        (placed,) = self._client.produce(self._topic, [message._replace(headers=headers)])
        outcome = local_transaction(half_id)
        if outcome is not None:
            self._client.halves.end(self._topic, placed.partition, half_id, outcome)
        return outcome

    def answer_checks(self) -> int:
        """Answers what the broker has asked so far; how many messages were ended by it."""
        topic = self._check_topic()
        known = self._client.groups.offsets(self._group_id)
        answered = 0
        begin: int | When
        for partition, end in self._client.offsets(topic).items():
            place = TopicPartition(topic, partition)
            position = known.get(place)
            begin = "earliest" if position is None else position.offset
            if position is None or position.offset < end.offset:
                asked = self._client.read(topic, partition, from_offset=begin, until_offset=end.offset)
                while some := list(islice(asked, _MOST_ANSWERED)):
                    answered += self._answer(some)
                self._client.groups.commit(self._group_id, {place: end.offset})
        return answered

    def _check_topic(self) -> str:
        (entry,) = self._client.admin.describe_configs("topic", self._topic, [CHECK_TOPIC_SETTING])
        if not entry.value:
            raise NotFound(f"{self._topic} has no {CHECK_TOPIC_SETTING}", hint="set it, so that senders can be asked")
        return str(entry.value)

    def _answer(self, questions: Iterable[Record]) -> int:
        """Each message once, however often it was asked about."""
        ends: dict[tuple[int, str], bool] = {}
        unknown: set[tuple[int, str]] = set()
        for record in questions:
            headers = dict(record.headers)
            place = int(headers.get(ORIGIN_PARTITION) or b"0"), (headers.get(HALF_ID) or b"").decode()
            if (headers.get(ORIGIN_TOPIC) or b"").decode() != self._topic or place in ends or place in unknown:
                continue
            outcome = self._check(place[1])
            if outcome is None:
                unknown.add(place)
            else:
                ends[place] = outcome
        self._client.halves.end_all(self._topic, ends)
        return len(ends)
