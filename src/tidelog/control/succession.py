"""What a broker finds of its own former process when it starts: nodes that live until that process's session is over.

A process that was killed leaves its registration behind, and perhaps the election that it had won. Nobody else could
tell whether it lives; its successor can. A log directory is locked by the process that uses it, so whoever holds the
lock of a directory that the registration names knows that the other process is gone. That the addresses are the same
too keeps a copy of a directory, on another machine, from taking the place of the broker that it was copied from.
"""

from __future__ import annotations

from tidelog.control import nodes
from tidelog.control.controller import Registration
from tidelog.control.malformed_nodes import MALFORMED
from tidelog.metadata.store import Delete, Node


def left_behind(
    registration: Registration, broker_id: int, registered: Node | None, controller: Node | None
) -> list[Delete]:
    """Takes away the nodes of the former process, `registered` among them; nothing if they may be another's."""
    if registered is None or not _is_former_self(registration, registered):
        return []
    found = [Delete(nodes.broker_path(broker_id), registered.version)]
    if controller is not None and controller.ephemeral_owner == registered.ephemeral_owner:
        found.append(Delete(nodes.CONTROLLER, controller.version))
    return found


def _is_former_self(registration: Registration, registered: Node) -> bool:
    try:
        endpoints, _ = nodes.decode_broker(registered.data)
        directories = nodes.decode_directories(registered.data)
    except MALFORMED:
        return False
    return set(endpoints) == set(registration.endpoints) and not directories.isdisjoint(registration.directories)
