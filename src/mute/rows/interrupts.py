"""Ctrl-C during training.

scikit-learn's networks treat a KeyboardInterrupt as an early stop: they warn, and continue with the weights they have.
Here an interrupt ends the call. Training with checkpoints asks between its steps whether to stop, and saves one first.
"""

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Stop", "interruptible"]

_MESSAGE = "Training interrupted"


@contextmanager
def interruptible() -> Iterator[None]:
    """Train scikit-learn's networks inside this block; an interrupt leaves it as KeyboardInterrupt.

    Limits: filters of warnings belong to the process. If another thread enters or leaves `warnings.catch_warnings`
    meanwhile, an interrupt may count as an early stop. Training outside the main thread is never interrupted, since
    signals do not reach it.
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
    """Delay Ctrl-C and SIGTERM inside the block until the work can stop.

    A second signal is not delayed. Outside the main thread, which alone gets signals, this does nothing.

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
        """Do what the signal would have done without the delay."""
        self.__exit__()
        if self._signal is not None:
            signal.raise_signal(self._signal)
        raise KeyboardInterrupt

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # Processes in the background may ignore Ctrl-C, and continue to do so.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self.leave()
        self._signal = number

    def __exit__(self, *_: object) -> None:
        while self._before:
            number, handler = self._before.popitem()
            # None stands for a handler that was not set from Python and cannot be restored from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
