"""The nodes are Apache Kafka's, byte for byte where it matters: what it wrote is read, what we write it would read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.control import nodes
from tidelog.control.controller import draw_id
from tidelog.control.image import Image, NodeChange
from tidelog.control.model import ConfigResource, ResourceType
from tidelog.control.nodes import Endpoint, StateNode, TopicNode
from tidelog.control.picture import changes_of_image
from tidelog.control.topic_names import why_invalid

replicas = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple)


@given(
    st.one_of(st.none(), st.binary(min_size=16, max_size=16)),
    st.lists(replicas, min_size=1, max_size=4),
    st.dictionaries(st.integers(0, 3), replicas),
    st.dictionaries(st.integers(0, 3), replicas),
)
def test_topics_come_back(topic_id: bytes | None, assignment: list, adding: dict, removing: dict) -> None:
    node = TopicNode(topic_id, assignment, adding, removing)
    assert nodes.decode_topic(nodes.encode_topic(node)) == node


def test_a_topic_as_kafka_writes_it() -> None:
    written = (
        b'{"removing_replicas":{},"partitions":{"1":[1,0],"0":[0,1],"10":[1],"2":[0],"3":[0],"4":[0],"5":[0],'
        b'"6":[0],"7":[0],"8":[0],"9":[0]},"topic_id":"dOPZdvNFQ1O9hhFPoFWeSQ","adding_replicas":{},"version":3}'
    )
    node = nodes.decode_topic(written)
    assert node.replicas[0] == (0, 1) and node.replicas[1] == (1, 0) and node.replicas[10] == (1,)
    assert node.topic_id is not None and nodes.to_base64(node.topic_id) == "dOPZdvNFQ1O9hhFPoFWeSQ"
    assert json.loads(nodes.encode_topic(node)) == json.loads(written)


def test_a_topic_of_an_old_kafka_has_no_id() -> None:
    node = nodes.decode_topic(b'{"version":1,"partitions":{"0":[0]}}')
    assert node == TopicNode(None, [(0,)], {}, {})


@given(st.builds(StateNode, st.integers(-1, 9), st.integers(0, 99), replicas, st.integers(0, 99), st.booleans()))
def test_states_come_back(state: StateNode) -> None:
    assert nodes.decode_state(nodes.encode_state(state)) == state


def test_a_state_is_written_as_kafka_writes_it() -> None:
    state = StateNode(leader=1, leader_epoch=7, isr=(1, 2), controller_epoch=3, recovering=False)
    written = b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":7,"isr":[1,2]}'
    assert nodes.encode_state(state) == written
    recovering = json.loads(nodes.encode_state(state._replace(recovering=True)))
    assert recovering["leader_recovery_state"] == 1


def test_a_registration_as_kafka_writes_it() -> None:
    written = (
        b'{"features":{"f":{"min_version":1,"max_version":3}},"listener_security_protocol_map":{"CLIENT":"SASL_SSL",'
        b'"PLAINTEXT":"PLAINTEXT"},"endpoints":["CLIENT://a.example:9093","PLAINTEXT://[::1]:9092"],"jmx_port":-1,'
        b'"port":9092,"host":"::1","version":5,"timestamp":"1700000000000","rack":"r1"}'
    )
    endpoints, rack = nodes.decode_broker(written)
    assert rack == "r1"
    assert endpoints == (
        Endpoint("CLIENT", "SASL_SSL", "a.example", 9093),
        Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092),
    )
    again = nodes.encode_broker(endpoints, rack, 1700000000000, {"f": (1, 3)})
    assert json.loads(again) == json.loads(written)


def test_registrations_of_old_versions_are_read() -> None:
    one = b'{"version":1,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    two = (
        b'{"version":2,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666",'
        b'"endpoints":["PLAINTEXT://host1:9092","SSL://host1:9093"]}'
    )
    assert nodes.decode_broker(one) == ((Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),), None)
    assert nodes.decode_broker(two)[0][1] == Endpoint("SSL", "SSL", "host1", 9093)


def test_a_broker_without_a_plaintext_listener_registers_no_address_for_old_clients() -> None:
    written = json.loads(nodes.encode_broker([Endpoint("SSL", "SSL", "h", 1)], None, 0, {}))
    assert (written["host"], written["port"]) == (None, -1)
    assert "rack" not in written


def test_the_small_nodes_are_written_as_kafka_writes_them() -> None:
    assert json.loads(nodes.encode_cluster_id("x")) == {"version": "1", "id": "x"}
    assert json.loads(nodes.encode_controller(7, 5)) == {
        "version": 2,
        "brokerid": 7,
        "timestamp": "5",
        "kraftControllerEpoch": -1,
    }
    assert json.loads(nodes.encode_producer_id_block(1, 0, 999)) == {
        "version": 1,
        "broker": 1,
        "block_start": "0",
        "block_end": "999",
    }
    assert json.loads(nodes.encode_config({"a": "b"})) == {"version": 1, "config": {"a": "b"}}
    assert nodes.decode_config(b"") == {}
    assert nodes.decode_producer_id_block_end(b"") == -1


@given(st.text())
def test_any_name_is_one_part_of_a_path_and_comes_back(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    assert "/" not in nodes.sanitize(name)
    assert nodes.desanitize(nodes.sanitize(name)) == name


def test_names_are_sanitized_as_kafka_does() -> None:
    assert nodes.sanitize("a b*c/d~e+f.g-h_i") == "a%20b%2Ac%2Fd%7Ee%2Bf.g-h_i"


@given(st.binary(min_size=16, max_size=16))
def test_ids_in_base64_come_back(raw: bytes) -> None:
    assert len(nodes.to_base64(raw)) == 22
    assert nodes.from_base64(nodes.to_base64(raw)) == raw


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1), st.binary(min_size=16, max_size=16))
def test_drawn_ids_never_look_like_options_nor_like_reserved_ones(drawn: list[bytes], last: bytes) -> None:
    supply = iter([*drawn, last, b"\0" * 16])
    found = draw_id(lambda: next(supply))
    assert not nodes.to_base64(found).startswith("-")
    assert found not in (bytes(16), bytes(15) + b"\1")
    assert found[6] >> 4 == 4


@pytest.mark.parametrize(
    "resource, path",
    [
        (ConfigResource(ResourceType.TOPIC, "t"), "/config/topics/t"),
        (ConfigResource(ResourceType.BROKER, "3"), "/config/brokers/3"),
        (ConfigResource(ResourceType.BROKER, ""), "/config/brokers/<default>"),
        (ConfigResource(ResourceType.GROUP, "a/b"), "/config/groups/a%2Fb"),
    ],
)
def test_a_configuration_lies_where_kafka_looks_for_it(resource: ConfigResource, path: str) -> None:
    assert resource.path == path
    image = Image()
    image.apply([NodeChange(path, nodes.encode_config({"k": "v"}), 4)])
    assert image.configs[resource] == ({"k": "v"}, 4)
    assert list(image.paths()) == [path]
    image.apply([NodeChange(path, None)])
    assert image == Image()


def test_quotas_are_kept_by_their_place() -> None:
    image = Image()
    path = "/config/users/u/clients/<default>"
    events = image.apply([NodeChange(path, nodes.encode_config({"producer_byte_rate": "1"}), 0)])
    assert [event.entity for event in events] == ["users/u/clients/<default>"]
    assert list(image.paths()) == [path]
    image.apply([NodeChange(path, None)])
    assert image == Image()


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_names_that_topics_may_have(name: str) -> None:
    assert why_invalid(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a\n", "a/b", "a,b", "\u0660"])
def test_names_that_topics_may_not_have(name: str) -> None:
    assert why_invalid(name) is not None


def test_a_registration_says_what_the_broker_has_lost_and_nothing_where_that_is_nothing() -> None:
    here = [Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1)]
    for lost in nodes.LostLogs:
        assert nodes.decode_lost(nodes.encode_broker(here, None, 0, {}, lost=lost)) is lost
    assert "lost_logs" not in json.loads(nodes.encode_broker(here, None, 0, {}))
    assert nodes.decode_lost(b'{"version":5,"lost_logs":["all"]}') is nodes.LostLogs.NONE


def test_a_registration_names_the_logs_that_are_damaged() -> None:
    here = [Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1)]
    damaged = {(bytes([1] * 16), 3), (bytes([1] * 16), 12), (bytes([2] * 16), 0)}
    assert nodes.decode_damaged(nodes.encode_broker(here, None, 0, {}, damaged=damaged)) == damaged
    assert "damaged_logs" not in json.loads(nodes.encode_broker(here, None, 0, {}))
    image = Image()
    image.apply([NodeChange(nodes.broker_path(1), nodes.encode_broker(here, None, 0, {}, damaged=damaged), 0, 7)])
    copy = Image()
    copy.apply(changes_of_image(image))
    assert copy.brokers[1].damaged == damaged
