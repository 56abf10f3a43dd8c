"""A running broker: started, stopped, killed, paused, restarted; what it says when it fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.testing.broker import DEFAULTS, BrokerFailed, RunningBroker

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker({"num.partitions": "3"}, command=STAND_IN) as running:
        yield running


def ask(broker: RunningBroker) -> dict[str, dict[str, str]]:
    with socket.create_connection((broker.host, broker.port), timeout=10) as connection:
        told = b""
        while chunk := connection.recv(65536):
            told += chunk
    answer: dict[str, dict[str, str]] = json.loads(told)
    return answer


def starts(broker: RunningBroker) -> list[int]:
    return [int(line) for line in (broker.data_dir / "starts").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_broker_knows_where_it_runs(broker: RunningBroker) -> None:
    assert broker.bootstrap == f"127.0.0.1:{broker.port}" and broker.port > 0
    assert (broker.broker_id, broker.cluster_id) == (7, "abc")
    assert starts(broker) == [broker.pid] and broker.running


def test_settings_reach_the_broker_and_the_environments_own_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "9")
    with RunningBroker({"num.partitions": "3", "broker.rack": "a=b c"}, command=STAND_IN) as broker:
        told = ask(broker)
    assert told["settings"] == {**DEFAULTS, "num.partitions": "3", "broker.rack": "a=b c"}
    assert not [name for name in told["environment"] if name.startswith("KAFKA_")]


def test_leaving_stops_the_process_and_removes_its_data() -> None:
    with RunningBroker(command=STAND_IN) as broker:
        pid, data_dir = broker.pid, broker.data_dir
        assert data_dir.exists()
    assert not is_alive(pid) and not data_dir.exists() and not data_dir.parent.exists()


def test_a_given_data_directory_stays(tmp_path: Path) -> None:
    with RunningBroker(command=STAND_IN, data_dir=tmp_path / "mine") as broker:
        assert broker.data_dir == tmp_path / "mine"
    assert (tmp_path / "mine" / "starts").exists()


def test_a_restarted_broker_has_its_port_and_its_data(broker: RunningBroker) -> None:
    port, first = broker.port, broker.pid
    assert broker.restart() is broker
    assert broker.port == port and broker.pid != first and starts(broker) == [first, broker.pid]
    broker.kill()
    broker.start()
    assert broker.port == port and len(starts(broker)) == 3


def test_stop_is_graceful_and_tells_the_exit_code(broker: RunningBroker) -> None:
    assert broker.stop() == 0 and not broker.running
    assert broker.stop() == 0


def test_kill_is_not_graceful(broker: RunningBroker) -> None:
    pid = broker.pid
    broker.kill()
    assert not broker.running and not is_alive(pid)
    assert broker.stop() == -signal.SIGKILL


def test_a_paused_broker_answers_when_it_is_resumed(broker: RunningBroker) -> None:
    broker.pause()
    assert _state(broker.pid) == "T"
    broker.resume()
    assert ask(broker)["settings"] == {**DEFAULTS, "num.partitions": "3"}


def _state(pid: int) -> str:
    for _ in range(1000):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T":
            return state
        time.sleep(0.005)
    return state


def test_a_paused_broker_can_be_stopped(broker: RunningBroker) -> None:
    broker.pause()
    assert broker.stop() == 0


def test_a_broker_that_fails_to_start_says_why_and_leaves_nothing() -> None:
    broker = RunningBroker({"stand.in": "fail"}, command=STAND_IN)
    with pytest.raises(BrokerFailed, match=r"exit code is 3[\s\S]*the disk is on fire"), broker:
        pass
    assert not broker.data_dir.parent.exists()


def test_a_broker_that_fails_to_start_again_is_told_of_in_its_last_words_alone(tmp_path: Path) -> None:
    runner = ("/usr/bin/env", "WITHOUT=MEANING")
    log = tmp_path / "broker.log"
    log.write_text("the words of an earlier run\n")
    broker = RunningBroker({"stand.in": "fail"}, command=STAND_IN, runner=runner, data_dir=tmp_path / "data", log=log)
    with pytest.raises(BrokerFailed) as caught:
        broker.start()
    told = str(caught.value)
    assert told.endswith(f"({' '.join(STAND_IN)})\n--- its standard error ---\nthe disk is on fire")
    assert broker.stderr() == "the words of an earlier run\nthe disk is on fire"


def test_a_broker_that_never_gets_ready_is_given_up() -> None:
    broker = RunningBroker({"stand.in": "silent"}, command=STAND_IN, timeout_s=0.5)
    with pytest.raises(BrokerFailed, match=r"not ready within 0\.5 s"):
        broker.start()
    assert not broker.running
    broker.close()


def test_a_broker_that_does_not_stop_is_killed_and_told_of() -> None:
    broker = RunningBroker({"stand.in": "deaf"}, command=STAND_IN, timeout_s=10)
    broker.start()
    broker._timeout_s = 0.2
    pid = broker.pid
    with pytest.raises(BrokerFailed, match="did not stop"):
        broker.close()
    assert not is_alive(pid)


def test_a_broker_that_ended_by_itself_is_told_of() -> None:
    with (
        pytest.raises(BrokerFailed, match=r"exited unexpectedly with exit code -9"),
        RunningBroker(command=STAND_IN) as broker,
    ):
        os.kill(broker.pid, signal.SIGKILL)
        broker._reap(10)


def test_the_error_of_a_test_is_not_hidden_by_the_end_of_its_broker() -> None:
    with pytest.raises(ValueError, match="mine") as caught, RunningBroker(command=STAND_IN) as broker:
        os.kill(broker.pid, signal.SIGKILL)
        broker._reap(10)
        raise ValueError("mine")
    assert "exited unexpectedly" in caught.value.__notes__[0]


def test_a_chatty_broker_is_not_blocked_by_its_own_output() -> None:
    with RunningBroker({"stand.in": "chatty"}, command=STAND_IN) as broker:
        assert ask(broker)["settings"] == {**DEFAULTS, "stand.in": "chatty"}


def test_a_running_broker_is_not_started_twice(broker: RunningBroker) -> None:
    with pytest.raises(BrokerFailed, match="is already running"):
        broker.start()


def test_nothing_runs_on_after_the_program_that_forgot_to_close() -> None:
    program = (
        "import sys\n"
        "from tidelog.testing.broker import RunningBroker\n"
        "broker = RunningBroker(command=sys.argv[1:]).start()\n"
        "print(broker.pid, broker.data_dir)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *STAND_IN], capture_output=True, text=True, timeout=60, check=True
    )
    pid, data_dir = ended.stdout.split()
    assert not is_alive(int(pid)) and not Path(data_dir).exists()
