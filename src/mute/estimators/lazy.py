"""Names of a package that are imported on first use, so that importing the package is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_exports"]


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package; `homes` maps each public name to its module.

    For type checkers and editors, the package imports the same names under ``TYPE_CHECKING``.
    """

    def get(name: str) -> Any:  # Any: whatever the name means
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})
