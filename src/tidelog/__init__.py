"""Tidelog: a distributed commit log that speaks Kafka's protocol."""

__version__ = "0.1.0"


def how_to_install(*extras: str) -> str:
    """What to do where the packages of an extra are missing. There is no tidelog on a package index to name."""
    return f"`pip install '.[{','.join(extras)}]'` in a checkout of tidelog"
