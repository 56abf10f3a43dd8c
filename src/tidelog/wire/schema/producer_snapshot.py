"""The `.snapshot` file of a partition: its producers; the version stands before it as an int16."""

TABLE = """
ProducerSnapshot 1
    crc                           uint32
    producer_entries              []ProducerEntry
        producer_id               int64
        epoch                     int16
        last_sequence             int32
        last_offset               int64
        offset_delta              int32
        timestamp                 int64
        coordinator_epoch         int32
        current_txn_first_offset  int64
"""
