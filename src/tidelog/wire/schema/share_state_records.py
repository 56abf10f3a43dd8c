"""Records of `__share_group_state`; a key's version is its type, as in `group_records`."""

TABLE = """
ShareSnapshotKey 0
    group_id   string
    topic_id   uuid
    partition  int32

ShareSnapshotValue 0 flexible 0+
    snapshot_epoch           int32
    state_epoch              int32
    leader_epoch             int32
    start_offset             int64
    delivery_complete_count  int32           tag 0 = -1
    create_timestamp         int64
    write_timestamp          int64
    state_batches            []StateBatch
        first_offset         int64
        last_offset          int64
        delivery_state       int8
        delivery_count       int16

ShareUpdateKey 1
    group_id   string
    topic_id   uuid
    partition  int32

ShareUpdateValue 0 flexible 0+
    snapshot_epoch           int32
    leader_epoch             int32
    start_offset             int64
    delivery_complete_count  int32           tag 0 = -1
    state_batches            []StateBatch
        first_offset         int64
        last_offset          int64
        delivery_state       int8
        delivery_count       int16
"""
