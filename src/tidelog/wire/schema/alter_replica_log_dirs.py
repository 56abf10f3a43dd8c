"""AlterReplicaLogDirs (34): move replicas between a broker's directories."""

TABLE = """
AlterReplicaLogDirsRequest 1-2 flexible 2+
    dirs                []AlterReplicaLogDir
        path            string
        topics          []AlterReplicaLogDirTopic
            name        string
            partitions  []int32

AlterReplicaLogDirsResponse 1-2 flexible 2+
    throttle_time_ms         int32
    results                  []AlterReplicaLogDirTopicResult
        topic_name           string
        partitions           []AlterReplicaLogDirPartitionResult
            partition_index  int32
            error_code       int16
"""
