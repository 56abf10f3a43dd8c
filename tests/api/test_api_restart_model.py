"""A short selection of what `restart_model` tries by the thousand."""

from __future__ import annotations

from hypothesis import settings
from restart_model import RestartMachine

RestartMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None, derandomize=True)
test_what_was_acknowledged_survives_every_life = RestartMachine.TestCase
