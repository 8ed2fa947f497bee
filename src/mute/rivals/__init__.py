"""The erasers that MUtE is compared with, each written from its mathematics, on one interface."""

from typing import Any

from mute.estimators.registry import HOMES, class_of

__all__ = sorted(name for name, home in HOMES.items() if home.startswith("mute.rivals."))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mute.rivals' has no attribute {name!r}")
    return class_of(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
