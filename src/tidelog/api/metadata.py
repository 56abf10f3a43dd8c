"""Metadata, versions 0-13: the brokers that live, and who leads what. Topic ids from 12 (10 in the answer).

A topic that does not exist is created here where `auto.create.topics.enable` and the request allow it. It is answered
as unknown, once, when it is usable: the client asks again and finds it. A partition without a leader has
LEADER_NOT_AVAILABLE, and one whose leader does not listen where the client asks has LISTENER_NOT_FOUND, from version 6.
The leader epoch is told all the same: by it a client knows what it hears later to be older, or newer.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.api.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidelog.control.model import NO_LEADER, Partition, Topic
from tidelog.control.topic_names import INTERNAL_TOPICS
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.ids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.api.request import Request

#: before this version, all topics are asked for by naming none
FIRST_VERSION_WITH_NULL: Final = 1
FIRST_VERSION_WITH_LISTENER_ERRORS: Final = 6
#: requests have a place for ids from version 10 on, but no name can be left out yet
FIRST_VERSION_WITH_TOPIC_IDS: Final = 12


def handle(body: messages.MetadataRequest, request: Request) -> messages.MetadataResponse | None:
    wanted = body.topics
    if wanted is None or (request.version < FIRST_VERSION_WITH_NULL and not wanted):
        return _answer(list(request.doors.cluster.image.topics.values()), [], body, request)
    if request.version < FIRST_VERSION_WITH_TOPIC_IDS and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in wanted
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "before version 12 topics can only be asked for by name")
    if any(topic.name is None and topic.topic_id == ZERO_UUID for topic in wanted):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is asked for by name or by id")
    by_id = [topic.topic_id for topic in wanted if topic.topic_id != ZERO_UUID]
    if by_id:
        return _by_id(by_id, body, request)
    names = list(dict.fromkeys(topic.name for topic in wanted if topic.name is not None))
    missing = [name for name in names if name not in request.doors.cluster.image.topics]
    may_create = request.doors.config.values.auto_create_topics_enable and body.allow_auto_topic_creation
    if missing and may_create:
        unknown = dict.fromkeys(missing, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        request.doors.topics.auto_create(
            missing, lambda errors: request.reply(_by_name(names, {**unknown, **errors}, body, request))
        )
        return None
    errors = {name: request.doors.cluster.unknown_topic_error(name) for name in missing}
    return _by_name(names, errors, body, request)


def _by_name(
    names: list[str], errors: dict[str, int], body: messages.MetadataRequest, request: Request
) -> messages.MetadataResponse:
    """`errors` holds the topics that were not there when the request came, with what is said of them."""
    image = request.doors.cluster.image
    gone = [name for name in names if name not in image.topics and name not in errors]
    errors = {**errors, **dict.fromkeys(gone, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))}
    topic_response = messages.MetadataResponse.MetadataResponseTopic
    missing = [
        topic_response(
            name=name,
            error_code=code,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=NOT_ASKED,
        )
        for name, code in errors.items()
    ]
    return _answer([image.topics[name] for name in names if name not in errors], missing, body, request)


def _by_id(ids: list[bytes], body: messages.MetadataRequest, request: Request) -> messages.MetadataResponse:
    image = request.doors.cluster.image
    found = [topic for topic_id in dict.fromkeys(ids) if (topic := image.topic_by_id(topic_id)) is not None]
    missing = [
        messages.MetadataResponse.MetadataResponseTopic(
            name=None, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_authorized_operations=NOT_ASKED
        )
        for topic_id in dict.fromkeys(ids)
        if topic_id not in image.topic_names
    ]
    return _answer(found, missing, body, request)


def _answer(
    topics: list[Topic],
    missing: list[messages.MetadataResponse.MetadataResponseTopic],
    body: messages.MetadataRequest,
    request: Request,
) -> messages.MetadataResponse:
    doors = request.doors
    response = messages.MetadataResponse
    operations = TOPIC_OPERATIONS if body.include_topic_authorized_operations else NOT_ASKED
    nodes = doors.cluster.nodes(request.exchange.connection)
    reachable = {node.id for node in nodes}
    knows_listeners = request.version >= FIRST_VERSION_WITH_LISTENER_ERRORS
    # Of a leader that lives, but not on the listener that was asked.
    unheard = ErrorCode.LISTENER_NOT_FOUND if knows_listeners else ErrorCode.LEADER_NOT_AVAILABLE
    errors = dict.fromkeys(doors.cluster.image.brokers.keys() - reachable, unheard)
    answer = response.of(
        brokers=[
            response.MetadataResponseBroker.of(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        ],
        cluster_id=doors.cluster.cluster_id,
        controller_id=doors.cluster.controller_id,
        topics=[
            *(
                response.MetadataResponseTopic.of(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    is_internal=topic.is_internal,
                    partitions=[_describe(partition, reachable, errors) for partition in topic.partitions],
                    topic_authorized_operations=operations,
                )
                for topic in topics
            ),
            *missing,
        ],
    )
    if body.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _describe(
    partition: Partition, reachable: Container[int], errors: Mapping[int, ErrorCode]
) -> messages.MetadataResponse.MetadataResponsePartition:
    """`errors` says what is wrong with leaders that are not reachable, and live."""
    leader = partition.leader
    is_reachable = leader in reachable
    return messages.MetadataResponse.MetadataResponsePartition.of(
        error_code=0 if is_reachable else errors.get(leader, ErrorCode.LEADER_NOT_AVAILABLE),
        partition_index=partition.partition_index,
        leader_id=leader if is_reachable else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[replica for replica in partition.replicas if replica not in reachable],
    )
