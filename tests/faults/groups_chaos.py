"""Groups under load whose members are killed, paused, added and dismissed; what happened comes back as histories.

    with Arena(broker, [Plan("g1", commit="after"), …], directory, seed) as arena:
        arena.rage(seconds=15)
        arena.settle()
        histories = arena.histories()

The load is one stock producer with acks=all. Every choice comes from the seed; what the processes make of it does not.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.systems.process import BrokerProcess
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from groups_oracle import FOREVER, GroupHistory, MemberHistory, Poll, read_journal

TOPIC = "events"
PARTITIONS = 6
RECORDS_PER_S = 400
SESSION_TIMEOUT_MS = 3_000
SETTLE_S = 90
#: Sessions that expire within a test.
BROKER_CONFIG = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "4",
}
MOST_MEMBERS = 5
#: More of what keeps a group going, or it would only shrink.
FAULTS = ("kill", "pause", "leave", "join", "join")
OFFSETS_TOPIC = "__consumer_offsets"
#: What a client may see of a coordinator that goes and comes back; all of it is tried again.
PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


def eventually(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Plan:
    """One group: `commit` is after or before processing; new members take the clients in turn."""

    group: str
    commit: str
    protocol: str = "classic"
    strategy: str = "range"
    clients: tuple[str, ...] = ("confluent",)


@dataclass(slots=True)
class LivingMember:
    process: subprocess.Popen[bytes]
    history: MemberHistory
    journal: Path
    paused_at: float = FOREVER
    resume_at: float = FOREVER

    @property
    def paused(self) -> bool:
        return self.paused_at != FOREVER


class Load:
    """Produces from a thread until it is told to stop; counts what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: Counter[int] = Counter()
        self.failed: list[str] = []
        self._stopping = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[message.partition()] += 1  # type: ignore[attr-defined]

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopping.wait(0.05):
                return
            for each in range(RECORDS_PER_S // 20):
                at = number * (RECORDS_PER_S // 20) + each
                self._producer.produce(TOPIC, b"%d" % at, partition=at % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)

    def end(self) -> None:
        self._stopping.set()
        self._thread.join()

    def stop(self) -> dict[int, int]:
        """Ends the load and gives the number of records per partition."""
        self.end()
        assert self._producer.flush(60) == 0, "records were not acknowledged"
        assert not self.failed, self.failed[0]
        return dict(self.acknowledged)


class Group:
    def __init__(self, plan: Plan, broker: BrokerProcess, directory: Path) -> None:
        self.plan = plan
        self.polls: list[Poll] = []
        self.members: list[LivingMember] = []
        self.former: list[LivingMember] = []
        self._bootstrap = broker.bootstrap
        self._directory = directory
        self._clients = itertools.cycle(plan.clients)
        # It never subscribes, so it is no member: it only asks.
        self._observer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": plan.group, "enable.auto.commit": False, "log_level": 0}
        )

    def committed_offsets(self) -> dict[int, int]:
        asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        told = self._observer.committed(asked, timeout=10)
        failed = [at.error for at in told if at.error is not None]
        if failed:
            raise KafkaException(failed[0])
        return {at.partition: at.offset for at in told if at.offset >= 0}

    def join(self) -> LivingMember:
        client = next(self._clients)
        name = f"{self.plan.group}-{len(self.members) + len(self.former)}-{client}"
        journal = self._directory / f"{name}.jsonl"
        settings = {
            "client": client,
            "bootstrap": self._bootstrap,
            "group": self.plan.group,
            "topic": TOPIC,
            "protocol": self.plan.protocol,
            "strategy": self.plan.strategy,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "commit": self.plan.commit,
            "journal": str(journal),
        }
        script = Path(__file__).with_name("groups_member.py")
        with (self._directory / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, str(script), json.dumps(settings)], stdin=subprocess.DEVNULL, stderr=errors
            )
        member = LivingMember(process, MemberHistory(name, []), journal)
        self.members.append(member)
        return member

    def kill(self, member: LivingMember) -> None:
        member.process.kill()
        member.process.wait()
        member.history.killed_at = time.monotonic()
        self._gone(member)

    def pause(self, member: LivingMember, seconds: float) -> None:
        member.paused_at = time.monotonic()
        member.resume_at = member.paused_at + seconds
        member.process.send_signal(signal.SIGSTOP)

    def resume_due(self, now: float = FOREVER) -> None:
        for member in self.members:
            if member.paused and member.resume_at <= now:
                member.process.send_signal(signal.SIGCONT)
                member.history.pauses.append((member.paused_at, time.monotonic()))
                member.paused_at = member.resume_at = FOREVER

    def dismiss(self, member: LivingMember) -> None:
        """Has a member leave; it is waited for at the end."""
        member.process.send_signal(signal.SIGTERM)
        self._gone(member)

    def _gone(self, member: LivingMember) -> None:
        self.members.remove(member)
        self.former.append(member)

    def check_members_live(self) -> None:
        for member in self.members:
            if member.process.poll() is not None:
                told = (self._directory / f"{member.history.name}.err").read_text()[-2000:]
                raise AssertionError(f"{member.history.name} ended by itself ({member.process.returncode}): {told}")

    def end(self) -> None:
        self.resume_due()
        for member in list(self.members):
            self.dismiss(member)
        for member in self.former:
            member.process.wait(60)

    def abandon(self) -> None:
        for member in (*self.members, *self.former):
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()

    def histories(self) -> list[MemberHistory]:
        for member in (*self.members, *self.former):
            member.history.events = read_journal(member.journal)
        return [member.history for member in (*self.members, *self.former)]


