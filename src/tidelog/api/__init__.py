"""Is: one file per Kafka API: validate, authorise, call a room, shape the reply.

Takes: a decoded request and its context. Gives: a response message, now or through a parked request.
Never: keeps state; touches bytes or files.
"""
