"""Random histories of groups, with restarts and failing writes, and what must hold after every step.

- A coordinator that loads the log knows what the living one knows.
- No partition has two owners: not in a generation of the classic protocol, not among the members of a consumer group,
  not among clients that follow the protocol.
- Generations and epochs never go back.
- Every request is answered at most once (the stage checks it), and none is left behind when the group comes to rest.
"""

from __future__ import annotations

from typing import Any, ClassVar

from group_script import Script, subscription, topic_id
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.group.classic_group import ClassicGroup, ClassicState
from tidelog.group.consumer_group import ConsumerGroup
from tidelog.group.groups import Groups
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

CLIENTS = ["a", "b", "c"]
clients = st.sampled_from(CLIENTS)


def durable(groups: Groups) -> dict[str, Any]:
    """Everything that a record made, in comparable form."""
    known: dict[str, Any] = {}
    for shard in groups._shards.values():
        for group_id, topics in shard.offsets.offsets.items():
            known["offsets", group_id] = topics
        for group_id, entries in shard.offsets.open.items():
            known["open", group_id] = entries
        for group_id, group in shard.groups.items():
            if isinstance(group, ConsumerGroup):
                known["consumer", group_id] = _consumer(group)
            elif group.state in (ClassicState.STABLE, ClassicState.EMPTY) and group.stored:
                known["classic", group_id] = _classic(group)
    return known


def _consumer(group: ConsumerGroup) -> Any:
    return (
        group.group_epoch,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        group.metadata_hash,
        group.members,
        group.static_members,
        {m: {t: p for t, p in target.items() if p} for m, target in group.target.items()},
        group.owners,
        group.resolved,
    )


def _classic(group: ClassicGroup) -> Any:
    members = {
        m.member_id: (m.group_instance_id, m.client_id, m.session_timeout_ms, m.rebalance_timeout_ms, m.assignment)
        for m in group.members.values()
    }
    return group.state, group.generation_id, group.protocol_type, group.protocol_name, group.leader_id, members


class History(RuleBasedStateMachine):
    settings_of_groups: ClassVar[dict[str, Any]] = {}

    @initialize()
    def begin(self) -> None:
        self.script = Script(**self.settings_of_groups)
        self.script.do("topics t:4 u:2")

    def group(self) -> Any:
        return next((s.groups["g"] for s in self.script.groups._shards.values() if "g" in s.groups), None)

    @rule(ms=st.sampled_from([0, 1, 999, 1000, 3000, 5000, 9000, 45_000]))
    def time_passes(self, ms: int) -> None:
        self.script.do(f"pass {ms}")

    @rule(error=st.sampled_from(["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER"]))
    def next_write_fails(self, error: str) -> None:
        self.script.fail_next = ErrorCode[error]

    @rule(offset=st.integers(0, 9), partition=st.integers(0, 3))
    def administrator_commits(self, offset: int, partition: int) -> None:
        self.script.do(f"commit - t-{partition}={offset}")

    @invariant()
    def a_loading_coordinator_knows_what_the_living_one_knows(self) -> None:
        living = durable(self.script.groups)
        fresh = Groups(self.script.config, lambda: "unused")
        for partition in range(50):
            fresh.load_begin(partition, 0)
        for at, (partition, key, value, producer_id) in enumerate(self.script.log):
            fresh.replay(partition, CoordinatorRecord(key, value), producer_id, at)
        loaded = durable(fresh)
        for what, value in living.items():
            if what[0] == "classic" and self.script.behind and value[0] is ClassicState.EMPTY:
                continue  # the group is empty here even where that could not be stored
            assert loaded[what] == value
        assert {w for w in loaded if w[0] in ("offsets", "open", "consumer")} == {
            w for w in living if w[0] in ("offsets", "open", "consumer")
        }


