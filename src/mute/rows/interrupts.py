"""Ctrl-C during training.

scikit-learn's networks take a KeyboardInterrupt for the wish to stop training early: they warn, and go on with the
weights they have. Here an interrupt ends what it interrupts. Training that keeps checkpoints asks between its steps
whether to stop, and keeps one first.
"""

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Stop", "interruptible"]

_MESSAGE = "Training interrupted"


@contextmanager
def interruptible() -> Iterator[None]:
    """Train scikit-learn's networks inside: an interrupt leaves it as KeyboardInterrupt.

    Limits: filters of warnings belong to the process. If another thread enters or leaves `warnings.catch_warnings`
    meanwhile, an interrupt may pass for an early stop. Training in other threads than the main one is never
    interrupted: signals do not reach it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=_MESSAGE, category=UserWarning)
        try:
            yield
        except UserWarning as warning:
            if not str(warning).startswith(_MESSAGE):
                raise
            raise KeyboardInterrupt from None


class Stop:
    """Hold back Ctrl-C and SIGTERM inside the block until the work is at a place where it can stop.

    A second signal does not wait. Outside the main thread, which alone gets signals, nothing is held back.

    Examples
    --------
    >>> with Stop() as stop:
    ...     stop.asked
    False
    """

    def __init__(self) -> None:
        self._signal: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether a signal came; `leave` acts on it."""
        return self._signal is not None

    def leave(self) -> None:
        """Do what the signal would have done."""
        self._restore()
        if self._signal is not None:
            signal.raise_signal(self._signal)
        raise KeyboardInterrupt

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # What runs in the background may have been told to ignore Ctrl-C: that stays so.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, frame: Any) -> None:
        if self.asked:
            self.leave()
        self._signal = number

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            # None stands for a handler that was not set from Python and cannot be set back from it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
