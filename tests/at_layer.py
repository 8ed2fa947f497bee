"""A callback that does something at the end of one layer of a fit, and counts the layers."""

from collections.abc import Callable
from typing import Any


class AtLayer:
    """Calls `work` at the end of the layer of this number (None: never)."""

    def __init__(self, layer: int | None = None, work: Callable[[], None] = lambda: None) -> None:
        self.layer, self.work, self.layers = layer, work, 0

    def setup(self, *_: Any, **__: Any) -> None: ...

    def teardown(self, *_: Any, **__: Any) -> None: ...

    def on_fit_task_begin(self, *_: Any, **__: Any) -> None: ...

    def on_fit_task_end(self, estimator: Any, context: Any, **_: Any) -> None:
        if context.task_name == "layer":
            self.layers += 1
            if self.layers == self.layer:
                self.work()


def press_ctrl_c() -> None:
    raise KeyboardInterrupt