class ClassicHistory(History):
    """Clients of the classic protocol; the leader gives partition n to the n-th member."""

    @initialize()
    def begin_classic(self) -> None:
        self.newest_generation = 0
        self.owned: dict[tuple[int, bytes], str] = {}

    @rule(client=clients, version=st.sampled_from([3, 9]))
    def joins(self, client: str, version: int) -> None:
        if not self._waits(client):
            self.script.do(f"join {client} topics=t v={version} rebalance=20000")

    @rule(client=clients)
    def joins_as_static(self, client: str) -> None:
        if not self._waits(client) and (
            not self.script.client(client).member_id or self.script.client(client).instance
        ):
            self.script.do(f"join {client} topics=t instance=i{client} rebalance=20000")

    @rule(client=clients)
    def restarts_its_client(self, client: str) -> None:
        self.script.do(f"forget {client}")

    @rule(client=clients)
    def syncs(self, client: str) -> None:
        group = self.group()
        if self._waits(client) or not isinstance(group, ClassicGroup):
            return
        of = messages.SyncGroupRequest
        known = self.script.client(client)
        request = of(
            group_id="g",
            generation_id=known.generation,
            member_id=known.member_id,
            group_instance_id=known.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                of.SyncGroupRequestAssignment(member_id=m, assignment=b"p%d" % n) for n, m in enumerate(group.members)
            ],
        )
        self.script.ask("sync", client, request, 5)
        answer = self.script.tickets[-1].answer
        if answer is not None and not answer.error_code:
            assert group.state is ClassicState.STABLE
            assert answer.assignment == group.members[known.member_id].assignment != b""

    @rule()
    def settle(self) -> None:
        """Everybody joins, and everybody syncs."""
        for client in CLIENTS:
            self.joins(client, 3)
        self.script.do("pass 9000")
        for client in CLIENTS:
            self.syncs(client)

    @rule(client=clients)
    def beats(self, client: str) -> None:
        self.script.do(f"beat {client}")

    @rule(client=clients)
    def commits(self, client: str) -> None:
        self.script.do(f"commit {client} t-0=5")

    @rule(client=clients)
    def leaves(self, client: str) -> None:
        self.script.do(f"leave {client}")

    @rule()
    def all_leave(self) -> None:
        self.script.do(f"leave {' '.join(CLIENTS)}")

    @rule(client=clients)
    def loses_its_connection(self, client: str) -> None:
        self.script.do(f"drop {client}")
        for ticket in self.script.tickets:
            if ticket.client == client and not ticket.answers:
                ticket.answers = 1

    @rule()
    def restart(self) -> None:
        self.script.do("restart")
        self.newest_generation = 0
        self.owned.clear()

    def _waits(self, client: str) -> bool:
        return any(t.client == client and not t.answers for t in self.script.tickets)

    @invariant()
    def generations_never_go_back(self) -> None:
        group = self.group()
        if isinstance(group, ClassicGroup):
            assert group.generation_id >= self.newest_generation
            self.newest_generation = group.generation_id

    @invariant()
    def no_assignment_is_given_twice_in_a_generation(self) -> None:
        group = self.group()
        if isinstance(group, ClassicGroup) and group.state is ClassicState.STABLE:
            given = [m.assignment for m in group.members.values() if m.assignment]
            assert len(given) == len(set(given))

    @invariant()
    def the_group_is_of_one_mind(self) -> None:
        group = self.group()
        if not isinstance(group, ClassicGroup):
            return
        assert (group.leader_id in group.members) == bool(group.members)
        waiting = [m for m in group.members.values() if m.awaiting_join is not None]
        assert len(waiting) == group.awaiting_join_count
        assert group.static_members == {
            m.group_instance_id: m.member_id for m in group.members.values() if m.group_instance_id is not None
        }
        if group.state is ClassicState.STABLE or group.state is ClassicState.COMPLETING_REBALANCE:
            assert group.members and not waiting
        if group.state is ClassicState.EMPTY:
            assert not group.members
        if group.state is not ClassicState.COMPLETING_REBALANCE:
            assert all(m.awaiting_sync is None for m in group.members.values())

    def teardown(self) -> None:
        """Left alone, every group comes to rest and nobody waits for ever."""
        if hasattr(self, "script"):
            self.script.fail_next = None
            self.script.do("pass 2000000")
            assert not any(self._waits(client) for client in CLIENTS)


