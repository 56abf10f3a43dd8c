"""An executor as bad as a cluster can be: tasks fail in the middle, run twice, and any attempt's result may arrive."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tidelog.pipeline.land import landing
from tidelog.pipeline.land.executor import Done, InProcess
from tidelog.pipeline.land.landing import Landed, LandingTask


class Clumsy(InProcess):
    parallelism = 3

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def land(self, tasks: Sequence[LandingTask], done: Done) -> list[Landed]:
        results = {}
        for task in self._random.sample(tasks, len(tasks)):
            attempts = []
            while not attempts or self._random.random() < 0.4:
                if self._random.random() < 0.3:
                    self._fail_in_the_middle(task)
                attempts.append(landing.land(task))
            results[task.number] = self._random.choice(attempts)
            done(results[task.number])
        return [results[task.number] for task in tasks]

    def _fail_in_the_middle(self, task: LandingTask) -> None:
        class Broken(Exception):
            pass

        class Breaking:
            """Decodes some batches, then fails."""

            def __init__(self, left: int) -> None:
                self.columns = task.decoder.columns
                self._left = left

            def decode(self, records: object) -> object:
                self._left -= 1
                if self._left < 0:
                    raise Broken
                return task.decoder.decode(records)

        from dataclasses import replace

        try:
            landing.land(replace(task, decoder=Breaking(self._random.randrange(2))))  # type: ignore[arg-type]
        except Broken:
            pass
