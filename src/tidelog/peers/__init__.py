"""Is: what one broker may ask of another, and how: a requester, its links, answers and failures.

Takes: an address, a request, a time-out. Gives: the answer, or a failure that says whether the request may have been
carried out.
Never: opens a socket; `net` has the requester that does, and a network in memory that needs none.
"""

from tidelog.peers.requester import Answered, Failure, FailureKind, Link, LinkOptions, PeerAddress, Requester

__all__ = ["Answered", "Failure", "FailureKind", "Link", "LinkOptions", "PeerAddress", "Requester"]
