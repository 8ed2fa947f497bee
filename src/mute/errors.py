"""The one exception that says the user can put something right."""

__all__ = ["MuteError", "WeakResultWarning", "missing_extra"]


class MuteError(ValueError):
    """Input, file or setting that cannot be used; the message says what was given and what to do."""


class WeakResultWarning(UserWarning):
    """The call worked, but its result is weaker than it looks (few rows, constant columns, ...)."""


def missing_extra(package: str, extra: str, purpose: str) -> MuteError:
    """Build the error for an optional dependency that is not installed."""
    return MuteError(f'{purpose} needs {package}, which is not installed: pip install "mute-erasure[{extra}]"')
