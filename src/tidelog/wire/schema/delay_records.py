"""Values of the control records that the leader of a delay topic's partition writes into it: Tidelog's own.

`DelayPicture` (type 10001) is the whole state of the partition's delivery; `DelayCancellation` (type 10002) takes
records back that have not been delivered.
"""

TABLE = """
DelayPicture 0 flexible 0+
    producer_id          int64
    sequence             int32
    settled_due_ms       int64
    settled_offset       int64
    horizon              int64
    floor                int64
    delays               []DefaultDelay
        from_offset      int64
        delay_ms         int64
    stopped              []StoppedRecord
        offset           int64
        due_ms           int64
        reason           string
    parcels              []Parcel
        target           string
        decided_ms       int64
        sequence         int32
        from_stopped     bool
        settled_due_ms   int64
        settled_offset   int64
        horizon          int64
        offsets          []int64
        due_times_ms     []int64
        is_cut           bool     0+  tag 0
        is_alone         bool     0+  tag 1
        refused_offsets  []int64  0+  tag 2
    doubts               []DoubtfulParcel  0+  tag 0
        producer_id      int64
        target           string
        sequence         int32
        offsets          []int64
        due_times_ms     []int64
        is_cut           bool
    earlier_steps        []EarlierStep  0+  tag 1
        settled_due_ms   int64
        settled_offset   int64
        horizon          int64

DelayCancellation 0 flexible 0+
    records              []CancelledRecord
        offset           int64
        due_ms           int64
"""
