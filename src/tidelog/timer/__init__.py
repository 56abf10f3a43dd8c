"""Is: hierarchical timing wheels driven by a delay queue of buckets, and the requests parked in them.

Takes: deadlines, cancellations, the time. Gives: the callbacks that are due, and when to come back.
Never: reads a clock or sleeps.
"""

from tidelog.timer.parking import Parked, Parking
from tidelog.timer.wheel import Timer, TimerTask

__all__ = ["Parked", "Parking", "Timer", "TimerTask"]
