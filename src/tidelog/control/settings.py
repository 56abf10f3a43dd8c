"""What the operator chose, as far as the controller needs it. The broker keeps the fields up to date."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(slots=True)
class ControllerSettings:
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    unclean_leader_election_enable: bool = False
    #: above this share of a broker's preferred leaderships that others hold, the leaders are moved back
    leader_imbalance_per_broker_percentage: int = 10
    #: A leader that registered again since it was elected gets a new leader epoch: what its log lost can be told from
    #: what is written in its place. A broker that is alone knows whether it stopped cleanly, and asks where needed.
    renews_returned_leaders: bool = False
    #: A plan with more operations or bytes than this is split, and the rest becomes work. The embedded store takes any
    #: number; ZooKeeper takes a megabyte.
    max_ops: int = sys.maxsize
    max_bytes: int = sys.maxsize
