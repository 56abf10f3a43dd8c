"""The client while a broker stops, dies, freezes or forgets: nothing acknowledged is lost, nothing is written twice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tidelog.client import Client, cluster
from tidelog.client.errors import InDoubt, NotFound, Unreachable
from tidelog.testing.broker import RunningBroker

Factory = Callable[..., RunningBroker]


def numbers(client: Client, topic: str) -> list[int]:
    return [int((record.value or b"")[:9]) for record in client.read(topic, 0)]


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_broker_that_goes_in_the_middle_costs_and_doubles_nothing(tidelog_broker: RunningBroker, how: str) -> None:
    count = 60_000

    def disturb() -> None:
        for _ in range(3):
            time.sleep(0.15)
            if how == "kill":
                tidelog_broker.kill()
                tidelog_broker.start()
            else:
                tidelog_broker.restart()

    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 1)
        disturber = threading.Thread(target=disturb)
        disturber.start()
        producer = client.producer(max_batch_bytes=8000)
        number = 0
        while number < count or disturber.is_alive():
            for _ in range(500):
                producer.send("t", b"%09d" % number, partition=0)
                number += 1
            producer.flush()
        disturber.join()
        assert sum(delivered.record_count for delivered in producer.delivered) == number
        assert numbers(client, "t") == list(range(number))


def test_an_answer_that_was_lost_does_not_write_a_batch_twice(tidelog_broker: RunningBroker) -> None:
    with Client(tidelog_broker.bootstrap) as client:
        producer = client.producer()
        producer.send("t", b"%09d" % 0)
        producer.flush()
        producer.send("t", b"%09d" % 1)
        # The request arrives, and the connection breaks before the answer is read.
        connection, _, _ = client.cluster.leader("t", 0)
        receive, broken = connection.receive, []

        class Breaking:
            def __getattr__(self, name: str) -> object:
                return getattr(connection, name)

            def receive(self, sent: object) -> object:
                receive(sent)  # type: ignore[arg-type]
                broken.append(sent)
                connection.close()
                raise Unreachable("cut")

        where = next(iter(client.cluster._connections))
        client.cluster._connections[where] = Breaking()  # type: ignore[assignment]
        producer.flush()
        assert len(broken) == 1
        assert producer.delivered == [("t", 0, 0, 2)]
        assert numbers(client, "t") == [0, 1]


def test_a_reader_goes_on_after_a_restart(tidelog_broker: RunningBroker) -> None:
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 1)
        client.produce("t", [b"%09d" % number for number in range(1000)], max_batch_bytes=2000)
        seen = []
        for record in client.read("t", 0, partition_max_bytes=4000):
            seen.append(int(record.value or b""))
            if len(seen) == 100:
                tidelog_broker.restart()
        assert seen == list(range(1000))


def test_a_broker_that_does_not_answer_leaves_a_write_in_doubt(tidelog_broker: RunningBroker) -> None:
    with Client(tidelog_broker.bootstrap, timeout_s=1) as client:
        client.produce("t", [b"%09d" % 0], acks="all")
        producer = client.producer()
        producer.send("t", b"%09d" % 1)
        producer.flush()
        producer.send("t", b"%09d" % 2)
        tidelog_broker.pause()
        with pytest.raises(InDoubt, match="1 records may or may not have been written"):
            producer.flush()
        tidelog_broker.resume()
        # The producer is usable again, under another id.
        producer.send("t", b"%09d" % 3)
        producer.flush()
    with Client(tidelog_broker.bootstrap) as client:
        assert numbers(client, "t") in ([0, 1, 3], [0, 1, 2, 3])


@contextmanager
def cut_off(client: Client) -> Iterator[None]:
    """The open connections take everything and answer nothing, as if a wire were cut; new ones work."""
    with ExitStack() as others:
        for connection in client.cluster._connections.values():
            ours, theirs = socket.socketpair()
            ours.settimeout(connection._socket.gettimeout())
            connection._socket.close()
            connection._socket = ours
            others.enter_context(theirs)
        yield


def test_a_connection_that_is_cut_off_does_not_use_up_the_time_for_trying_again(
    tidelog_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REQUEST_TIMEOUT_S", 0.3)
    with Client(tidelog_broker.bootstrap, timeout_s=5) as client:
        client.admin.create_topic("t", 1)
        producer = client.producer(max_batch_bytes=2000)
        for number in range(1000):
            producer.send("t", b"%09d" % number, partition=0)
            if number == 0:
                producer.flush()
        with cut_off(client):
            producer.flush()
        with cut_off(client):
            assert client.describe(["t"]).topics.keys() == {"t"}
        read = client.read("t", 0, partition_max_bytes=4000)
        seen = [int(next(read).value or b"")]
        with cut_off(client):
            seen += [int(record.value or b"") for record in read]
        assert seen == list(range(1000))


def test_a_leader_that_is_no_longer_in_the_cluster_is_asked_for_again(tidelog_broker: RunningBroker) -> None:
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 1)
        client.produce("t", [b"x"])
        # The topic was asked for when broker 99 led it, the brokers when that had left.
        known = client.topic("t")
        client.cluster._topics["t"] = known._replace(partitions={0: known.partitions[0]._replace(leader=99)})
        client.describe([])
        assert client.offsets("t")[0].offset == 1


def test_a_first_contact_is_waited_for_where_that_is_said(tidelog_broker: RunningBroker) -> None:
    tidelog_broker.stop()
    start = threading.Timer(1.0, tidelog_broker.start)
    start.start()
    with Client(tidelog_broker.bootstrap, wait_for_first=True) as client:
        assert list(client.describe([]).nodes) == [tidelog_broker.broker_id]
    start.join()


def test_a_first_contact_is_not_waited_for_any_longer_than_the_timeout() -> None:
    with Client("127.0.0.1:1", timeout_s=0.2, wait_for_first=True) as client, pytest.raises(Unreachable):
        client.describe()


def test_an_address_where_nothing_listens_is_unreachable_at_once(tidelog_broker: RunningBroker) -> None:
    tidelog_broker.stop()
    with Client(tidelog_broker.bootstrap, timeout_s=3600) as client, pytest.raises(Unreachable) as raised:
        client.describe()
    assert tidelog_broker.bootstrap in str(raised.value) and "refused" in str(raised.value)
    assert raised.value.hint


def test_the_second_bootstrap_address_serves_where_the_first_does_not(tidelog_broker: RunningBroker) -> None:
    with Client(f"127.0.0.1:1,{tidelog_broker.bootstrap}") as client:
        assert list(client.describe([]).nodes) == [tidelog_broker.broker_id]


def test_a_name_with_several_addresses_is_tried_at_each(
    tidelog_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    real = socket.getaddrinfo

    def twice(host: str, port: int, **options: object) -> list[object]:
        if host != "localhost":
            return list(real(host, port, **options))  # type: ignore[arg-type]
        stream = (socket.SOCK_STREAM, 6, "")
        return [
            (socket.AF_INET, *stream, ("127.0.0.1", 1)),
            (socket.AF_INET, *stream, ("127.0.0.1", tidelog_broker.port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", twice)
    with Client(f"localhost:{tidelog_broker.port}") as client:
        assert list(client.describe([]).nodes) == [tidelog_broker.broker_id]


def test_a_topic_that_was_created_again_is_not_read_as_the_old_one(tidelog_broker: RunningBroker) -> None:
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 1)
        client.produce("t", [b"old"] * 10, max_batch_bytes=10)
        read = client.read("t", 0, until_offset=None, partition_max_bytes=1)
        next(read)
        client.admin.delete_topics(["t"])
        client.admin.create_topic("t", 1)
        client.produce("t", [b"new"] * 10)
        with pytest.raises(Exception, match="deleted and created again"):
            assert {record.value for record in read} == {b"old"}


def test_a_topic_that_is_deleted_while_it_is_read_is_not_found(tidelog_broker: RunningBroker) -> None:
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 1)
        client.produce("t", [b"x"])
        read = client.read("t", 0, until_offset=None)
        next(read)
        client.admin.delete_topics(["t"])
        with pytest.raises(NotFound):
            next(read)
