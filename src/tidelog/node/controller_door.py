"""The way to the controller for whatever on this broker needs it: one door, wherever the controller is.

    door.alter_partition([IsrChange(…)], done)      done gets one IsrResult for each change, in the same order
    door.create_topics([NewTopic(…)], done, here)   done gets one TopicCreation for each topic
    door.allocate_producer_ids(done)                done gets a ProducerIdBlock
    door.controlled_shutdown(done)                  done gets a ShutdownReply
    door.relay(api_key, version, body, done)        done gets the controller's response to a client's request

If this broker is the controller, the answer is decided here; otherwise the question goes to the controller as a
request. While no controller is known or it cannot be reached, the question is put again, for `controller.socket.
timeout.ms` at most. `done` is called exactly once and always gets a value: errors are in the results. A question that
was lost on its way may have been carried out, and is put again all the same: an ISR change then fails by its partition
epoch, a topic exists already, a block of producer ids is skipped.

`done` may be called before the method returns, when this broker is the controller and its store answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from tidelog.control.controller import ProducerIdBlock, ShutdownReply
from tidelog.control.errors import NO_ERROR, ApiError
from tidelog.control.leadership import IsrChange, IsrResult
from tidelog.control.topics import NewTopic, TopicCreation
from tidelog.node.cluster_view import ClusterView
from tidelog.peers.requester import NEWEST, Answered, Failure, FailureKind, Link, PeerAddress, Requester
from tidelog.timer.host import Host
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.classes import Message, RequestMessage
from tidelog.wire.errors import ErrorCode

R = TypeVar("R")

#: of the links, what this broker asks itself and what its clients do: a leader's question does not wait behind theirs.
#: A request that comes by one of them is decided where it arrives, or refused, and never relayed again
OWN: Final = "controller"
OF_CLIENTS: Final = "relay"
#: between two attempts
RETRY_MS: Final = 50
NO_CREATION_TIMEOUT_MS: Final = 30_000
RECOVERING: Final = 1
#: of AlterPartition
FIRST_VERSION_WITH_EPOCHS: Final = 3


class Question(Generic[R]):
    """One question and what is done with its answer."""

    __slots__ = ("api_key", "at_most", "deadline_ms", "done", "here", "is_refused", "make", "purpose", "read", "refuse")

    def __init__(
        self,
        api_key: ApiKey,
        here: Callable[[Callable[[R], None]], None],
        make: Callable[[int], RequestMessage[Any]],
        read: Callable[[Any], R],
        is_refused: Callable[[R], bool],
        refuse: Callable[[ApiError], R],
        done: Callable[[R], None],
        at_most: int = NEWEST,
        purpose: str = OWN,
    ) -> None:
        self.api_key = api_key
        #: has it decided on this broker
        self.here = here
        #: makes the request, for the version that the controller speaks
        self.make = make
        self.read = read
        #: whether the answer says that somebody else is the controller
        self.is_refused = is_refused
        self.refuse = refuse
        self.done = done
        self.at_most = at_most
        self.purpose = purpose
        self.deadline_ms = 0


class ControllerDoor:
    """`requester` None: this broker works alone, and is the controller or nobody is."""

    def __init__(self, cluster: ClusterView, requester: Requester | None, host: Host) -> None:
        self._cluster = cluster
        self._requester = requester
        self._host = host
        #: by their purpose
        self._links: dict[str, Link] = {}
        self._closed = False

    @property
    def is_alone(self) -> bool:
        """Whether there are no other brokers, ever."""
        return self._requester is None

    @property
    def is_here(self) -> bool:
        """Whether questions are decided on this broker."""
        return self._requester is None or self._cluster.controller.is_active

    def close(self) -> None:
        self._closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    # --- questions ----------------------------------------------------------------------------------

    def alter_partition(self, changes: Sequence[IsrChange], done: Callable[[list[IsrResult]], None]) -> None:
        """A leader changes ISRs. `IsrResult.state` is the partition as it now is, where there was no error."""
        cluster = self._cluster

        def refuse(error: ApiError) -> list[IsrResult]:
            return [IsrResult(change.topic_id, change.partition, error) for change in changes]

        def read(answer: messages.AlterPartitionResponse) -> list[IsrResult]:
            if answer.error_code:
                return refuse(ApiError(ErrorCode.of(answer.error_code)))
            told = {(t.topic_id, p.partition_index): p for t in answer.topics for p in t.partitions}
            return [self._isr_result(change, told.get((change.topic_id, change.partition))) for change in changes]

        self._ask(
            Question(
                ApiKey.ALTER_PARTITION,
                lambda then: cluster.decide_at_once(
                    lambda controller: controller.alter_partition(cluster.id, cluster.broker_epoch, changes), then
                ),
                lambda version: _alter_partition(cluster.id, cluster.broker_epoch, changes, version),
                read,
                lambda results: any(result.error.code is ErrorCode.NOT_CONTROLLER for result in results),
                refuse,
                done,
            )
        )

    def _isr_result(self, change: IsrChange, told: messages.AlterPartitionResponse.PartitionData | None) -> IsrResult:
        key = change.topic_id, change.partition
        if told is None:
            return IsrResult(*key, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller did not answer."))
        if told.error_code:
            return IsrResult(*key, ApiError(ErrorCode.of(told.error_code)))
        topic = self._cluster.image.topic_by_id(change.topic_id)
        known = None if topic is None else self._cluster.image.partition(topic.name, change.partition)
        if known is None:
            return IsrResult(*key, ApiError(ErrorCode.UNKNOWN_TOPIC_ID))
        state = known._replace(
            leader=told.leader_id,
            leader_epoch=told.leader_epoch,
            isr=tuple(told.isr),
            partition_epoch=told.partition_epoch,
            recovering=told.leader_recovery_state == RECOVERING,
        )
        return IsrResult(*key, NO_ERROR, state)

    def create_topics(
        self,
        wanted: list[NewTopic],
        done: Callable[[list[TopicCreation]], None],
        here: Callable[[list[NewTopic], Callable[[list[TopicCreation]], None]], None],
    ) -> None:
        """Topics that this broker needs, or creates because a client named them; `here` creates them on the controller.
        They are usable when this is answered, and known to this broker unless that took too long."""

        def refuse(error: ApiError) -> list[TopicCreation]:
            return [TopicCreation(topic.name, error) for topic in wanted]

        def read(answer: messages.CreateTopicsResponse) -> list[TopicCreation]:
            return [
                TopicCreation(
                    topic.name,
                    ApiError(ErrorCode.of(topic.error_code), topic.error_message),
                    topic.topic_id,
                    topic.num_partitions,
                    topic.replication_factor,
                )
                for topic in answer.topics
            ]

        self._ask(
            Question(
                ApiKey.CREATE_TOPICS,
                lambda then: here(wanted, then),
                lambda version: _create_topics(wanted),
                read,
                lambda results: any(result.error.code is ErrorCode.NOT_CONTROLLER for result in results),
                refuse,
                done,
                purpose=OF_CLIENTS,
            )
        )

    def allocate_producer_ids(self, done: Callable[[ProducerIdBlock], None]) -> None:
        cluster = self._cluster

        def read(answer: messages.AllocateProducerIdsResponse) -> ProducerIdBlock:
            if answer.error_code:
                return ProducerIdBlock(error=ApiError(ErrorCode.of(answer.error_code)))
            return ProducerIdBlock(answer.producer_id_start, answer.producer_id_len)

        self._ask(
            Question(
                ApiKey.ALLOCATE_PRODUCER_IDS,
                lambda then: cluster.decide_at_once(
                    lambda controller: controller.allocate_producer_ids(cluster.id, cluster.broker_epoch), then
                ),
                lambda version: messages.AllocateProducerIdsRequest(
                    broker_id=cluster.id, broker_epoch=cluster.broker_epoch
                ),
                read,
                lambda block: block.error.code is ErrorCode.NOT_CONTROLLER,
                lambda error: ProducerIdBlock(error=error),
                done,
            )
        )

    def controlled_shutdown(self, done: Callable[[ShutdownReply], None]) -> None:
        """Has the leaders of this broker moved elsewhere."""
        cluster = self._cluster

        def read(answer: messages.ControlledShutdownResponse) -> ShutdownReply:
            if answer.error_code:
                return ShutdownReply(error=ApiError(ErrorCode.of(answer.error_code)))
            return ShutdownReply([(each.topic_name, each.partition_index) for each in answer.remaining_partitions])

        self._ask(
            Question(
                ApiKey.CONTROLLED_SHUTDOWN,
                lambda then: cluster.decide(
                    lambda controller: controller.controlled_shutdown(cluster.id, cluster.broker_epoch), then
                ),
                lambda version: messages.ControlledShutdownRequest(
                    broker_id=cluster.id, broker_epoch=cluster.broker_epoch
                ),
                read,
                lambda reply: reply.error.code is ErrorCode.NOT_CONTROLLER,
                lambda error: ShutdownReply(error=error),
                done,
            )
        )

    def relay(
        self,
        api_key: ApiKey,
        version: int,
        body: RequestMessage[Any],
        done: Callable[[Message | ApiError], None],
        timeout_ms: int,
    ) -> None:
        """Passes a client's request on as it came. `done` gets the response, or why there is none."""
        self._ask(
            Question[Message | ApiError](
                api_key,
                # It became the controller while the question waited: whoever asked handles the request again.
                lambda then: then(ApiError(ErrorCode.NOT_CONTROLLER)),
                lambda version: body,
                lambda answer: answer,
                lambda answer: isinstance(answer, Message) and _says_not_controller(answer),
                lambda error: error,
                done,
                at_most=version,
                purpose=OF_CLIENTS,
            ),
            timeout_ms,
        )

    # --- asking -------------------------------------------------------------------------------------

    def _ask(self, question: Question[Any], timeout_ms: int | None = None) -> None:
        longest_ms = self._cluster.config.values.controller_socket_timeout_ms
        timeout_ms = longest_ms if timeout_ms is None else min(timeout_ms, longest_ms)
        question.deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        self._try(question)

    def _try(self, question: Question[Any]) -> None:
        if self._requester is None:
            question.here(question.done)
            return
        left_ms = question.deadline_ms - self._host.clock.monotonic_ms()
        if self._closed or left_ms <= 0:
            question.done(question.refuse(ApiError(ErrorCode.REQUEST_TIMED_OUT, "The controller cannot be reached.")))
            return
        if self._cluster.controller.is_active:
            question.here(lambda result: self._got(question, result))
            return
        link = self._link_to_controller(self._requester, question.purpose)
        if link is None:
            self._try_later(question)
            return

        def answered(outcome: Answered[Any] | Failure) -> None:
            if not isinstance(outcome, Failure):
                self._got(question, question.read(outcome.message))
            elif outcome.kind is FailureKind.UNSUPPORTED_VERSION:
                question.done(question.refuse(ApiError(ErrorCode.UNSUPPORTED_VERSION, outcome.why)))
            else:
                self._try_later(question)

        link.send(question.api_key, question.make, answered, left_ms, question.at_most)

    def _got(self, question: Question[Any], result: Any) -> None:
        if question.is_refused(result):
            self._try_later(question)
        else:
            question.done(result)

    def _try_later(self, question: Question[Any]) -> None:
        self._host.timer.add(self._host.clock.monotonic_ms() + RETRY_MS, lambda: self._try(question))

    def _link_to_controller(self, requester: Requester, purpose: str) -> Link | None:
        cluster = self._cluster
        address: PeerAddress | None = cluster.peer(cluster.controller_id)
        if cluster.controller_id == cluster.id:
            address = None
        if any(link.peer != address for link in self._links.values()):
            self._hang_up()
        if purpose not in self._links and address is not None:
            self._links[purpose] = requester.link(address, purpose)
        return self._links.get(purpose)


