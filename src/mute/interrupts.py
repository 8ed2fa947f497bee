"""Ctrl-C during training.

scikit-learn's networks take a KeyboardInterrupt for the wish to stop training early: they warn, and go on with the
weights they have. Here an interrupt ends what it interrupts.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interruptible"]

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
