"""`tidelog load`: files and tables into a topic, each row once.

Is: which files there are, how they are cut into parts, and a run that goes on where an earlier one ended.
Takes: paths, a topic and options.
Gives: records in the topic.
Never: runs a pipeline.
"""
