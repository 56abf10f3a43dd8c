"""`python -m tidelog`: the command `tidelog`, for environments whose scripts are not on the path."""

from tidelog.cli.entry import main

main()
