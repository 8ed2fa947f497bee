"""The one exception for what the user can put right, and the one warning."""

import sys
import warnings

__all__ = ["MuteError", "WeakResultWarning", "missing_extra", "warn_weak_result"]


class MuteError(ValueError):
    """Input, file or setting that cannot be used; the message says what was given and what to do."""


class WeakResultWarning(UserWarning):
    """The call worked, but its result is weaker than it seems (few rows, constant columns, ...)."""


def missing_extra(package: str, extra: str, purpose: str) -> MuteError:
    """Build the error for an optional dependency that is not installed."""
    return MuteError(f'{purpose} needs {package}, which is not installed: pip install "mute-erasure[{extra}]"')


def warn_weak_result(message: str) -> None:
    """Warn with a `WeakResultWarning` that points at the user's line, outside this package."""
    frame, level = sys._getframe(1), 2
    # scikit-learn and contextlib wrap some calls, so their frames are skipped too.
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in (
        "mute",
        "sklearn",
        "contextlib",
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, WeakResultWarning, stacklevel=level)
