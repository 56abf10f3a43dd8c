"""The requester of a broker: links to its peers, over sockets or whatever else the dialler dials."""

from __future__ import annotations

from random import Random

from tidelog.net.channel import Dialler
from tidelog.net.link import ConnectTimes, PeerLink
from tidelog.peers.requester import DEFAULT_OPTIONS, LinkOptions, PeerAddress, peer_client_id
from tidelog.timer.host import Host


class PeerRequester:
    """`node_id` is the broker that asks; `random` spreads the attempts of many brokers to reach one."""

    __slots__ = ("_dialler", "_host", "_links", "_node_id", "_random", "_times")

    def __init__(
        self, node_id: int, host: Host, dialler: Dialler, random: Random, times: ConnectTimes | None = None
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._dialler = dialler
        self._random = random
        self._times = times or ConnectTimes()
        self._links: list[PeerLink] = []

    def link(self, peer: PeerAddress, purpose: str, options: LinkOptions = DEFAULT_OPTIONS) -> PeerLink:
        client_id = peer_client_id(self._node_id, purpose)
        made = PeerLink(self._host, self._dialler, peer, client_id, options, self._times, self._random)
        self._links = [link for link in self._links if not link.closed]
        self._links.append(made)
        return made

    def close(self) -> None:
        """Closes every link that its owner has not closed."""
        links, self._links = self._links, []
        for link in links:
            link.close()
