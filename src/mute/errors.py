"""The one exception for what the user can put right, the warnings, and words for their messages."""

import re
import sys
import warnings
from collections.abc import Sequence

__all__ = [
    "BudgetNotMet",
    "ColumnsLeftOut",
    "MuteError",
    "WeakResultWarning",
    "listed",
    "missing_extra",
    "shown",
    "visible",
    "warn_user",
    "warn_weak_result",
]


class MuteError(ValueError):
    """Input, file or setting that cannot be used; the message says what was given and what to do."""


class BudgetNotMet(MuteError):  # noqa: N818 - it is the outcome of a search, and reads as one
    """No setting keeps the leak budget; `best` has the best that was found, or is empty if nothing was tried."""

    def __init__(self, message: str, best: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.best = best or {}


class WeakResultWarning(UserWarning):
    """The call worked, but its result is weaker than it seems (few rows, constant columns, ...)."""


class ColumnsLeftOut(UserWarning):
    """Only some columns of a data frame were taken as the embedding; the message names them."""


def listed(items: Sequence[object], most: int = 20) -> str:
    """Items for a message: the first ones, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return (", ".join(map(shown, items[:most])) or "nothing") + more


# Control characters (not tab and newline), line separators, changes of writing direction, and halves of characters.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 60


def visible(text: str) -> str:
    r"""Text whose control characters are shown as escapes, so that it cannot drive a terminal; lines stay lines.

    Examples
    --------
    >>> visible("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


def shown(name: object, longest: int = _LONGEST) -> str:
    """A label or a column for a sentence: on one line, without control characters, and not longer than `longest`."""
    text = str(name)
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return visible(short.replace("\n", "\\n").replace("\t", "\\t"))


def missing_extra(package: str, extra: str, purpose: str) -> MuteError:
    """Build the error for an optional dependency that is not installed."""
    return MuteError(f'{purpose} needs {package}, which is not installed: pip install "mute-erasure[{extra}]"')


def warn_weak_result(message: str) -> None:
    """Warn with a `WeakResultWarning`."""
    warn_user(message, WeakResultWarning)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn with the user's line, outside this package, as the place."""
    frame, level = sys._getframe(1), 2
    # scikit-learn and contextlib wrap some calls, so their frames are skipped too.
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in (
        "mute",
        "sklearn",
        "contextlib",
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
