"""A batch on its way from the log to files.

Is: the work of one task, who carries tasks out, and the events that tell of it.
Takes: ranges of offsets and a decoder.
Gives: descriptions of files that nobody has committed yet.
Never: commits.
"""
