"""The mixtures of groups that are mistreated: each pairs commits after processing with commits before it."""

from __future__ import annotations

from groups_chaos import Plan

MIXED = ("confluent", "kafka-python", "aiokafka")
VARIANTS: dict[str, list[Plan]] = {
    "classic": [
        Plan("classic-after", "after", strategy="cooperative-sticky"),
        Plan("classic-before", "before", strategy="range"),
    ],
    "consumer": [
        Plan("consumer-after", "after", protocol="consumer"),
        Plan("consumer-before", "before", protocol="consumer"),
    ],
    "mixed": [
        Plan("mixed-after", "after", clients=MIXED),
        Plan("mixed-before", "before", clients=MIXED),
    ],
}