def _alter_partition(
    broker_id: int, broker_epoch: int, changes: Sequence[IsrChange], version: int
) -> messages.AlterPartitionRequest:
    request = messages.AlterPartitionRequest
    topics: dict[bytes, messages.AlterPartitionRequest.TopicData] = {}
    for change in changes:
        topic = topics.setdefault(change.topic_id, request.TopicData(topic_id=change.topic_id))
        topic.partitions.append(
            request.PartitionData(
                partition_index=change.partition,
                leader_epoch=change.leader_epoch,
                new_isr=[] if version >= FIRST_VERSION_WITH_EPOCHS else [broker for broker, _ in change.new_isr],
                new_isr_with_epochs=[
                    request.BrokerState(broker_id=broker, broker_epoch=epoch)
                    for broker, epoch in change.new_isr
                    if version >= FIRST_VERSION_WITH_EPOCHS
                ],
                leader_recovery_state=RECOVERING if change.recovering else 0,
                partition_epoch=change.partition_epoch,
            )
        )
    return request(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def _create_topics(wanted: Sequence[NewTopic]) -> messages.CreateTopicsRequest:
    request = messages.CreateTopicsRequest
    return request(
        topics=[
            request.CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    request.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in topic.assignments
                ],
                configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
            )
            for topic in wanted
        ],
        timeout_ms=NO_CREATION_TIMEOUT_MS,
    )


def _says_not_controller(answer: object) -> bool:
    """Whether the response, or an item of it, has the error NOT_CONTROLLER."""
    if not isinstance(answer, Message):
        return False
    if getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
        return True
    values = (getattr(answer, name) for name in answer.__slots_in_order__)
    return any(_says_not_controller(item) for value in values if isinstance(value, list) for item in value)
