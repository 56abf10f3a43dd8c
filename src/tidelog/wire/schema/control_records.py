"""Values of control records in a partition: transaction markers and leader changes."""

TABLE = """
EndTxnMarker 0
    coordinator_epoch  int32

LeaderChangeMessage 0-1 flexible 0+
    version                 int16
    leader_id               int32
    voters                  []Voter
    granting_voters         []Voter
    struct Voter
        voter_id            int32
        voter_directory_id  uuid     1+
"""
