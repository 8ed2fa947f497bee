"""UCI Adult: people of the 1994 census, with what they earn."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.datasets.dataset import Dataset
from mute.errors import MuteError

__all__ = ["adult_dataset"]

_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_CATEGORIES = ("workclass", "education", "marital-status", "occupation", "relationship", "native-country")


def adult_dataset(folder: Path, concept: str) -> Dataset:
    """Build the data set with the concept ``"sex"`` or ``"race"`` from ``adult.data`` and ``adult.test``.

    `X` has six numbers, standardised by the rows to fit, then a column for each value of six categories. `y` is
    ``"<=50K"`` or ``">50K"``. Sex and race are no columns of `X`; ``relationship`` is one, and its values Husband and
    Wife reveal sex. The published test file is the test part; a quarter of the other file is there to validate, drawn
    by concept and income.
    """
    from sklearn.model_selection import train_test_split

    seen, test = _read(folder / "adult.data"), _read(folder / "adult.test")
    table = np.array(seen + test)
    column = {name: table[:, i] for i, name in enumerate(_COLUMNS)}
    z, y = column[concept], np.char.rstrip(column["income"], ".")
    split = np.array(["fit"] * len(seen) + ["test"] * len(test), dtype="<U8")
    strata = np.char.add(np.char.add(z, "/"), y)[: len(seen)]
    _, validate = train_test_split(np.arange(len(seen)), test_size=0.25, random_state=0, stratify=strata)
    split[validate] = "validate"

    try:
        numbers = np.stack([column[name] for name in _NUMBERS], axis=1).astype(np.float64)
    except ValueError as error:
        raise MuteError(f"{folder / 'adult.data'} has text in place of a number: {error}; fetch it again") from error
    fit = numbers[split == "fit"]
    parts: list[NDArray[np.float64]] = [(numbers - fit.mean(axis=0)) / fit.std(axis=0)]
    features = list(_NUMBERS)
    for name in _CATEGORIES:
        values = np.unique(column[name])
        parts.append((column[name][:, None] == values).astype(np.float64))
        features += [f"{name}={value}" for value in values]
    names = [f"adult.data {i}" for i in range(len(seen))] + [f"adult.test {i}" for i in range(len(test))]
    columns = {"z": z, "y": y, "names": np.array(names), "split": split}
    return Dataset(X=np.concatenate(parts, axis=1), **columns, provenance={"features": features})


def _read(path: Path) -> list[list[str]]:
    """Rows without missing values; the first line of the test file is a comment."""
    rows = []
    for line in path.read_text(encoding="ascii").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if line.startswith("|") or not line.strip() or "?" in cells:
            continue
        if len(cells) != len(_COLUMNS):
            raise MuteError(f"{path} has a row of {len(cells)} cells, expected {len(_COLUMNS)}: {line!r}")
        rows.append(cells)
    return rows
