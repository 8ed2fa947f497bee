"""How far a fit has come, through scikit-learn's callback interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["FitProgress"]


class FitProgress:
    """Tell a function of every step that a fit has taken.

    scikit-learn's own `ProgressBar` shows the same on any terminal; this one leaves the showing to others.

    Parameters
    ----------
    report : function (name of the step, steps done, steps in all)
    """

    def __init__(self, report: Callable[[str, int, int], None]) -> None:
        self._report = report
        self._done = 0

    def setup(self, estimator: Any, context: Any) -> None:
        self._done = 0

    def teardown(self, estimator: Any, context: Any) -> None:
        pass

    def on_fit_task_begin(self, estimator: Any, context: Any, **_: Any) -> None:
        pass

    def on_fit_task_end(self, estimator: Any, context: Any, **_: Any) -> None:
        if context.parent is not None:
            self._done += 1
            self._report(context.task_name, self._done, context.parent.max_subtasks)
