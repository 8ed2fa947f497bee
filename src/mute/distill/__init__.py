"""Fast copies of an eraser: `MLPSurrogate(eraser).fit(X)`."""

from typing import Any

from mute.estimators.registry import HOMES, class_of

__all__ = sorted(["LinearSurrogate", *(name for name, home in HOMES.items() if home.startswith("mute.distill."))])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mute.distill' has no attribute {name!r}")
    return class_of(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
