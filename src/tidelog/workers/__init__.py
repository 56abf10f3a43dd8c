"""Is: many workers on few partitions: messages handled in parallel, the order of each key kept, offsets without gaps.

Takes: topics, a group, a handler. Gives: every message handled, again only what was under way when a process died.
Never: imports a room of the broker, or needs one of ours: it works with any Kafka, through confluent-kafka.
"""

from tidelog.workers.message import Message as Message
from tidelog.workers.message import Reject as Reject
from tidelog.workers.message import Send as Send
from tidelog.workers.parallel import Workers as Workers
from tidelog.workers.parallel import progress_line as progress_line
from tidelog.workers.programs import Program as Program
from tidelog.workers.worker_options import DEAD_LETTERS as DEAD_LETTERS
from tidelog.workers.workplace import WorkersFailed as WorkersFailed
from tidelog.workers.workplace import WorkProgress as WorkProgress
