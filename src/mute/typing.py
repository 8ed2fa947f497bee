"""Names for the types of arguments and results, each with the reason where a type checker is shown `Any`."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # so that the command line can use these names before numpy is loaded
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Array",
    "Classifier",
    "Constraints",
    "Foreign",
    "Json",
    "JsonValue",
    "Label",
    "LabelsLike",
    "Method",
    "Ops",
    "RowsLike",
    "Seed",
    "Setting",
    "Value",
]

# Of any precision or kind: the same code runs in float32 and float64, on codes and on labels.
Array: TypeAlias = "NDArray[Any]"

# What the door takes as rows: an array, data frame or Arrow table, a tensor, a matrix on disk, an iterator of blocks, a
# dask collection. Several of these belong to packages that may not be installed.
RowsLike: TypeAlias = Any

# What the door takes as labels: any sequence, series, column or tensor of hashable values, or one value for each block.
LabelsLike: TypeAlias = Any

# One label, as the user gave it: any hashable value, or a numpy scalar.
Label: TypeAlias = Any

# As in scikit-learn.
Seed: TypeAlias = "int | np.random.RandomState | np.random.Generator | None"

# What `Ops` computes with: an array, a tensor, or a node of a graph that is being built.
Value: TypeAlias = Any

# The operations of `mute.flow.ops`: by numpy, by torch, or recorded for an export. They share names, not types.
Ops: TypeAlias = Any

# An eraser or steering method: one of ours, or any object with the same methods.
Method: TypeAlias = Any

# A scikit-learn classifier or regressor; scikit-learn has no types.
Classifier: TypeAlias = Any

# An object of a package that is imported late and may not be installed, so its class cannot be named here.
Foreign: TypeAlias = Any

# The value of a setting before it is checked.
Setting: TypeAlias = Any

# What a JSON file or header holds before it is checked.
JsonValue: TypeAlias = Any
Json: TypeAlias = dict[str, JsonValue]

# Declared constraints of settings, in scikit-learn's form.
Constraints: TypeAlias = dict[str, list[Any]]
