"""What the controller decided: operations for the store, and what to answer once they are in.

The contract that `driver.Driver` keeps, and that any other driver must:

1. One plan at a time. A plan is made from the image, submitted, and either committed or refused before the next is
   made. So a plan never has to reckon with another one on its way.
2. `store.submit(plan.ops, …)`; a plan without operations counts as committed.
3. Committed: `controller.committed(plan, result)` puts it into the image and gives the events. The broker carries
   these out (creates and deletes logs, changes leaders, sets configurations), in as many turns as it takes. Then
   `controller.work()` is asked for what follows from the new image (a leader for a partition that lost its own, a
   deletion in several steps), until it has nothing more; only then is `plan.reply` sent. A topic is usable when its
   creation is answered.
4. Refused (`BadVersion`, `NodeExists`, `NoNode`): nothing happened; the image is behind. Load it again. The first
   operation of a controller's plan checks /controller_epoch; if another broker has become the controller the image now
   says so: answer `plan.refuse(NOT_CONTROLLER)`. Else someone wrote past the controller: plan the same request again.
   After `ConnectionLoss` it is not known what happened: load, and answer `plan.refuse(REQUEST_TIMED_OUT)`.
5. A plan depends on the image only. Making one and dropping it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from tidelog.control.errors import ApiError
from tidelog.metadata.store import Check, Create, Delete, Op, SetData

R = TypeVar("R")
#: what stands around the path and the data of an operation, an ACL among it
AROUND_OP_BYTES: Final = 64


class Plan(NamedTuple, Generic[R]):
    ops: list[Op]
    #: the answer, once the operations are committed
    reply: R
    #: the answer where they are not: the same shape, with this error in each place
    refuse: Callable[[ApiError], R]

    def in_transactions(self, max_ops: int, max_bytes: int) -> list[list[Op]]:
        """The operations as lists that a store takes. Only changes of nodes that exist are parted, such as the states
        of thousands of partitions that get other leaders: each stands for itself, and what is missing after a failure
        is planned again. So is what a node asked for that is deleted at the end. Whatever else creates or deletes nodes
        has been kept short by whoever planned it."""
        ops = self.ops
        if len(ops) <= 2 * max_ops and sum(map(bytes_of, ops)) <= max_bytes:
            return [ops]
        if not isinstance(ops[0], Check) or not all(isinstance(op, SetData) for op in ops[1:-1]):
            return [ops]
        if not isinstance(ops[-1], SetData | Delete):
            return [ops]
        parts: list[list[Op]] = []
        size = 0
        for op in ops[1:]:
            size += bytes_of(op)
            if not parts or len(parts[-1]) > max_ops or size > max_bytes:
                parts.append([ops[0]])
                size = bytes_of(op)
            parts[-1].append(op)
        return parts


def bytes_of(op: Op) -> int:
    """About what an operation takes in a transaction."""
    data = op.data if isinstance(op, Create | SetData) else b""
    return AROUND_OP_BYTES + len(op.path) + len(data)
