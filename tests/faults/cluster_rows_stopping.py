"""Rows of the table of faults: brokers that are told to stop when whom they would ask is gone."""

from __future__ import annotations

import time

from tests.faults.cluster_judge import Verdict
from tests.faults.cluster_rows import row
from tests.faults.clusterkit import Stage

#: the longest that a broker may take to stop, whoever does not answer
LONGEST_STOP_S = 15.0


def _stop(stage: Stage, broker_id: int) -> float:
    start = time.monotonic()
    broker = stage.cluster.brokers[broker_id]
    code = broker.stop()
    took = time.monotonic() - start
    stage.claim(code == 0, "stop", f"exit code {code} of {broker_id}:\n{broker.stderr()}")
    stage.claim(took < LONGEST_STOP_S + 5, "stop", f"broker {broker_id} took {took:.1f} s:\n{broker.stderr()}")
    return took


@row("stop-without-zookeeper")
def stop_without_zookeeper() -> Verdict:
    """ZooKeeper is gone, and the brokers are told to stop one after another, the second is the controller."""
    with Stage() as stage:
        stage.load()
        controller = stage.controller()
        assert controller is not None and stage.cluster.zookeeper is not None
        stage.cluster.zookeeper.kill()
        time.sleep(1)
        others = [i for i in stage.cluster.brokers if i != controller]
        for number, broker_id in enumerate([others[0], controller, others[1]], 1):
            stage.figures[f"stop {number} s"] = round(_stop(stage, broker_id), 1)
        stage.cluster.zookeeper.start()
        stage.cluster.start()
        stage.flow()
        return stage.judge()


@row("stop-alone")
def stop_alone() -> Verdict:
    """The other brokers are gone: a broker that stops has nobody to hand over to, and says so."""
    with Stage() as stage:
        stage.load()
        controller = stage.controller()
        assert controller is not None
        others = [i for i in stage.cluster.brokers if i != controller]
        for broker_id in (controller, others[0]):
            stage.cluster.brokers[broker_id].kill()
        stage.figures["stop s"] = round(_stop(stage, others[1]), 1)
        stage.cluster.start()
        stage.flow()
        return stage.judge()


@row("stop-with-paused-controller")
def stop_with_paused_controller() -> Verdict:
    """The controller is silent: a broker that stops does not wait for it for long."""
    with Stage({"zookeeper.session.timeout.ms": "60000"}) as stage:
        stage.load()
        controller = stage.controller()
        assert controller is not None
        stage.cluster.brokers[controller].pause()
        other = next(i for i in stage.cluster.brokers if i != controller)
        stage.figures["stop s"] = round(_stop(stage, other), 1)
        stage.cluster.brokers[controller].resume()
        stage.cluster.start()
        stage.flow()
        return stage.judge()
