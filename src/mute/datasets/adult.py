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
    """Build the data set from ``adult.data`` and ``adult.test``.

    Parameters
    ----------
    folder : path
        The folder of the two files.
    concept : {"sex", "race"}

    Returns
    -------
    Dataset
        `X`: six numbers, standardised by the rows to fit, then a column for each value of six categories. `z` is the
        concept and `y` is ``"<=50K"`` or ``">50K"``. Sex and race are no columns of `X`; ``relationship`` is one, and
        it gives sex away by its values Husband and Wife. The published test file is the test part; a quarter of the
        other is there to validate, drawn by concept and income.
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
        raise MuteError(f"{folder / 'adult.data'} has a number that is none: {error}") from error
    fit = numbers[split == "fit"]
    parts: list[NDArray[np.float64]] = [(numbers - fit.mean(axis=0)) / fit.std(axis=0)]
    features = list(_NUMBERS)
    for name in _CATEGORIES:
        values = np.unique(column[name])
        parts.append((column[name][:, None] == values).astype(np.float64))
        features += [f"{name}={value}" for value in values]
    rows = [f"adult.data {i}" for i in range(len(seen))] + [f"adult.test {i}" for i in range(len(test))]
    return Dataset(
        X=np.concatenate(parts, axis=1),
        z=z,
        y=y,
        names=np.array(rows),
        split=split,
        provenance={
            "title": f"UCI Adult, concept {concept}, task income",
            "attribution": "Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.",
            "method": (
                "Rows with missing values are dropped. Numbers are standardised by the rows to fit; categories are one "
                "column for each value. Sex and race are left out; relationship (husband, wife) is kept, and leaks sex."
            ),
            "features": features,
        },
    )


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
