"""The fixtures as a project sees them that has tidelog installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

STAND_IN = [sys.executable, str(Path(__file__).with_name("stand_in.py"))]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose brokers are stand-ins."""
    pytester.makeconftest(
        f"""
        import tidelog.testing.broker as broker
        broker.RunningBroker.__init__.__kwdefaults__["command"] = {STAND_IN!r}
        """
    )
    return pytester


def run(project: pytest.Pytester, **outcomes: int) -> None:
    result = project.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(**outcomes)


def test_each_test_has_a_broker_of_its_own_and_all_share_the_sessions(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        seen = []
        shared = []

        def test_one(tidelog_broker, tidelog_broker_session):
            assert tidelog_broker.bootstrap.startswith("127.0.0.1:")
            seen.append(tidelog_broker)
            shared.append(tidelog_broker_session.pid)

        def test_two(tidelog_broker, tidelog_broker_session):
            assert not seen[0].running and not seen[0].data_dir.exists()
            assert tidelog_broker.pid != seen[0].pid
            assert [tidelog_broker_session.pid] == shared
        """
    )
    run(project, passed=2)


def test_the_factory_starts_as_many_as_wanted_each_configured(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        made = []

        def test_many(tidelog_broker_factory, tmp_path):
            a = tidelog_broker_factory({"num.partitions": "3"})
            b = tidelog_broker_factory(data_dir=tmp_path / "b")
            made.extend((a, b))
            assert a.port != b.port and a.config["num.partitions"] == "3"
            assert b.config == {"group.initial.rebalance.delay.ms": "0"}
            assert b.data_dir == tmp_path / "b"
            b.kill()

        def test_all_are_gone():
            assert not any(broker.running for broker in made)
        """
    )
    run(project, passed=2)


def test_a_project_configures_the_fixtures_by_overriding_one(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def tidelog_broker_config():
            return {"num.partitions": "6", "group.initial.rebalance.delay.ms": "100"}

        def test_it(tidelog_broker, tidelog_broker_session):
            for broker in (tidelog_broker, tidelog_broker_session):
                assert broker.config == {"num.partitions": "6", "group.initial.rebalance.delay.ms": "100"}
        """
    )
    run(project, passed=1)


def test_the_test_in_which_the_sessions_broker_dies_is_told_so_and_the_next_has_one_again(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        """
        import os, signal
        pids = []

        def test_before(tidelog_broker_session):
            pids.append(tidelog_broker_session.pid)

        def test_of_its_death(tidelog_broker_session):
            os.kill(tidelog_broker_session.pid, signal.SIGKILL)
            tidelog_broker_session._process.wait()

        def test_after(tidelog_broker_session):
            assert tidelog_broker_session.running and tidelog_broker_session.pid != pids[0]
            tidelog_broker_session.stop()

        def test_after_a_stop_on_purpose(tidelog_broker_session):
            assert tidelog_broker_session.running
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_of_its_death*", "*exited unexpectedly with exit code -9*"])


def test_a_broker_that_cannot_start_is_an_error_with_its_words(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_it(tidelog_broker_factory):
            tidelog_broker_factory({"stand.in": "fail"})
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the disk is on fire*"])


def test_a_run_that_uses_no_fixture_imports_no_broker() -> None:
    program = "import sys, tidelog.testing.plugin; print([m for m in sys.modules if m.startswith('tidelog')])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "['tidelog', 'tidelog.testing', 'tidelog.testing.plugin']"


def test_the_package_itself_does_not_need_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; import tidelog.testing, tidelog.testing.broker"
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
