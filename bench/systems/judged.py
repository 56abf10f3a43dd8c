"""What the tests can judge, by the names that their option `--broker` has for it."""

from __future__ import annotations

from bench.systems.cluster import TidelogCluster
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess
from bench.systems.tidelog import Tidelog

JUDGED: dict[str, type[BrokerProcess]] = {"tidelog": Tidelog, "cluster": TidelogCluster, "kafka": ApacheKafka}
