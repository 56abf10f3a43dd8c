"""A short selection of what `restart_model` tries by the thousand."""

from __future__ import annotations

from hypothesis import Phase, settings
from restart_model import RestartMachine

# Without a shrink, which takes minutes: what failed is told as it is, and `restart_model` finds it again.
RestartMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
    print_blob=True,
    report_multiple_bugs=False,
)
test_what_was_acknowledged_survives_every_life = RestartMachine.TestCase
