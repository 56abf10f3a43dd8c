"""Is: one broker's share of the cluster: its data plane, its view of the cluster, and what it was assigned.

Takes: data directories, the metadata store, the controller's events. Gives: partitions in service, topics created,
log directories taken over from Apache Kafka or checked before a start.
Never: answers a request; decides what the controller decides.
"""
