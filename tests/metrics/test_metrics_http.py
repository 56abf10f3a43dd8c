"""The pages over HTTP, and clients that are not what they should be."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from metrics_page import PAGE, with_tables

from tidelog.client import Client
from tidelog.metrics.catalog import FAMILIES
from tidelog.metrics.http_server import MAX_CONNECTIONS, MAX_REQUEST_BYTES
from tidelog.testing.broker import BrokerFailed, RunningBroker
from tidelog.wire import messages
from tidelog.wire.frame import encode_request


def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@contextmanager
def raw(port: int, *sent: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        for data in sent:
            connection.sendall(data)
        yield connection


def status_of(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65536):
        received += data
    return received.split(b"\r\n")[0]


def test_a_broker_that_serves_is_alive_and_ready(broker: RunningBroker, http_port: int) -> None:
    assert get(http_port, "/livez") == (200, '{"alive": true}\n')
    assert get(http_port, "/readyz?verbose") == (200, '{"ready": true}\n')
    status, text = get(http_port, "/version")
    about = json.loads(text)
    assert (status, about["broker"], about["cluster"]) == (200, broker.broker_id, broker.cluster_id)


def test_metrics_are_told_with_those_of_the_process(http_port: int) -> None:
    status, text = get(http_port, "/metrics")
    assert status == 200
    for name in ("kafka_server_replicamanager_partitioncount", "process_open_fds", "python_gc_collections"):
        assert f"\n{name}" in text


def test_requests_are_timed_and_connections_counted(broker: RunningBroker, http_port: int) -> None:
    with Client(broker.bootstrap) as client:
        client.produce("timed", [b"x"])
        _, text = get(http_port, "/metrics")
    assert 'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} ' in text
    assert 'tidelog_request_duration_seconds_bucket{request="Produce",le="+Inf"} ' in text
    assert 'connection_count{listener="PLAINTEXT",networkProcessor="0"} 1\n' in text


def test_many_that_ask_at_once_are_all_answered(http_port: int) -> None:
    with ExitStack() as stack:
        asked = [stack.enter_context(raw(http_port, b"GET /metrics HTTP/1.1\r\n\r\n")) for _ in range(20)]
        assert {status_of(connection) for connection in asked} == {b"HTTP/1.1 200 OK"}


def test_head_gets_no_body(http_port: int) -> None:
    assert get(http_port, "/version", "HEAD") == (200, "")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\0\0\0\x14\0\x12\0\0\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /livez\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * MAX_REQUEST_BYTES, b"HTTP/1.1 431 Request Header Fields Too Large"),
    ],
)
def test_what_is_not_asked_rightly_is_told_so(http_port: int, sent: bytes, status: bytes) -> None:
    with raw(http_port, sent) as connection:
        assert status_of(connection) == status


def test_a_request_may_come_byte_by_byte_and_its_sender_stop_sending(http_port: int) -> None:
    with raw(http_port, *(bytes((byte,)) for byte in b"GET /metrics HTTP/1.1\r\n\r\n")) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert status_of(connection) == b"HTTP/1.1 200 OK"


def test_half_sent_requests_keep_nobody_out(broker: RunningBroker, http_port: int) -> None:
    with ExitStack() as stack:
        for _ in range(2 * MAX_CONNECTIONS):
            stack.enter_context(raw(http_port, b"GET /metr"))
        assert get(http_port, "/livez")[0] == 200
        with Client(broker.bootstrap) as client:
            client.produce("t", [b"x"])


def test_those_who_never_read_keep_nobody_out(broker: RunningBroker, http_port: int) -> None:
    with ExitStack() as stack:
        for _ in range(2 * MAX_CONNECTIONS):
            stack.enter_context(raw(http_port, b"GET /metrics HTTP/1.1\r\n\r\n"))
        assert get(http_port, "/livez")[0] == 200
    assert get(http_port, "/metrics")[0] == 200


def test_a_broker_that_stops_is_alive_and_not_ready() -> None:
    with RunningBroker({"tidelog.http.port": "0"}) as stopping, Client(stopping.bootstrap) as client:
        assert stopping.http is not None
        port = int(stopping.http.rpartition(":")[2])
        client.produce("t", [b"x"])
        request = messages.FetchRequest
        wanted = request.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=100)
        topics = [request.FetchTopic(topic="t", partitions=[wanted])]
        waits = request(replica_id=-1, max_wait_ms=60_000, min_bytes=1, max_bytes=100, topics=topics)
        # A request under way, which is answered before the broker goes.
        with raw(stopping.port, *map(bytes, encode_request(1, 11, 1, "test", waits))):
            while get(port, "/metrics")[1].find("\ntidelog_parked_requests 1\n") < 0:
                pass
            os.kill(stopping.pid, signal.SIGTERM)
            while (ready := get(port, "/readyz"))[0] == 200:
                pass
            assert ready == (503, '{"ready": false, "why": "the broker is stopping"}\n')
            assert get(port, "/livez")[0] == 200
        assert stopping.stop() == 0


def test_nothing_is_served_unless_it_is_asked_for() -> None:
    with RunningBroker() as quiet:
        assert quiet.http is None


def test_a_port_that_is_taken_stops_the_start_with_what_to_do(http_port: int) -> None:
    with pytest.raises(BrokerFailed, match=r"cannot serve metrics on 127\.0\.0\.1:\d+: .*--http-port"):
        RunningBroker({"tidelog.http.port": str(http_port)}).start()


def test_every_metric_stands_on_the_page_as_it_is_defined() -> None:
    assert with_tables(PAGE.read_text()) == PAGE.read_text(), "run python -m tests.metrics.metrics_page"


def test_alerts_name_metrics_that_exist() -> None:
    text = PAGE.read_text()
    for name in set(re.findall(r"\b(?:kafka|tidelog)_[a-z_]+\b", text)) - {"kafka_exporter"}:
        assert name in FAMILIES or name.removesuffix("_bucket") in FAMILIES or name.endswith("_"), name
