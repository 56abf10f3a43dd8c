"""Is: the event loop, sockets and connections: frames in, ordered replies out, `sendfile` for file slices.

Takes: listeners, limits, a dispatch function. Gives: one call of it per whole frame.
Never: decodes what is inside a frame.
"""

from tidelog.net.connection import Connection
from tidelog.net.exchange import Exchange
from tidelog.net.limits import Limits
from tidelog.net.loop import Loop
from tidelog.net.server import Server

__all__ = ["Connection", "Exchange", "Limits", "Loop", "Server"]