class ConsumerHistory(History):
    """Clients of the consumer protocol that do as told: give up what is not in an assignment, then say so."""

    settings_of_groups: ClassVar[dict[str, Any]] = {"consumer_assignment_interval_ms": 0}

    @initialize()
    def begin_consumer(self) -> None:
        self.owned: dict[str, dict[bytes, set[int]]] = {client: {} for client in CLIENTS}
        # What a client was last told to own: it takes until its next heartbeat to give up the rest.
        self.told: dict[str, dict[bytes, set[int]]] = {client: {} for client in CLIENTS}
        self.epochs = (0, 0)
        self.member_epochs: dict[str, int] = {}
        self.wants: dict[str, str] = {}
        # Clients that missed an answer: their next heartbeat says everything, so that they hear everything.
        self.missed: set[str] = set()

    def _owned(self, client: str) -> str:
        names = {topic_id("t"): "t", topic_id("u"): "u"}
        parts = [f"{names[t]}:{','.join(map(str, sorted(p)))}" for t, p in self.owned[client].items() if p]
        return "'" + " ".join(parts) + "'"

    def _heartbeat(self, client: str, words: str, lost: bool = False) -> None:
        known = self.script.client(client)
        epoch = known.epoch
        if "topics=" in words:
            self.wants[client] = " ".join(w for w in words.split() if w.startswith(("topics=", "regex=")))
        elif client in self.missed and "epoch=" not in words:
            words = f"{self.wants[client]} rebalance=20000 owned={self._owned(client)}"
        self.script.do(f"hb {client} {words}")
        message = self.script.last
        self.missed.discard(client)
        if lost:
            known.epoch = epoch
            self.missed.add(client)
        elif message.error_code:
            code = ErrorCode(message.error_code)
            self.missed.add(client)
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
                self.owned[client] = self.told[client] = {}
                known.epoch = 0
        elif message.member_epoch < 0:
            self.owned[client] = self.told[client] = {}
            known.epoch = 0
        elif message.assignment is not None:
            self.told[client] = {e.topic_id: set(e.partitions) for e in message.assignment.topic_partitions}
            if all(p <= self.told[client].get(t, set()) for t, p in self.owned[client].items()):
                self.owned[client] = self.told[client]

    def _finish_revocation(self, client: str) -> None:
        self.owned[client] = self.told[client]

    @rule(client=clients, topics=st.sampled_from(["t", "u", "t,u"]))
    def joins(self, client: str, topics: str) -> None:
        self.owned[client] = self.told[client] = {}
        self._heartbeat(client, f"epoch=0 topics={topics}")

    @rule(client=clients, lost=st.sampled_from([False, False, True]))
    def beats(self, client: str, lost: bool) -> None:
        if self.script.client(client).epoch > 0:
            self._finish_revocation(client)
            self._heartbeat(client, f"owned={self._owned(client)}", lost)

    @rule(order=st.permutations(CLIENTS))
    def everybody_beats(self, order: list[str]) -> None:
        for client in order:
            self.beats(client, False)
            self.what_a_client_owns_is_its_to_own()

    @rule(order=st.permutations(CLIENTS))
    def everybody_joins(self, order: list[str]) -> None:
        for client in order:
            if not self.script.client(client).epoch:
                self.joins(client, "t")

    @rule(client=clients)
    def beats_briefly(self, client: str) -> None:
        if self.script.client(client).epoch > 0:
            self._heartbeat(client, "")

    @rule(client=clients, topics=st.sampled_from(["t", "u", "t,u", ""]))
    def changes_its_subscription(self, client: str, topics: str) -> None:
        if self.script.client(client).epoch > 0:
            self._heartbeat(client, f"topics={topics} rebalance=20000 owned={self._owned(client)}")

    @rule(client=clients)
    def subscribes_by_regex(self, client: str) -> None:
        if self.script.client(client).epoch > 0:
            self._heartbeat(client, f"topics= regex=[tu] rebalance=20000 owned={self._owned(client)}")

    @rule(client=clients)
    def leaves(self, client: str) -> None:
        if self.script.client(client).epoch > 0:
            self._heartbeat(client, "epoch=-1")

    @rule(count=st.integers(1, 6))
    def topic_changes(self, count: int) -> None:
        if count > self.script.topics["u"]:
            self.script.do(f"topics u:{count}")

    @rule()
    def restart(self) -> None:
        self.script.do("restart")

    @invariant()
    def no_partition_has_two_members(self) -> None:
        group = self.group()
        if not isinstance(group, ConsumerGroup):
            return
        seen: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for held in (member.assigned, member.revoking):
                for t, partitions in held.items():
                    for partition in partitions:
                        assert seen.setdefault((t, partition), member.member_id) == member.member_id
        assert seen == {(t, p): m for t, owners in group.owners.items() for p, m in owners.items()}

    @invariant()
    def what_a_client_owns_is_its_to_own(self) -> None:
        """A client that the group still knows owns nothing that the coordinator has given to somebody else."""
        group = self.group()
        if not isinstance(group, ConsumerGroup):
            return
        for client in CLIENTS:
            known = self.script.client(client)
            if known.member_id in group.members and known.epoch > 0:
                for t, partitions in self.owned[client].items():
                    for partition in partitions:
                        owner = group.owners.get(t, {}).get(partition)
                        assert owner in (None, known.member_id)

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.group()
        if not isinstance(group, ConsumerGroup):
            return
        assert group.group_epoch >= self.epochs[0]
        assert group.assignment_epoch >= self.epochs[1]
        assert group.assignment_epoch <= group.group_epoch
        self.epochs = (group.group_epoch, group.assignment_epoch)
        for member_id, member in group.members.items():
            assert member.member_epoch >= self.member_epochs.get(member_id, 0)
            assert member.member_epoch <= group.assignment_epoch
        self.member_epochs = {m.member_id: m.member_epoch for m in group.members.values()}

    @precondition(lambda self: self.script.fail_next is None)
    @rule()
    def left_alone_the_members_reach_their_target(self) -> None:
        live = [c for c in CLIENTS if self.script.client(c).epoch > 0]
        for _ in range(6):
            self.script.do("pass 0")
            for client in live:
                if self.script.client(client).epoch > 0:
                    self._finish_revocation(client)
                    self._heartbeat(client, f"owned={self._owned(client)}")
        group = self.group()
        if not isinstance(group, ConsumerGroup) or group.resolved:
            return
        known = {self.script.client(c).member_id for c in live if self.script.client(c).epoch > 0}
        if known and known == group.members.keys():
            assert group.state_name == "Stable"
            wanted = {
                (topic_id(name), p) for name in group.subscribed_topics() for p in range(self.script.topics[name])
            }
            assert {(t, p) for t, owners in group.owners.items() for p in owners} == wanted


