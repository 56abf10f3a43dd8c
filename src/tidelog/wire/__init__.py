"""Is: bytes <-> values of Kafka's protocol, record batches and stored records.

Takes: buffers. Gives: messages (slotted objects), batch headers, encoded bytes.
Never: imports another room, reads a clock, a socket or a file; allocates by a length it has not checked.
"""
