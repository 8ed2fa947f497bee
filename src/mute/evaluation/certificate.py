"""The certificate: what any adversary at most reads from the cells of erased rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.adversaries.cells import Cells, learn_cells, rows_for_cells
from mute.errors import MuteError
from mute.evaluation.blocks import as_rows, blocks_of, gather, labels_of
from mute.evaluation.cell_bounds import Bound, best_bound
from mute.evaluation.certificate_wording import certificate_markdown, certificate_sentences
from mute.evaluation.rendering import deliver, plain
from mute.evaluation.rows import Subject, gather_unseen
from mute.rows.validation import LabelEncoder, check_length, label_array
from mute.typing import Json, Label, LabelsLike, Method, RowsLike

__all__ = ["Certificate", "PairBound", "certify", "certify_rows"]

_VERSION = 1
# The share of the rows that fixes the cells where no other rows are given.
_FIXING = 0.25
# Rows that are erased and counted at once.
_BLOCK = 8192


@dataclass(frozen=True)
class PairBound:
    """The bound for two classes alone, (1 + total variation) / 2, where guessing gives one half."""

    classes: tuple[Label, Label]
    bound: float
    estimate: float
    method: str


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """The outcome of `mute.certify`.

    Attributes
    ----------
    bound : float
        Balanced accuracy that no adversary exceeds, with this `confidence`. Never more than 1.
    estimate : float
        The balanced accuracy of the best rule on the counted rows themselves. It is too high on average.
    method : str
        The bound that was the least: "bounded differences", "L1" or "Clopper-Pearson".
    pairs : tuple of PairBound
        The same for each pair of classes. These bounds hold together with this `confidence`.
    smallest : float
        What so many rows in cells of these sizes would prove if the counted classes were exactly alike.
    confidence : float
    covers : str
        "cells": every adversary that sees the cell of an erased row and nothing else of it. "every adversary": the
        eraser publishes nothing but cells, so that no adversary sees more.
    classes : tuple
    counts : array of shape (K, m)
        Counted rows of each class in each cell.
    eraser : str
    random_state : int

    See Also
    --------
    mute.certify, mute.audit
    """

    bound: float
    estimate: float
    method: str
    pairs: tuple[PairBound, ...]
    smallest: float
    confidence: float
    covers: str
    classes: tuple[Label, ...]
    counts: NDArray[np.int64]
    eraser: str
    random_state: int

    @property
    def chance(self) -> float:
        """The balanced accuracy of guessing."""
        return 1 / len(self.classes)

    @property
    def leak(self) -> float:
        """The bound above chance."""
        return self.bound - self.chance

    @property
    def worst_pair(self) -> PairBound:
        """The pair of classes with the highest bound."""
        return max(self.pairs, key=lambda pair: pair.bound)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.counts.shape[1]

    @property
    def rows(self) -> tuple[int, ...]:
        """The counted rows of each class."""
        return tuple(self.counts.sum(axis=1).tolist())

    @property
    def summary(self) -> list[str]:
        """What is proved, and what it rests on: two sentences."""
        return certificate_sentences(self.to_dict())

    def verdict(self, max_leak: float) -> str:
        """Whether the leak is "within" a budget or "exceeds" it; "too few rows" where it had to exceed it."""
        if self.leak <= max_leak:
            return "within"
        return "exceeds" if self.smallest - self.chance <= max_leak else "too few rows"

    def to_dict(self) -> Json:
        """Plain values only."""
        import mute

        names = (
            "eraser", "covers", "confidence", "bound", "leak", "estimate", "method", "smallest", "worst_pair", "pairs",
            "cells", "classes", "rows", "counts", "random_state",
        )  # fmt: skip
        found = {name: plain(getattr(self, name)) for name in names}
        return {"version": _VERSION, "kind": "certificate", "mute": mute.__version__, **found}

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text, also written to `path` where given; with the counts, from which anybody can check the bound."""
        return deliver(json.dumps(self.to_dict(), indent=1), path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """As Markdown text, also written to `path` where given."""
        return deliver(certificate_markdown(self.to_dict()), path)

    def __str__(self) -> str:
        return " ".join(self.summary)

    def __repr__(self) -> str:
        return f"Certificate(bound={self.bound:.3f}, covers={self.covers!r}, confidence={self.confidence:g})"


def certify(
    eraser: Method,
    X: RowsLike,
    z: LabelsLike,
    *,
    cells: int = 32,
    confidence: float = 0.95,
    fit_rows: tuple[RowsLike, LabelsLike] | None = None,
    oracle: bool | None = None,
    random_state: int = 0,
) -> Certificate:
    r"""Bound what any adversary reads from erased rows, with a proof in place of a panel.

    Erased rows lie in cells that are fixed beforehand. If :math:`p_k(c)` is the share of class k in cell c, an
    adversary that sees cells has at most the balanced accuracy :math:`\frac1K \sum_c \max_k p_k(c)`. The certificate
    counts unseen rows and gives an upper confidence bound of this figure.

    Parameters
    ----------
    eraser : fitted eraser, or array of shape (n, D')
        Any object with a ``transform``; or the erased rows of `X`, made elsewhere. An eraser that publishes the centre
        of a row's cell in place of the row, and has these `Cells` as ``cells_``, gets a bound on every adversary.
    X : array of shape (n, D), data frame, Arrow table, what `mute.open_matrix` gives, or dask array
        Unseen rows. They are read twice, in blocks.
    z : array-like of shape (n,)
        Their concept.
    cells : int
        Number of cells. More cells show an adversary more and need more rows. Not used where the eraser publishes
        cells.
    confidence : float
        The bound is true for at least this share of all draws of the rows.
    fit_rows : (X_fit, z_fit), optional
        Rows that fix the cells, such as the training rows of the eraser. By default a random quarter of `X` fixes them
        and is not counted.
    oracle : bool, optional
        Erase with true labels. By default only if the eraser requires labels.
    random_state : int
        Seed of the cells and of the rows that fix them.

    Returns
    -------
    Certificate

    See Also
    --------
    mute.audit : What a panel of adversaries reads: a lower limit of the leak where this is an upper one.

    Notes
    -----
    *Limits.* The rows of a class must be independent draws from the law that the certificate is to speak of. Where the
    eraser publishes more than cells, an adversary that sees the rows themselves may read more than the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from mute import certify
    >>> from mute.rivals import LEACE
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat(["a", "b"], 10_000)
    >>> X = rng.normal(size=(20_000, 3)) + 3 * (z == "b")[:, None]
    >>> fit = rng.permutation(20_000) < 4000
    >>> certificate = certify(LEACE().fit(X[fit], z[fit]), X[~fit], z[~fit], cells=8)
    >>> certificate.covers, bool(0.5 < certificate.bound < 0.55)
    ('cells', True)
    """
    encoder, codes = LabelEncoder.fit(label_array(z, "z"))
    _check(encoder, cells, confidence)
    subject = Subject(eraser, encoder, oracle)
    X = as_rows(X, "X", columns=subject.columns)
    check_length(codes, X.shape[0], "z")
    published = getattr(subject.eraser, "cells_", None)
    known = published if isinstance(published, Cells) else None
    rng = np.random.default_rng(random_state)
    none = np.empty(0, np.int64)
    fixing = none if fit_rows is not None or known is not None else _rows_to_fix(codes, cells, rng)
    # Goes through all rows: what cannot be used, and training rows, are refused before any work.
    (drawn,) = gather_unseen(subject, X, [fixing])
    if subject.erased is not None:
        X = _erased_elsewhere(subject.erased, X, fit_rows)
        (drawn,), _ = gather(X, "the erased array", [fixing])
    if known is None:
        if fit_rows is None:
            learn = _erase(subject, drawn, codes[fixing])
        else:
            learn = _rows_that_fix(fit_rows, subject, X, encoder, cells, rng)
        known = learn_cells(learn, cells, random_state)
    counted = np.ones(len(codes), bool)
    counted[fixing] = False
    counts = np.zeros((len(encoder), len(known)), np.int64)
    for start, block in blocks_of(X, _BLOCK):
        mine = np.flatnonzero(counted[start : start + len(block)])
        z_block = codes[start + mine]
        if len(mine):
            Q = _erase(subject, block[mine], z_block)
            counts += _counts(known, Q, z_block, len(encoder), published is known)
    return _certificate(counts, encoder, published is known, confidence, subject.name, random_state)


def certify_rows(
    Q_fix: NDArray | None,
    Q: NDArray,
    z: LabelsLike,
    *,
    cells: int | Cells = 32,
    confidence: float = 0.95,
    name: str = "rows erased elsewhere",
    random_state: int = 0,
) -> Certificate:
    """The certificate of unseen rows `Q` that are erased already; `Q_fix`, other erased rows, fix the cells.

    Where `cells` are the `Cells` that an eraser publishes, `Q_fix` is None, and every row of `Q` must be the centre of
    its cell.
    """
    published = isinstance(cells, Cells)
    labels = label_array(z, "z")
    check_length(labels, len(Q), "z")
    encoder, codes = LabelEncoder.fit(labels)
    _check(encoder, len(cells) if isinstance(cells, Cells) else cells, confidence)
    if isinstance(cells, Cells):
        known = cells
    elif Q_fix is None:
        raise MuteError("the cells are not known; give other erased rows as Q_fix, to fix them")
    else:
        known = learn_cells(Q_fix, cells, random_state)
    counts = _counts(known, Q, codes, len(encoder), published)
    return _certificate(counts, encoder, published, confidence, name, random_state)


def _check(encoder: LabelEncoder, cells: int, confidence: float) -> None:
    if isinstance(cells, bool) or not isinstance(cells, int | np.integer) or cells < 1:
        raise MuteError(f"cells must be a whole number of at least 1, not {cells!r}; give a number such as 32")
    if len(encoder) < 2:
        raise MuteError(f"z has one class only ({encoder.classes[0]!r}); give rows of two classes or more")
    if not 0 < confidence < 1:
        raise MuteError(f"confidence must lie between 0 and 1, not {confidence!r}; give a share such as 0.95")


def _rows_to_fix(z: NDArray[np.int64], n_cells: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Random rows, a quarter of each class and no more than k-means uses; every class keeps rows to be counted."""
    share = min(_FIXING, rows_for_cells(n_cells) / len(z))
    parts = [rng.permutation(np.flatnonzero(z == k)) for k in range(int(z.max()) + 1)]
    rows = np.sort(np.concatenate([mine[: int(share * len(mine))] for mine in parts]))
    if len(rows) < n_cells:
        raise MuteError(
            f"a quarter of the {len(z)} rows, {len(rows)} row(s), cannot fix {n_cells} cells; give more rows, fit_rows "
            "or fewer cells"
        )
    return rows


def _erased_elsewhere(erased: RowsLike, X: RowsLike, fit_rows: tuple | None) -> RowsLike:
    if erased.shape[0] != X.shape[0]:
        raise MuteError(f"the erased rows have shape {erased.shape}, but there are {X.shape[0]} rows in X")
    if fit_rows is not None:
        raise MuteError(
            "fit_rows cannot be erased without the eraser; leave them out, and a quarter of the rows fixes the cells"
        )
    return erased


def _erase(subject: Subject, X: NDArray, z: NDArray[np.int64]) -> NDArray:
    """Erased rows; rows erased elsewhere are erased already."""
    return X if subject.erased is not None else subject.erase(X, z)


def _rows_that_fix(
    fit_rows: tuple, subject: Subject, X: RowsLike, encoder: LabelEncoder, n_cells: int, rng: np.random.Generator
) -> NDArray:
    """Erased rows to fix the cells, from rows that are not counted."""
    if not isinstance(fit_rows, tuple) or len(fit_rows) != 2:
        raise MuteError("fit_rows must be (X_fit, z_fit): rows that fix the cells, and their labels")
    X_fit = as_rows(fit_rows[0], "X_fit", columns=subject.columns)
    if X_fit.shape[1] != X.shape[1]:
        raise MuteError(f"X_fit has {X_fit.shape[1]} columns, X has {X.shape[1]}")
    z_fit = encoder.encode(labels_of(fit_rows[1], X_fit.shape[0], "z_fit"), "z_fit")
    same = X_fit.shape == X.shape
    places = np.sort(rng.choice(len(z_fit), min(len(z_fit), rows_for_cells(n_cells)), replace=False))
    (drawn,), digest = gather(X_fit, "X_fit", [places], digest=same)
    if same and digest == gather(X, "X", [], digest=True)[1]:
        raise MuteError(
            "fit_rows are the rows in X, and cells must be fixed without the counted rows; leave fit_rows out, and a "
            "quarter of X fixes the cells"
        )
    return subject.erase(drawn, z_fit[places])


def _counts(cells: Cells, Q: NDArray, z: NDArray[np.int64], n_classes: int, published: bool) -> NDArray[np.int64]:
    """Rows of each class in each cell, (K, m); rows of an eraser that publishes cells must be their centres."""
    codes = cells.of(Q)
    if published:
        _check_centres(cells, codes, Q)
    return np.bincount(z * len(cells) + codes, minlength=n_classes * len(cells)).reshape(n_classes, -1)


def _check_centres(cells: Cells, codes: NDArray[np.int64], Q: NDArray) -> None:
    """Refuse rows that differ from their centres in one bit: 0.0 and -0.0 are equal, but tell classes apart."""
    centres = cells.centres.astype(Q.dtype)[codes]
    other = (np.ascontiguousarray(Q).view(np.uint8) != centres.view(np.uint8)).any(axis=1)
    if other.any():
        raise MuteError(
            f"the eraser has cells_, but {int(other.sum())} of {len(Q)} rows that it published are not centres of "
            "these cells, and the bound would not hold for every adversary; fit the eraser again, or give the erased "
            "rows in its place for a bound on adversaries that see cells"
        )


def _certificate(
    counts: NDArray[np.int64], encoder: LabelEncoder, published: bool, confidence: float, name: str, random_state: int
) -> Certificate:
    delta = 1 - confidence
    whole, pairs = best_bound(counts, delta), list(combinations(range(len(encoder)), 2))
    # The errors of the pairs add up to delta, so that all their bounds hold together and the worst pair is among them.
    found = {pair: best_bound(counts[list(pair)], delta / len(pairs)) for pair in pairs}
    alike = np.outer(counts.sum(axis=1), counts.sum(axis=0) / counts.sum())
    return Certificate(
        bound=whole.value,
        estimate=whole.estimate,
        method=whole.method,
        pairs=tuple(_pair(encoder, pair, bound) for pair, bound in found.items()),
        smallest=best_bound(alike, delta).value,
        confidence=confidence,
        covers="every adversary" if published else "cells",
        classes=encoder.classes,
        counts=counts,
        eraser=name,
        random_state=random_state,
    )


def _pair(encoder: LabelEncoder, pair: tuple[int, int], bound: Bound) -> PairBound:
    first, second = (encoder.classes[k] for k in pair)
    return PairBound((first, second), bound.value, bound.estimate, bound.method)
