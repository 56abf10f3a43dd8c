"""Is: the event loop, sockets and connections: frames in, ordered replies out, `sendfile` for file slices; and links to
other brokers: requests out, their answers in.

Takes: listeners, limits, a dispatch function; addresses and requests. Gives: one call of it per whole frame; one answer
or failure per request.
Never: decodes what is inside a request, or decides what an answer means.
"""

from tidelog.net.connection import Connection
from tidelog.net.exchange import Exchange
from tidelog.net.limits import Limits
from tidelog.net.loop import Loop
from tidelog.net.server import Server

__all__ = ["Connection", "Exchange", "Limits", "Loop", "Server"]
