"""A callback that does something at the end of one layer of a fit, and counts the layers."""

from collections.abc import Callable


class AtLayer:
    """Calls `work` at the end of the layer of this number (None: never)."""

    def __init__(self, layer: int | None = None, work: Callable[[], object] = lambda: None) -> None:
        self.layer, self.work, self.layers = layer, work, 0

    def __call__(self, name: str, done: int, total: int) -> object:
        if name != "layer":
            return None
        self.layers += 1
        return self.work() if self.layers == self.layer else None


def press_ctrl_c() -> None:
    raise KeyboardInterrupt
