"""Progress of a fit: the callbacks of ``set_callbacks``, and a progress bar for the terminal."""

from __future__ import annotations

from collections.abc import Callable

from mute.typing import Foreign

__all__ = ["Callback", "ProgressBar"]

# A callback takes the name of the step, the number of finished steps and that of all steps. True stops the fit.
Callback = Callable[[str, int, int], "bool | None"]


class ProgressBar:
    """A callback that draws a progress bar with the remaining time.

    See Also
    --------
    mute.MUtE.set_callbacks : Takes this callback, or any function of (name, done, total).

    Notes
    -----
    *Limits.* The total of a fit with ``n_iterations="auto"`` is its maximum, so the fit may end before the bar is full.
    Use one bar for one fit at a time.

    Examples
    --------
    >>> import numpy as np, mute
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = mute.RBIG(3, random_state=0).set_callbacks(mute.ProgressBar()).fit(rows)
    layer ... 100% ...
    """

    def __init__(self) -> None:
        self._progress: Foreign = None

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
        """Remove the bar. Every fit calls this method at its end, also if it fails."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
