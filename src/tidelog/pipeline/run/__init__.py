"""Running a pipeline.

Is: the runner, one batch after the other; replay; what `status` and `check` look at.
Takes: a `Pipeline`, an executor, listeners.
Gives: commits to the pipeline's tables, events, findings.
Never: touches a file of a table itself.
"""
