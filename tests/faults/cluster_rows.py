"""The table of faults, row by row, on a cluster of real processes under load.

Each row is a function that sets a stage, inflicts its fault and returns the oracle's verdict with figures of its own.
Baseline: three brokers, three replicas, two of which must be in sync, idempotent producers with acks=all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench import raw
from tests.faults.cluster_judge import Verdict
from tests.faults.clusterkit import SESSION_MS, Stage, until
from tests.faults.faultkit import batch

NOT_ENOUGH_REPLICAS = 19

Row = Callable[[], Verdict]
ROWS: dict[str, Row] = {}


def row(name: str) -> Callable[[Row], Row]:
    def note(function: Row) -> Row:
        ROWS[name] = function
        return function

    return note


def _elected(stage: Stage, dead: int, topic: str | None = None) -> float:
    """How long it took until somebody else leads the first partition."""
    took = until(lambda: stage.leader(topic) not in (dead, -1), f"a leader after {dead}", SESSION_MS / 1000 + 30)
    stage.claim(took < SESSION_MS / 1000 + 5, "election", f"a new leader only after {took:.1f} s")
    return took


@row("leader-kills")
def leader_kills(times: int = 5) -> Verdict:
    """kill -9 the leader, five times."""
    with Stage() as stage:
        stage.load()
        slowest = 0.0
        for _ in range(times):
            victim = stage.leader()
            stage.cluster.brokers[victim].kill()
            slowest = max(slowest, _elected(stage, victim))
            stage.flow()
            stage.cluster.brokers[victim].start()
            stage.await_in_sync(stage.topic)
        stage.figures["slowest election s"] = round(slowest, 2)
        return stage.judge(errors_allowed=False)


@row("controller-kill")
def controller_kill() -> Verdict:
    """kill -9 the controller: exactly one comes after it, and its epoch goes up by one."""
    with Stage() as stage:
        stage.load()
        before, epoch = stage.controller(), stage.controller_epoch()
        assert before is not None
        stage.cluster.brokers[before].kill()
        stage.figures["next controller s"] = round(
            until(lambda: stage.controller() not in (None, before), "a controller"), 2
        )
        stage.flow(seconds=3)
        after = stage.controller_epoch()
        stage.claim(after == epoch + 1, "controller", f"its epoch went from {epoch} to {after}")
        stage.cluster.brokers[before].start()
        return stage.judge()


@row("pause")
def pause_past_session() -> Verdict:
    """Pause the leader past its session, then let it go on: it acknowledges nothing as a zombie, and rejoins."""
    from bench import raw
    from tests.faults.faultkit import batch

    with Stage() as stage:
        stage.load()
        paused = stage.leader()
        broker = stage.cluster.brokers[paused]
        connection = raw.Connection(broker.host, broker.port, timeout=60)
        broker.pause()
        _elected(stage, paused)
        # It reads this first thing when it goes on.
        connection.socket.sendall(raw.produce_frame(stage.topic, 0, batch(b"zombie:0:"), acks=-1))
        stage.flow(seconds=2)
        broker.resume()
        answered = raw.parse_produced(connection.answer())
        stage.claim(answered.error_code != 0, "zombie", f"the paused leader acknowledged {answered}")
        stage.figures["zombie answered code"] = answered.error_code
        stage.figures["back in sync s"] = round(stage.await_in_sync(stage.topic), 1)
        stage.flow()
        return stage.judge(errors_allowed=False)


@row("leader-cut")
def leader_cut() -> Verdict:
    """The leader is cut from ZooKeeper and from the controller, and later from the followers too."""
    with Stage(wired=True) as stage:
        assert stage.wires is not None
        stage.load()
        controller = stage.controller()
        assert controller is not None
        partition, leader = next(
            (p, stage.leader(partition=p)) for p in range(6) if stage.leader(partition=p) != controller
        )
        stage.wires.cut(leader, "zookeeper")
        stage.wires.cut(leader, controller)
        took = until(lambda: stage.leader(partition=partition) not in (leader, -1), "a new leader", 30)
        stage.figures["new leader s"] = round(took, 1)
        stage.flow(seconds=5)
        other = next(i for i in stage.cluster.brokers if i not in (leader, controller))
        stage.wires.cut(leader, other)
        stage.flow(seconds=5)
        stage.wires.mend()
        stage.flow()
        return stage.judge(errors_allowed=False)


@row("follower-cut")
def follower_cut() -> Verdict:
    """A follower is cut off: the ISR shrinks and producing goes on; a second: it stops; healed: three again."""
    with Stage(wired=True) as stage:
        assert stage.wires is not None
        oracle = stage.load()
        # A leader that reaches the controller: it is the controller.
        leader = stage.controller()
        assert leader is not None
        partition = next(p for p in range(6) if stage.leader(partition=p) == leader)
        first, second = (i for i in stage.cluster.brokers if i != leader)
        for peer in (leader, second):
            stage.wires.cut(first, peer)
        stage.figures["shrunk s"] = round(
            until(lambda: first not in stage.isr(partition=partition), "a smaller ISR"), 1
        )
        stage.flow(seconds=2)
        stage.wires.cut(leader, second)
        until(lambda: stage.isr(partition=partition) == [leader], "an ISR of one")
        time.sleep(2)  # what was on its way arrives
        before = oracle.acknowledged_in(partition)
        broker = stage.cluster.brokers[leader]
        with raw.Connection(broker.host, broker.port) as connection:
            answer = connection.produce(raw.produce_frame(stage.topic, partition, batch(b"refused:0:"), acks=-1))
        stage.claim(answer.error_code == NOT_ENOUGH_REPLICAS, "min.insync.replicas", f"answered {answer}")
        time.sleep(2)
        more = oracle.acknowledged_in(partition) - before
        stage.claim(more == 0, "min.insync.replicas", f"{more} records acknowledged with one replica")
        stage.wires.mend()
        stage.figures["healed s"] = round(stage.await_in_sync(stage.topic), 1)
        stage.flow()
        return stage.judge()


@row("zookeeper-down")
def zookeeper_down(seconds: float = 30) -> Verdict:
    """ZooKeeper is down: traffic to present leaders goes on; afterwards one controller, and few leaders change."""
    with Stage() as stage:
        stage.load()
        zookeeper = stage.cluster.zookeeper
        assert zookeeper is not None
        before = {p: stage.state(partition=p)["leader_epoch"] for p in range(6)}
        zookeeper.kill()
        deadline = time.monotonic() + seconds
        slowest = 0.0
        while time.monotonic() < deadline:
            slowest = max(slowest, stage.flow(seconds=1))
        stage.figures["slowest 100 records s"] = round(slowest, 2)
        zookeeper.start()
        until(lambda: stage.registered() == [1, 2, 3], "all brokers registered", 60)
        stage.flow(seconds=5)
        until(lambda: stage.controller() is not None, "a controller")
        verdict = stage.judge()
        after = {p: stage.state(partition=p)["leader_epoch"] for p in range(6)}
        changed = max(after[p] - before[p] for p in before)
        verdict.figures["most leader changes"] = changed
        if changed > 1:
            verdict.broken("leaders", f"leader epochs went from {before} to {after}")
        return verdict


@row("sessions-lost")
def sessions_lost() -> Verdict:
    """Every broker loses its session at once, and gets a new one."""
    with Stage() as stage:
        stage.load()
        for broker in stage.cluster.brokers.values():
            broker.pause()
        until(lambda: stage.registered() == [], "no broker registered", SESSION_MS / 1000 + 30)
        for broker in stage.cluster.brokers.values():
            broker.resume()
        stage.figures["serving again s"] = round(stage.flow(), 1)
        until(lambda: stage.registered() == [1, 2, 3], "all brokers registered", 60)
        return stage.judge(errors_allowed=False)


@row("rolling-restart")
def rolling_restart() -> Verdict:
    """All brokers are restarted one by one under load: no client sees an error that it must handle."""
    with Stage() as stage:
        stage.load()
        slowest = 0.0
        for broker in stage.cluster.brokers.values():
            start = time.monotonic()
            code = broker.stop()
            slowest = max(slowest, time.monotonic() - start)
            stage.claim(code == 0, "stop", f"exit code {code}")
            broker.start()
            stage.await_in_sync(stage.topic)
        stage.figures["slowest stop s"] = round(slowest, 1)
        return stage.judge(errors_allowed=False)


@row("alternating-kills")
def alternating_kills(times: int = 6) -> Verdict:
    """Two replicas are killed in turn, each as soon as the other is back in the ISR of a partition, or sooner."""
    with Stage() as stage:
        stage.load()
        for round_ in range(times):
            victim = stage.cluster.brokers[1 + round_ % 2]
            victim.kill()
            time.sleep(0.3)
            victim.start()
            time.sleep(0.2 * (round_ % 3))
        stage.flow()
        return stage.judge()
