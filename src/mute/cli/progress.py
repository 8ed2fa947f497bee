"""Fit progress on the terminal, through scikit-learn's callback interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["LayerProgress"]


class LayerProgress:
    """Advance a rich progress bar by one for every layer that a flow estimator has fitted.

    scikit-learn's own `ProgressBar` does the same on any terminal; this one shares the command line's console, can be
    silenced, and leaves nothing on the screen.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: Any = None

    def setup(self, estimator: Any, context: Any) -> None:
        self._task = self._progress.add_task("layers", total=context.max_subtasks)

    def teardown(self, estimator: Any, context: Any) -> None:
        self._progress.remove_task(self._task)

    def on_fit_task_begin(self, estimator: Any, context: Any, **_: Any) -> None:
        pass

    def on_fit_task_end(self, estimator: Any, context: Any, **_: Any) -> None:
        if context.parent is not None:
            self._progress.advance(self._task)
