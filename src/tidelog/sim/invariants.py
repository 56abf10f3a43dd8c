"""What must hold inside the brokers, at every moment: looked at after each step.

one leader     in a leader epoch only one broker ever leads a partition
offsets        log start <= last stable offset <= high watermark <= log end
epochs         leader, partition and controller epochs never fall, in the store and on a broker
ISR            is a part of the replicas, and has the leader
kept           a leader has everything that was acknowledged
in sync        every member of the ISR has everything below any replica's high watermark
one controller in a controller epoch only one broker ever decides
identical      replicas agree on every batch below both high watermarks (looked at now and then, and at the end)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from struct import Struct

from tidelog.broker import Broker
from tidelog.control.model import ConfigResource, ResourceType
from tidelog.replica.partition import Partition
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.violation import Violation
from tidelog.sim.world import SimulatedBroker, World
from tidelog.wire.batch import HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD, iter_headers, read_header

READ_BYTES = 1 << 20
LENGTH = Struct(">i").unpack_from


class Invariants:
    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        #: (topic id, partition, leader epoch) -> the broker that led
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._controllers: dict[int, int] = {}
        #: per broker, life and partition: (leader epoch, partition epoch) as last seen
        self._epochs: dict[tuple[int, int, bytes, int], tuple[int, int]] = {}
        #: per broker and replica: epochs and offsets, from which all else follows, as last seen
        self._looked_at: dict[int, dict[Partition, tuple[int, int, int, int, int]]] = {}
        self._brokers: dict[int, Broker] = {}
        #: the high watermark when a replica was first seen in its epochs
        self._committed: dict[tuple[int, int, bytes, int], int] = {}
        #: in the store
        self._stored: dict[tuple[bytes, int], tuple[int, int]] = {}
        self._isrs: dict[tuple[bytes, int], tuple[int, ...]] = {}
        #: the highest high watermark that anybody has had
        self._highest: dict[tuple[bytes, int], int] = {}
        #: whether a broker has lost something of its disk, and is in an ISR since before
        self.is_tainted: Callable[[int], bool] = lambda broker_id: False
        #: how far the store was when it was looked at
        self._looked_zxid = -1

    def check(self) -> None:
        """Of the brokers that have done something since the last time."""
        changed = [
            (site, partitions)
            for site in self._world.take_reached()
            if site.broker is not None and site.is_running and (partitions := self._check_broker(site))
        ]
        zxid = self._world.ensemble.tree.zxid
        if zxid != self._looked_zxid:
            self._looked_zxid = zxid
            self._check_store()
            for site in self._world.brokers.values():
                if site.broker is not None:
                    self._check_in_sync(site, site.broker.data.replicas.partitions.values())
        else:
            # What a replica knows matters to others only when it learns it.
            for site, partitions in changed:
                self._check_in_sync(site, partitions)

    # --- a broker -----------------------------------------------------------------------------------------

    def _check_broker(self, site: SimulatedBroker) -> list[Partition]:
        """Returns the replicas that are not as they were."""
        broker = site.broker
        assert broker is not None
        if broker.cluster.driver.rules:
            epoch = broker.cluster.controller.image.controller_epoch
            known = self._controllers.setdefault(epoch, site.id)
            if known != site.id:
                raise Violation("one controller", f"brokers {known} and {site.id} decide in controller epoch {epoch}")
        if broker is not self._brokers.get(site.id):
            self._brokers[site.id], self._looked_at[site.id] = broker, {}
        looked_at, changed = self._looked_at[site.id], []
        for partition in broker.data.replicas.partitions.values():
            log = partition.log
            state = (
                partition.leader_epoch,
                partition.partition_epoch,
                log.log_start_offset,
                partition.high_watermark,
                log.log_end_offset,
            )
            if looked_at.get(partition) != state:
                looked_at[partition] = state
                changed.append(partition)
        for partition in changed:
            self._check_partition(site, partition)
        return changed

    def _check_partition(self, site: SimulatedBroker, partition: Partition) -> None:
        log = partition.log
        high_watermark = partition.high_watermark
        key = site.id, site.lives, partition.topic_id, partition.index
        epochs = partition.leader_epoch, partition.partition_epoch
        if not log.log_start_offset <= partition.last_stable_offset <= high_watermark <= log.log_end_offset:
            raise Violation(
                "offsets",
                f"{partition!r} on broker {site.id}: start {log.log_start_offset}, stable "
                f"{partition.last_stable_offset}, committed {high_watermark}, end {log.log_end_offset}",
            )
        truth = self._oracle.places.get(LogPlace(partition.topic, partition.index))
        if truth is not None and log.log_start_offset > truth.deletable_end:
            raise Violation(
                "deletion", f"{partition!r} on broker {site.id}: nobody has deleted what follows {truth.deletable_end}"
            )
        known = self._epochs.get(key)
        if known == epochs:
            self._check_enough(site, partition)
            return
        if known is not None and epochs < known:
            raise Violation("epochs", f"{partition!r} on broker {site.id} had the epochs {known}")
        self._epochs[key] = epochs
        self._committed[key] = high_watermark
        if partition.is_leader:
            self._check_leader(site, partition)
        if known is None or known[0] != epochs[0]:
            self._world.trace.add(
                site.machine,
                f"{'leads' if partition.is_leader else f'follows {partition.leader_id} in'} {partition!r} "
                f"isr {list(partition.isr)}",
            )

    def _check_enough(self, site: SimulatedBroker, partition: Partition) -> None:
        if partition.is_leader and len(partition.isr) < partition.log.config.min_insync_replicas:
            since = self._committed[site.id, site.lives, partition.topic_id, partition.index]
            if partition.high_watermark > since and len(partition.in_sync.maximal) == len(partition.isr):
                raise Violation(
                    "enough",
                    f"{partition!r} on broker {site.id} has committed what follows {since}, {partition.isr} in sync",
                )

    def _check_leader(self, site: SimulatedBroker, partition: Partition) -> None:
        led = partition.topic_id, partition.index, partition.leader_epoch
        known = self._leaders.setdefault(led, site.id)
        if known != site.id:
            raise Violation("one leader", f"brokers {known} and {site.id} lead {partition!r}")
        if not set(partition.isr) <= set(partition.replicas) or site.id not in partition.isr:
            raise Violation("ISR", f"{partition!r} on broker {site.id}: {partition.isr} of {partition.replicas}")
        stored = self._stored.get((partition.topic_id, partition.index), (-1, -1))
        if partition.leader_epoch < stored[0]:
            return  # it does not know yet that another leads
        truth = self._oracle.places.get(LogPlace(partition.topic, partition.index))
        if truth is not None and partition.log.log_end_offset < truth.acknowledged_end:
            raise Violation(
                "kept",
                f"broker {site.id} leads {partition!r}, where everything below {truth.acknowledged_end} was "
                "acknowledged",
            )

    def _check_in_sync(self, site: SimulatedBroker, partitions: Iterable[Partition]) -> None:
        """That a broker has all that is known to be committed; and where it knows more, that the others have that."""
        for partition in partitions:
            key = partition.topic_id, partition.index
            highest = self._highest.get(key, -1)
            isr = self._isrs.get(key, ())
            if site.id in isr and partition.log.log_end_offset < highest:
                self._find_behind(site, partition, highest)
            if partition.high_watermark > highest:
                self._highest[key] = highest = partition.high_watermark
                for member in isr:
                    other = self._world.brokers[member]
                    held = None if other.broker is None else other.broker.data.replicas.partitions.get(partition.key)
                    if held is not None and held.topic_id == partition.topic_id and held.log.log_end_offset < highest:
                        self._find_behind(other, held, highest)

    def _find_behind(self, site: SimulatedBroker, partition: Partition, high_watermark: int) -> None:
        # A damaged disk may be noticed long after, by a start that reads what was damaged.
        if not (site.is_damaged or self.is_tainted(site.id)):
            raise Violation(
                "in sync",
                f"broker {site.id} is in the ISR of {partition!r}, of which everything below {high_watermark} is "
                "committed",
            )

    # --- the store ----------------------------------------------------------------------------------------

    def _check_store(self) -> None:
        image = self._world.stored()
        for topic in image.topics.values():
            for state in topic.partitions:
                key = topic.topic_id, state.partition_index
                epochs = state.leader_epoch, state.partition_epoch
                known = self._stored.get(key, (-1, -1))
                if epochs[0] < known[0] or epochs[1] < known[1]:
                    raise Violation("epochs", f"{topic.name}-{state.partition_index} has {epochs} after {known}")
                self._stored[key] = epochs
                self._isrs[key] = state.isr
                if not set(state.isr) <= set(state.replicas):
                    raise Violation("ISR", f"{topic.name}-{state.partition_index}: {state.isr} of {state.replicas}")

    def check_end(self, deleted: set[bytes]) -> None:
        """When everything has recovered: brokers know and have what the store says, and nothing else."""
        image = self._world.read_store()
        for site in self._world.brokers.values():
            if site.broker is None or site.broker.cluster.image != image:
                raise Violation("one picture", f"broker {site.id} does not know what the store says")
        for topic in image.topics.values():
            if topic.topic_id in deleted:
                raise Violation(
                    "deletion", f"{topic.name} was deleted, and is there with the id {topic.topic_id.hex()}"
                )
        for (topic_name, name), values in self._oracle.settings.items():
            node = image.configs.get(ConfigResource(ResourceType.TOPIC, topic_name))
            value = None if node is None else node.values.get(name)
            if value not in values:
                raise Violation(
                    "settings", f"{name} of {topic_name} is {value}, and was set to {sorted(map(str, values))}"
                )
        for site in self._world.brokers.values():
            assert site.broker is not None
            expected = {
                (topic.name, state.partition_index): topic.topic_id
                for topic in image.topics.values()
                for state in topic.partitions
                if site.id in state.replicas
            }
            found = {key: partition.topic_id for key, partition in site.broker.data.replicas.partitions.items()}
            if found != expected:
                unlike = sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))
                raise Violation("placement", f"broker {site.id} has or lacks {unlike}, or has them with another id")

    # --- replicas -----------------------------------------------------------------------------------------

    def check_replicas(self) -> None:
        """Every two replicas have the same batches below both of their high watermarks."""
        found: dict[tuple[bytes, int], list[tuple[int, Partition]]] = {}
        for site in self._world.brokers.values():
            if site.broker is not None:
                if site.is_damaged or site.has_failed_directory:
                    continue
                for partition in site.broker.data.replicas.partitions.values():
                    found.setdefault((partition.topic_id, partition.index), []).append((site.id, partition))
        with ExitStack() as looking:
            for site in self._world.brokers.values():
                looking.enter_context(site.disk.undisturbed())
            for replicas in found.values():
                first_id, first = replicas[0]
                for other_id, other in replicas[1:]:
                    self._compare(first_id, first, other_id, other)

    def _compare(self, first_id: int, first: Partition, other_id: int, other: Partition) -> None:
        start = max(first.log.log_start_offset, other.log.log_start_offset)
        end = min(first.high_watermark, other.high_watermark)
        if _are_alike(first, other, start, end) or "compact" in first.log.config.cleanup_policy:
            return
        one, two = _batches(first, start, end), _batches(other, start, end)
        if one == two:
            return
        at = next((offset for offset in sorted(one.keys() | two.keys()) if one.get(offset) != two.get(offset)), -1)
        raise Violation(
            "identical", f"{first!r} on broker {first_id} and {other!r} on broker {other_id} differ at offset {at}"
        )


def _are_alike(first: Partition, other: Partition, start: int, end: int) -> bool:
    """Whether both have the same bytes there. If not, they may still have the same batches: files differ in where they
    end, and what was read may begin before `start`."""
    offset = start
    while offset < end:
        one, two = first.log.read(offset, READ_BYTES, end, True), other.log.read(offset, READ_BYTES, end, True)
        data = b"" if one is None else one.read()
        if data != (b"" if two is None else two.read()):
            return False
        if not data:
            break
        offset = _end_of(data)
    return True


def _end_of(data: bytes) -> int:
    """The offset that follows the last whole batch; the first one is whole."""
    at = last = 0
    while at + LOG_OVERHEAD <= len(data):
        size_bytes = LOG_OVERHEAD + LENGTH(data, at + LENGTH_AT)[0]
        if size_bytes < HEADER_SIZE:
            raise Violation("identical", f"replicas have {size_bytes} bytes in common where a batch begins")
        if at + size_bytes <= len(data):
            last = at
        at += size_bytes
    return read_header(data, last).next_offset


def _batches(partition: Partition, start: int, end: int) -> dict[int, bytes]:
    """Base offset -> bytes of each batch that lies within."""
    found: dict[int, bytes] = {}
    offset = start
    while offset < end:
        piece = partition.log.read(offset, READ_BYTES, end, True)
        data = b"" if piece is None else piece.read()
        if not data:
            break
        for at, header in iter_headers(data):
            if header.last_offset >= start and header.last_offset < end:
                found[header.base_offset] = data[at : at + header.size_bytes]
            offset = header.last_offset + 1
    return found
