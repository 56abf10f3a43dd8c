"""Is: the event loop, sockets and connections: frames in, ordered replies out, `sendfile` for file slices.

Takes: listeners, limits, a dispatch function. Gives: one call of it per whole frame.
Never: decodes what is inside a frame.
"""
