"""What can go wrong with a pipeline, said so that a person knows what to do next.

Foreign      the table exists and is not this pipeline's
Superseded   another runner of the same pipeline has taken over
DataLoss     the log no longer holds what is due, or ends before it
BadRecord    a value cannot be used, and the file says to stop there
NotReady     something that the pipeline needs is missing: Java, a module, a topic, a master that answers
Unsupported  the table has a feature of Delta that is not supported for what is to be done with it
Restored     the rows of the table and its offsets no longer belong together
"""

from __future__ import annotations


class PipelineError(Exception):
    """`hint` is what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # It travels from executors to the driver.
        return type(self), (self.message, self.hint)


class Foreign(PipelineError):
    pass


class Superseded(PipelineError):
    pass


class DataLoss(PipelineError):
    pass


class BadRecord(PipelineError):
    pass


class NotReady(PipelineError):
    pass


class Unsupported(PipelineError):
    pass


class Restored(PipelineError):
    pass


class TasksFailed(PipelineError):
    pass


class Passing(PipelineError):
    pass