class MixedHistory(ConsumerHistory):
    """Both protocols in one group: classic clients come, follow their generations, and go, among the others."""

    @initialize()
    def begin_mixed(self) -> None:
        self.classic: dict[str, dict[bytes, set[int]]] = {}

    def _waits(self, client: str) -> bool:
        return any(t.client == client and not t.answers for t in self.script.tickets)

    @rule(client=st.sampled_from(["x", "y"]))
    def classic_joins(self, client: str) -> None:
        if self._waits(client):
            return
        of = messages.JoinGroupRequest
        known = self.script.client(client)
        blob = subscription("t", 1)
        request = of(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=known.member_id,
            protocol_type="consumer",
            protocols=[of.JoinGroupRequestProtocol(name="range", metadata=blob)],
        )
        self.script.ask("join", client, request, 9)

    @rule(client=st.sampled_from(["x", "y"]))
    def classic_syncs(self, client: str) -> None:
        if not self._waits(client):
            self.script.do(f"sync {client} {client}=t:0")

    @rule(client=st.sampled_from(["x", "y"]))
    def classic_beats(self, client: str) -> None:
        self.script.do(f"beat {client}")

    @rule(client=st.sampled_from(["x", "y"]))
    def classic_leaves(self, client: str) -> None:
        self.script.do(f"leave {client}")

    @invariant()
    def epochs_never_go_back(self) -> None:
        """A group that was emptied and made anew by the other protocol may count from the beginning."""

    @invariant()
    def what_a_client_owns_is_its_to_own(self) -> None:
        """The classic leader of these tests assigns as it likes."""

    @rule()
    def left_alone_the_members_reach_their_target(self) -> None:
        for client in CLIENTS:
            if self.script.client(client).epoch > 0:
                self._heartbeat(client, f"owned={self._owned(client)}")


quick = settings(max_examples=60, stateful_step_count=35, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ClassicHistory.TestCase.settings = quick
ConsumerHistory.TestCase.settings = quick
MixedHistory.TestCase.settings = quick

TestClassicHistory = ClassicHistory.TestCase
TestConsumerHistory = ConsumerHistory.TestCase
TestMixedHistory = MixedHistory.TestCase