class Arena:
    def __init__(self, broker: BrokerProcess, plans: list[Plan], directory: Path, seed: int) -> None:
        self.broker = broker
        self.plans = plans
        self.faults: Counter[str] = Counter()
        self.chance = random.Random(seed)
        self.groups = [Group(plan, broker, directory) for plan in plans]
        self.ends: dict[int, int] = {}
        self.poll_failures: list[str] = []
        self._commits: dict[str, list[tuple[int, int]]] = {}
        self._polling = threading.Event()
        self._poller = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Self:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        for group in self.groups:
            group.join()
            group.join()
            group.join()
        self.load = Load(self.broker.bootstrap)
        self._poller.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._polling.set()
        self._poller.join(60)
        self.load.end()
        for group in self.groups:
            group.abandon()

    # --- what is done to the members ------------------------------------------------------------

    def rage(self, seconds: float) -> None:
        """Something happens about twice a second: first each fault to each group, then what chance says."""
        first = [(group, fault) for fault in ("pause", "join", "kill", "leave") for group in self.groups]
        deadline = time.monotonic() + seconds
        while (now := time.monotonic()) < deadline:
            for group in self.groups:
                group.resume_due(now)
                group.check_members_live()
            if first:
                group, fault = first.pop(0)
                # The first pauses outlast the session.
                self._strike(group, fault, sessions=1.5)
            else:
                group, fault = self.chance.choice(self.groups), self.chance.choice(FAULTS)
                self._strike(group, fault, sessions=self.chance.uniform(0.3, 1.7))
            time.sleep(self.chance.uniform(0.2, 0.9))

    def _strike(self, group: Group, fault: str, sessions: float) -> None:
        awake = [member for member in group.members if not member.paused]
        if len(awake) < 2:
            fault = "join"
        elif fault == "join" and len(group.members) >= MOST_MEMBERS:
            fault = "pause"
        self.faults[fault] += 1
        if fault == "join":
            group.join()
            return
        victim = self.chance.choice(awake)
        if fault == "kill":
            group.kill(victim)
        elif fault == "leave":
            group.dismiss(victim)
        else:
            group.pause(victim, SESSION_TIMEOUT_MS / 1_000 * sessions)

    def note_outage(self, began: float) -> None:
        """The broker was away until now: to a session that is as good as if every member had stood still."""
        ended = time.monotonic()
        if ended - began > SESSION_TIMEOUT_MS / 2_000:
            for group in self.groups:
                for member in group.members:
                    member.history.pauses.append((began, ended))

    # --- the end ----------------------------------------------------------------------------------

    def settle(self, timeout_s: float = SETTLE_S) -> None:
        """Ends the load, waits until each group has committed all of it, and dismisses everybody."""
        self.ends = self.load.stop()
        for group in self.groups:
            group.resume_due()
            group.check_members_live()
            if not group.members:
                group.join()
        for group in self.groups:
            self._drain(group, timeout_s)
        self._polling.set()
        self._poller.join(60)
        assert not self.poll_failures, self.poll_failures[0]
        for group in self.groups:
            group.check_members_live()
            group.end()
        self._commits = logged_commits(self.broker.bootstrap, TOPIC)

    def _drain(self, group: Group, timeout_s: float) -> None:
        def drained() -> bool:
            return bool(group.polls) and group.polls[-1].offsets == self.ends

        try:
            eventually(drained, timeout_s, "")
        except TimeoutError:
            at = group.polls[-1] if group.polls else None
            raise TimeoutError(f"{group.plan.group} did not come to the end {self.ends}: {at}") from None

    def histories(self) -> dict[str, GroupHistory]:
        return {
            group.plan.group: GroupHistory(
                group.histories(), self.ends, list(group.polls), self._commits.get(group.plan.group, [])
            )
            for group in self.groups
        }

    # --- watching -----------------------------------------------------------------------------------

    def _poll(self) -> None:
        while not self._polling.wait(0.2):
            for group in self.groups:
                self.poll_once(group)

    def poll_once(self, group: Group) -> None:
        began = time.monotonic()
        try:
            offsets = group.committed_offsets()
        except KafkaException as error:
            if error.args[0].code() not in PASSING:
                self.poll_failures.append(str(error))
            return
        group.polls.append(Poll(began, time.monotonic(), offsets))


def logged_commits(bootstrap: str, topic: str) -> dict[str, list[tuple[int, int]]]:
    """Every commit for a topic as the offsets topic holds them: by group, partition and offset in the log's order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "auditor", "enable.auto.commit": False, "log_level": 0}
    )
    partitions = consumer.list_topics(OFFSETS_TOPIC, timeout=30).topics[OFFSETS_TOPIC].partitions
    left = {}
    for partition in partitions:
        _, high = consumer.get_watermark_offsets(TopicPartition(OFFSETS_TOPIC, partition), timeout=30)
        if high:
            left[partition] = high
    consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, 0) for partition in left])
    found: dict[str, list[tuple[int, int]]] = {}
    while left:
        message = consumer.poll(30)
        assert message is not None and message.error() is None, "the offsets topic could not be read to its end"
        (version,) = struct.unpack_from(">h", message.key())
        # Keys of version 0 and 1 are commits; a tombstone takes one away, which nothing here does.
        if version <= 1 and message.value() is not None:
            group, of_topic, partition = commit_key(message.key())
            (offset,) = struct.unpack_from(">q", message.value(), 2)
            if of_topic == topic:
                found.setdefault(group, []).append((partition, offset))
        if message.offset() + 1 >= left[message.partition()]:
            del left[message.partition()]
    consumer.close()
    return found


def commit_key(key: bytes) -> tuple[str, str, int]:
    names = []
    at = 2
    for _ in range(2):
        (size,) = struct.unpack_from(">h", key, at)
        names.append(key[at + 2 : at + 2 + size].decode())
        at += 2 + size
    (partition,) = struct.unpack_from(">i", key, at)
    return names[0], names[1], partition
