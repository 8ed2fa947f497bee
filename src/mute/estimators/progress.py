"""How far a fit has come: the small hook behind ``set_callbacks``, and a bar for the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mute.errors import MuteError

__all__ = ["Callback", "ProgressBar", "check_callbacks"]

# Called after each step of a fit with the name of the step, the steps done and the steps in all; True stops the fit.
Callback = Callable[[str, int, int], "bool | None"]


def check_callbacks(callbacks: tuple[Any, ...]) -> tuple[Callback, ...]:
    """Refuse what cannot be called."""
    for callback in callbacks:
        if not callable(callback):
            raise MuteError(
                f"a callback must be a function (name, done, total), not {callback!r}; for a bar on the terminal use "
                "mute.ProgressBar()"
            )
    return callbacks


class ProgressBar:
    """A callback that draws a bar with the time that is left.

    See Also
    --------
    mute.MUtE.set_callbacks : takes it, or any function of (name, done, total).

    Examples
    --------
    >>> import numpy as np, mute
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = mute.RBIG(3, random_state=0).set_callbacks(mute.ProgressBar()).fit(rows)
    layer ... 100% ...
    """

    def __init__(self) -> None:
        self._progress: Any = None

    def __call__(self, name: str, done: int, total: int) -> None:
        from rich.progress import Progress

        if self._progress is None:
            self._progress = Progress()
            self._progress.start()
            self._task = self._progress.add_task(name, total=total)
        self._progress.update(self._task, description=name, completed=done, total=total)
        if done >= total:
            self.close()

    def close(self) -> None:
        """End the bar; a fit that stops early or fails does so for its callbacks."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
