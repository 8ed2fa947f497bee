"""Many methods on the same rows: their names, their fits, and what is kept of those that are finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from mute.errors import MuteError
from mute.estimators.registry import METHODS, make, method_of
from mute.evaluation.rendering import deliver
from mute.typing import Array, Json, Method, Setting

__all__ = ["Progress", "fitted", "methods_of", "run_methods"]

# Called with what is being done, and the share of it that is done.
Progress = Callable[[str, float], None]


def methods_of(names: str | Sequence[str], *, with_task: bool) -> list[str]:
    """The methods of these names; "all" are all methods, those that learn from task labels only `with_task`."""
    if isinstance(names, str) and names == "all":
        return [name for name, method in METHODS.items() if with_task or not method.task]
    names = names.split(",") if isinstance(names, str) else list(names)
    if not names:
        raise MuteError('methods is an empty list; give "all" or names of methods')
    needy = [name for name in names if method_of(name).task and not with_task]
    if needy:
        raise MuteError(
            f"the method {needy[0]!r} learns from the labels of a task; "
            "give them (task= in Python, --task on the command line), or leave the method out"
        )
    for name in names:
        make(name)  # a preset that does not exist is an error here
    return list(dict.fromkeys(names))


def fitted(name: str, X: Array, z: Array, task: Array | None, seed: int, progress: Progress) -> Method:
    """The method of this name, fitted; `task` has labels for methods that learn from them."""
    eraser = make(name, random_state=seed)
    if hasattr(eraser, "set_callbacks"):
        eraser.set_callbacks(lambda what, done, total: progress(f"fit, {what} {done}", done / total))
    eraser.fit(X, z, **({"task": task} if method_of(name).task else {}))
    return eraser.set_callbacks() if hasattr(eraser, "set_callbacks") else eraser


def run_methods(
    names: Sequence[str],
    work: Callable[[str, Progress], Json],
    X: Array,
    labels: Sequence[Array | None],
    settings: tuple[Setting, ...],
    folder: str | Path | None,
    progress: Progress | None,
) -> tuple[dict[str, Json], dict[str, str]]:
    """What ``work(name, progress)`` makes of each method, and the errors of those that failed.

    Each result is kept in `folder` as soon as it is made. It is not made again for the same rows `X`, the same
    `labels` of the rows (concept, task, groups) and the same `settings`.
    """
    found: dict[str, Json] = {}
    failures: dict[str, str] = {}
    for i, name in enumerate(names):

        def step(what: str, share: float, i: int = i, name: str = name) -> None:
            if progress is not None:
                progress(f"{name}: {what}", (i + share) / len(names))

        kept = None
        if folder is not None:
            kept = Path(folder) / f"{name.replace(':', '-')}-{_fingerprint(name, X, labels, settings)}.json"
        if kept is not None and kept.exists():
            found[name] = json.loads(kept.read_text())
            continue
        step("fit", 0.0)
        try:
            made = work(name, step)
        except Exception as error:  # one method's failure must not lose the others
            failures[name] = f"{type(error).__name__}: {error}"
            continue
        found[name] = made
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            deliver(json.dumps(made), kept)
    return found, failures


def _fingerprint(name: str, X: Array, labels: Sequence[Array | None], settings: tuple[Setting, ...]) -> str:
    import mute
    from mute.estimators.base import digest_of_rows

    digest = hashlib.sha256(digest_of_rows(X).encode())
    known = [None if part is None else part.tolist() for part in labels]
    for part in (name, known, settings, mute.__version__):
        digest.update(repr(part).encode())
    return digest.hexdigest()[:12]
