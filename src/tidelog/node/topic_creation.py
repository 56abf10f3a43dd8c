"""Creating topics: those that clients request, and those that are created because they are needed."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.control.errors import ApiError
from tidelog.control.steps import always
from tidelog.control.topic_names import why_invalid
from tidelog.control.topics import NewTopic, TopicCreation, TopicRef
from tidelog.node.cluster_view import ClusterView
from tidelog.node.controller_door import ControllerDoor
from tidelog.node.internal_topics import COORDINATOR_TOPICS, internal_topic
from tidelog.node.placing import Placing
from tidelog.wire.errors import ErrorCode


class TopicCreator:
    """`notice` is told why an internal topic cannot be created: clients only hear that there is no coordinator."""

    def __init__(
        self, cluster: ClusterView, controller: ControllerDoor, placing: Placing, notice: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._controller = controller
        self._placing = placing
        self._notice = notice
        #: what was told last, by topic: clients ask again and again
        self._told: dict[str, ApiError] = {}

    def create(
        self,
        wanted: list[NewTopic],
        done: Callable[[list[TopicCreation]], None],
        validate_only: bool = False,
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        """Creates topics, on the controller; one whose partitions cannot be made here is deleted again and refused."""

        def created(results: list[TopicCreation]) -> None:
            answers = [self._judge(result) for result in results]
            broken = [TopicRef(at.name) for at, result in zip(answers, results, strict=True) if at is not result]
            if broken:
                self._cluster.decide(
                    lambda controller: controller.delete_topics(broken), lambda deletions: done(answers)
                )
            else:
                done(answers)

        self._cluster.decide_in_parts(
            self._cluster.controller.creation_parts(wanted, validate_only),
            lambda controller, some: controller.create_topics(some, validate_only=validate_only),
            created,
            is_wanted,
        )

    def _judge(self, result: TopicCreation) -> TopicCreation:
        why = None if result.error.is_failure else self._placing.why_refused(result.name)
        return result if why is None else TopicCreation(result.name, why)

    def why_refused(self, topic: str) -> ApiError | None:
        """What is answered where a partition of the topic could not be made; None where all are there."""
        return self._placing.why_refused(topic)

    def auto_create(self, names: list[str], done: Callable[[dict[str, int]], None]) -> None:
        """Creates topics with the broker's defaults; `done` gets an error code for each that could not be.

        An internal topic is made as its coordinator needs it, whoever asks first.
        """
        invalid = {name: int(ErrorCode.INVALID_TOPIC_EXCEPTION) for name in names if why_invalid(name) is not None}
        wanted = [self._new_topic(name) for name in names if name not in invalid]
        if not wanted:
            done(invalid)
            return

        def created(results: list[TopicCreation]) -> None:
            errors = {result.name: result.error.code for result in results if result.error.is_failure}
            done({**invalid, **{name: _auto_create_error(code) for name, code in errors.items()}})

        self._controller.create_topics(wanted, created, self.create)

    def _new_topic(self, name: str) -> NewTopic:
        if name not in COORDINATOR_TOPICS:
            return NewTopic(name)
        # A cluster has as many replicas as it was configured to have, or no such topic: what it acknowledges is kept.
        brokers = len(self._cluster.image.brokers) if self._controller.is_alone else None
        return internal_topic(name, self._cluster.config, brokers)

    def ensure_internal(self, name: str, done: Callable[[], None]) -> None:
        """Creates an internal topic where it does not exist; `done` when it does, or could not be created."""
        if name in self._cluster.image.topics:
            done()
            return

        def created(results: list[TopicCreation]) -> None:
            self._tell(*results)
            done()

        self._controller.create_topics([self._new_topic(name)], created, self.create)

    def _tell(self, result: TopicCreation) -> None:
        error = result.error
        passes = error.code.retriable or error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        if error.is_failure and not passes and self._told.get(result.name) != error:
            self._told[result.name] = error
            self._notice(
                f"{result.name} cannot be created, and without it no client finds a coordinator: "
                f"{error.message or error.code.message}"
            )


def _auto_create_error(code: int) -> int:
    """What Metadata says of a topic that is not there yet: most failures pass, and the client asks again."""
    if code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR):
        return code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
