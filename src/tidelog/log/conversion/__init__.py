"""Converting a log directory from one layout to the other, while no broker runs on it.

Is: what is to be converted, how segments are rewritten and compared, how the new files take the place of the old ones.
Takes: a log directory of a broker that is stopped, the topics that keep files of their own.
Gives: the same logs in the other layout: the same batches, byte for byte, in the same segments.
Never: changes a batch, or removes anything before its copy was compared with it.
"""
