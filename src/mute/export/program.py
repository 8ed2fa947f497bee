"""What is exported: the map of a fitted eraser as a function of ``ops`` and its inputs (see `mute.flow.ops`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mute.errors import MuteError
from mute.estimators.conditional import Conditional
from mute.flow.routing import NetworkRouter
from mute.typing import Array, Label, Method, Ops, RowsLike, Value

__all__ = ["Program", "compare", "program_of"]


@dataclass(frozen=True)
class Program:
    """A map, ``run(ops, *inputs)``, with named inputs.

    The inputs are "X", rows of shape (n, D), and, if asked for, "concept" and "target": whole numbers of shape (n,),
    the places of the labels in `classes`.
    """

    inputs: tuple[str, ...]
    run: Callable[..., Value]
    n_features: int
    classes: list[Label]


def program_of(eraser: Method, counterfactual: bool, concept: str) -> Program:
    """The map that `to_torch` and `to_onnx` write down; their parameters."""
    if concept not in ("routed", "given"):
        raise MuteError(f'concept must be "routed" or "given", not {concept!r}')
    if not hasattr(eraser, "erase_with"):
        raise MuteError(f"a {type(eraser).__name__} cannot be exported; give an eraser")
    check_is_fitted(eraser)
    conditional = isinstance(eraser, Conditional)
    if counterfactual and not hasattr(eraser, "move_with"):
        raise MuteError(f"{type(eraser).__name__} makes no counterfactuals; leave counterfactual=True out")
    if concept == "given" and not conditional:
        raise MuteError(f'{type(eraser).__name__} does not use the class of a row; leave concept="given" out')
    if conditional and concept == "routed":
        if eraser.router_ is None:
            raise MuteError(
                'this eraser has no router; export it with concept="given", which makes the class of each row an input'
            )
        if not isinstance(eraser.router_, NetworkRouter):
            raise MuteError(
                f"a router of type {type(eraser.router_.classifier).__name__} cannot be exported; fit with "
                'router="mlp" or "logistic", or export with concept="given"'
            )

    def run(ops: Ops, x: Value, *labels: Value) -> Value:
        if not conditional:
            return eraser.move_with(ops, x, *labels) if counterfactual else eraser.erase_with(ops, x)
        given = iter(labels)
        k = next(given) if concept == "given" else ops.argmax(eraser.router_.run_with(ops, x, "router"))
        return eraser.move_with(ops, x, k, next(given)) if counterfactual else eraser.push_with(ops, x, k)

    inputs = ("X", *(["concept"] if concept == "given" else []), *(["target"] if counterfactual else []))
    classes = np.asarray(getattr(eraser, "classes_", [])).tolist()
    return Program(inputs, run, eraser.n_features_in_, classes)


def compare(
    eraser: Method, program: Program, run: Callable[[dict[str, Array]], Array], rows: RowsLike, most: float = 1e-3
) -> float:
    """The largest difference between an export, which `run` runs, and the eraser; an error above `most` in the mean."""
    X = np.asarray(rows, np.float32)
    classes = getattr(eraser, "classes_", np.array([None]))
    # Labels in turn, so that every class is met as source and as target.
    codes = {"concept": np.arange(len(X)) % len(classes), "target": np.arange(len(X)) // len(classes) % len(classes)}
    given = {name: codes[name] for name in program.inputs if name != "X"}
    labels = {"concept": classes[codes["concept"]]} if "concept" in given else {}
    moves = "target" in given
    ours = eraser.counterfactual(X, classes[codes["target"]], **labels) if moves else eraser.transform(X, **labels)
    gap = run({"X": X, **given}) - ours
    # In the mean over all entries: if a map is very steep, or two classes are as likely, rounding alone decides.
    if not np.sqrt((gap**2).mean()) <= most * np.sqrt((ours**2).mean()):
        raise MuteError(f"the export differs from the eraser by {np.abs(gap).max():.2g}; nothing was written")
    return float(np.abs(gap).max(initial=0.0))
