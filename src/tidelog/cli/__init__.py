"""Is: the `tidelog` command.

Takes: arguments, files, terminals. Gives: data on stdout, talk on stderr, exit codes.
Never: imports heavy things before a command needs them.
"""
