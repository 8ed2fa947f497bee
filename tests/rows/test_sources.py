"""Rows that come in blocks: the same eraser as from an array, and what it does to them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mute
from laws import draw
from mute import MUtE, MuteError, open_matrix
from mute.evaluation.audit import audit
from mute.rivals import LEACE, QLEACE, KRaM, OracleLEACE
from mute.rows import detect
from mute.rows import memory as memory_of
from mute.rows.chunks import CHUNK_ROWS
from mute.steering import LinearOT, MeanDifference
from same_models import assert_same

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")

D = 4


def rows_of(n_classes: int = 2, dtype: Any = np.float64, n: int = 2 * CHUNK_ROWS + 300) -> tuple[NDArray, NDArray]:
    X, z = draw("skew", n // n_classes, D, seed=0, n_classes=n_classes)
    order = np.random.default_rng(1).permutation(len(X))
    return X[order].astype(dtype), np.array(["a", "b", "c"])[z[order]]


X, Z = rows_of()
X32 = X.astype(np.float32)
CUTS = [1, 2, 700, 701, CHUNK_ROWS, 2 * CHUNK_ROWS + 1]


@pytest.fixture(scope="module")
def fitted() -> MUtE:
    return MUtE(3, router="logistic", random_state=0).fit(X, Z)


@pytest.fixture(scope="module")
def bare() -> MUtE:
    return MUtE(3, router=None, random_state=0).fit(X, Z)


def in_every_way(x: NDArray, z: NDArray, folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """Name, rows and labels of each way in which the same rows can come."""
    np.save(folder / "x.npy", x)
    (folder / "parts").mkdir()
    for i, part in enumerate(np.array_split(x, [10, 3000])):
        columns = {f"c{j}": part[:, j] for j in range(D)}
        pq.write_table(pa.table(columns), folder / "parts" / f"{i}.parquet", row_group_size=997)
    yield "npy", open_matrix(folder / "x.npy"), z
    yield "parquet", open_matrix(folder / "parts"), z
    yield "pairs", zip(np.split(x, CUTS), np.split(z, CUTS), strict=True), None
    yield "map", np.load(folder / "x.npy", mmap_mode="r"), z
    yield "odd blocks", iter(np.split(x, CUTS)), list(z)
    yield "Fortran", np.asfortranarray(x), z


@pytest.mark.parametrize("scratch", ["auto", "folder", None, "small"])
@pytest.mark.parametrize(
    ("layers", "n_classes", "dtype"),
    [(3, 2, np.float64), (3, 3, np.float32), ("auto", 2, np.float32), ("auto", 3, np.float64)],
)
def test_the_same_eraser_to_the_bit(
    layers: Any, n_classes: int, dtype: Any, scratch: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, z = rows_of(n_classes, dtype)
    settings = {"max_iterations": n_classes, "router": "logistic", "random_state": 0}
    expected = MUtE(layers, **settings, n_threads=1).fit(x, z)
    assert expected.fitted_on_["sha256_of_rows"] == mute.estimators.base.digest_of_rows(x)
    (tmp_path / "scratch").mkdir()
    if scratch == "small":  # "auto" on a machine with little memory
        monkeypatch.setattr(memory_of, "available_memory", lambda: x.nbytes)
    place = {"folder": tmp_path / "scratch", "small": "auto"}.get(scratch, scratch)
    for name, rows, labels in islice(in_every_way(x, z, tmp_path), 3 if layers == "auto" else None):
        eraser = MUtE(layers, scratch=place, **settings, n_threads=2).fit(rows, labels)
        try:
            assert_same(eraser.nameless(), expected)
        except AssertionError as error:
            raise AssertionError(f"from {name}: {error}") from error
        named = {"parquet": [f"c{j}" for j in range(D)]}.get(name, [])
        assert eraser.n_features_in_ == D and [*getattr(eraser, "feature_names_in_", ())] == named
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    "settings", [{"rotation": "ica"}, {"rotation": "random"}, {"marginal": "histogram"}, {"router": None}]
)
def test_other_settings(settings: dict[str, Any], tmp_path: Path) -> None:
    settings = {"router": "logistic", "random_state": 0, **settings}
    eraser = MUtE(3, scratch=tmp_path, **settings).fit(iter(np.split(X32, CUTS)), Z)
    assert_same(eraser, MUtE(3, **settings).fit(X32, Z))


@pytest.mark.parametrize(
    "method",
    [
        LEACE(),
        OracleLEACE(router="logistic", random_state=0),
        QLEACE(router="logistic", random_state=0),
        MeanDifference(router="logistic", random_state=0),
        LinearOT(router=None, random_state=0),
    ],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_methods_of_moments(method: Any, dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.base import clone

    x = X.astype(dtype)
    true_labels = {"concept": Z} if getattr(method, "router", 0) is None else {}
    expected = clone(method).fit(x, Z)
    # Moments of chunks are merged, those of an array are not: the same up to rounding.
    tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-9}
    monkeypatch.setattr(memory_of, "available_memory", lambda: x.nbytes)
    for name, rows, labels in in_every_way(x, Z, tmp_path):
        found = clone(method).fit(rows, labels)
        erased = found.nameless().transform(x, **true_labels)
        assert erased.dtype == dtype
        np.testing.assert_allclose(erased, expected.transform(x, **true_labels), **tolerance, err_msg=name)
        assert found.fitted_on_ == expected.fitted_on_


@pytest.fixture
def matrix(tmp_path: Path) -> Any:
    np.save(tmp_path / "x.npy", X)
    return open_matrix(tmp_path / "x.npy")


def calls(eraser: MUtE, rows: Any) -> dict[str, Any]:
    """What can be asked of rows; labels for each of them."""
    other = np.where(Z == "a", "b", "a")
    return {
        "transform": eraser.transform(rows()),
        "transform with labels": eraser.transform(rows(), concept=Z),
        "with a list of labels": eraser.transform(rows(), concept=Z.tolist()),
        "one target": eraser.counterfactual(rows(), "b"),
        "targets": eraser.counterfactual(rows(), other, concept=Z),
        "inverse": eraser.inverse_transform(rows(), concept=Z),
    }


def test_a_matrix_gives_a_matrix(matrix: Any, fitted: MUtE) -> None:
    expected = calls(fitted, lambda: X)
    for name, found in calls(fitted, lambda: matrix).items():
        assert found.shape == X.shape and found.dtype == X.dtype
        for size in (5, CHUNK_ROWS, 10**6):
            np.testing.assert_array_equal(np.concatenate(list(found.row_blocks(size))), expected[name], err_msg=name)
        np.testing.assert_array_equal(found.to_numpy(), expected[name])


def test_an_iterator_gives_an_iterator(fitted: MUtE) -> None:
    expected = calls(fitted, lambda: X)
    for name, found in calls(fitted, lambda: iter(np.split(X, CUTS))).items():
        assert isinstance(found, Iterator)
        parts = list(found)
        assert [len(p) for p in parts] == [len(p) for p in np.split(X, CUTS)]
        np.testing.assert_array_equal(np.concatenate(parts), expected[name], err_msg=name)


def test_an_iterator_is_read_as_it_is_asked(fitted: MUtE) -> None:
    seen = []

    def rows() -> Iterator[NDArray]:
        for i, part in enumerate(np.array_split(X, 5)):
            seen.append(i)
            yield part

    erased = fitted.transform(rows())
    assert seen == []
    next(erased)
    assert seen == [0]


def test_what_was_made_of_a_matrix_can_be_fitted_on(matrix: Any, fitted: MUtE) -> None:
    assert_same(
        MUtE(2, router=None, random_state=0).fit(fitted.transform(matrix), Z),
        MUtE(2, router=None, random_state=0).fit(fitted.transform(X), Z),
    )


def test_erased_rows_of_leace(matrix: Any) -> None:
    eraser = LEACE().fit(X, Z)
    np.testing.assert_allclose(eraser.transform(matrix).to_numpy(), eraser.transform(X), atol=1e-13)


@pytest.mark.parametrize("count", [1, len(X) - 1, len(X) + 1])
def test_a_wrong_number_of_labels(count: int, matrix: Any, bare: MUtE) -> None:
    wrong = np.resize(Z, count)
    with pytest.raises(MuteError, match=f"concept has {count} labels for {len(X)} rows"):
        bare.transform(matrix, concept=wrong)
    with pytest.raises(MuteError, match=r"concept has \d+ labels for \d+ rows"):
        list(bare.transform(iter(np.split(X, CUTS)), concept=wrong))
    with pytest.raises(MuteError, match=f"target has {count} labels for {len(X)} rows"):
        bare.counterfactual(matrix, wrong, concept=Z)
    for rows in (matrix, iter(np.split(X, CUTS))):
        with pytest.raises(MuteError, match=f"y has {count} labels for {len(X)} rows"):
            MUtE(2, router=None, scratch=None).fit(rows, wrong)


def test_errors_name_the_rows(matrix: Any, bare: MUtE, fitted: MUtE) -> None:
    labels = Z.astype(object)
    labels[1000] = "x"
    for rows in (matrix.row_blocks(600), blocks_of(600)):
        with pytest.raises(MuteError, match="rows 600 to 1199: concept has the label 'x'"):
            list(bare.transform(rows, concept=labels))
    spoiled = X.copy()
    spoiled[1300, 1] = np.nan
    with pytest.raises(MuteError, match=r"rows 1200 to 1799: X contains NaN in 1 row \(row 100\)"):
        list(fitted.transform(iter(np.split(spoiled, range(600, len(X), 600)))))
    with pytest.raises(MuteError, match=r"rows 0 to 599: .*needs one label for each row"):
        list(bare.transform(blocks_of(600)))


def blocks_of(size: int) -> Iterator[NDArray]:
    return iter(np.split(X, range(size, len(X), size)))


def spoiled(row: int, value: float) -> NDArray:
    x = X.copy()
    x[row, 2] = value
    return x


WRONG: dict[str, tuple[Any, Any, str]] = {
    "NaN": (lambda: np.split(spoiled(2500, np.nan), CUTS), Z, r"X contains NaN in 1 row \(row 2500\)"),
    "infinity": (lambda: np.split(spoiled(3, -np.inf), CUTS), Z, r"X contains infinity in 1 row \(row 3\)"),
    "too large": (lambda: np.split(spoiled(4000, 1e200), CUTS), Z, r"numbers beyond 1e\+154 in 1 row \(row 4000\)"),
    "another width": (
        lambda: [X[:9], X[9:, :3]],
        Z,
        r"block 1 of X \(from row 9 on\) has 3 columns and the first 4; give",
    ),
    "another precision": (lambda: [X32[:9], X[9:]], Z, "block 1 of X is float64 and the first float32; give"),
    "no block": (list, Z, "iterator that gives no block"),
    "no rows": (lambda: [X[:0], X[:0]], Z[:0], "blocks have 0 rows and 4 columns"),
    "no columns": (lambda: [X[:, :0]], Z, "0 columns"),
    "a vector": (lambda: [X[0]], Z, r"block 0 of X has shape \(4,\) .*; give a matrix of numbers"),
    "text": (lambda: [X, X.astype(str)], Z, "block 1 of X has shape .* and dtype <U.*; give a matrix of numbers"),
    "a triple": (lambda: [(X, Z, Z)], None, "block 0 of X is a tuple of 3"),
    "an empty tuple": (lambda: [()], None, "block 0 of X is a tuple of 0"),
    "labels twice": (lambda: [(X, Z)], Z, "give them once"),
    "no labels": (lambda: [X], None, "labels are missing"),
    "labels of one block only": (lambda: [(X[:9], Z[:9]), X[9:]], None, f"X has 9 labels for {len(X)} rows"),
    "labels of another number": (lambda: [(X[:9], Z[:8])], None, "y has 8 labels for 9 rows"),
    "a missing label": (lambda: [(X, [None, *Z[1:]])], None, "missing or infinite labels"),
    "one class": (lambda: [(X, ["a"] * len(X))], None, "only one class"),
    "a lonely row": (lambda: [X], ["c", *Z[1:]], r"1 of \d+ classes have one row only"),
}


@pytest.mark.parametrize("scratch", ["auto", None])
@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_fitted_is_refused_and_the_eraser_stays(what: str, scratch: str | None, tmp_path: Path) -> None:
    rows, labels, message = WRONG[what]
    eraser = MUtE(2, router=None, random_state=0, scratch=scratch).fit(X[:300], Z[:300])
    before, erased = dict(eraser.__dict__), eraser.transform(X, concept=Z)
    with pytest.raises(MuteError, match=message):
        eraser.fit(iter(rows()), labels)
    assert eraser.__dict__.keys() == before.keys()
    np.testing.assert_array_equal(eraser.transform(X, concept=Z), erased)


def test_nan_in_a_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", spoiled(2500, np.nan))
    for memory in (X.nbytes, 10**12):
        monkeypatch.setattr(memory_of, "available_memory", lambda memory=memory: memory)
        with pytest.raises(MuteError, match=r"X contains NaN in 1 row \(row 2500\)"):
            MUtE(2).fit(open_matrix(tmp_path / "x.npy"), Z)


def test_methods_that_need_all_rows(matrix: Any) -> None:
    with pytest.raises(MuteError, match=r"KRaM needs all rows in memory; give an array"):
        KRaM().fit(iter([X]), Z)
    with pytest.raises(MuteError, match=r"all rows in memory.*discrete concept"):
        LEACE(concept_type="continuous").fit(iter([X]), np.arange(len(X)))


def test_an_iterator_is_not_fitted_and_erased_at_once() -> None:
    for method in (MUtE(2), LEACE()):
        with pytest.raises(MuteError, match="iterator, which can be read once"):
            method.fit_transform(iter([X]), Z)


def test_pairs_are_for_fits_only(fitted: MUtE) -> None:
    with pytest.raises(MuteError, match="blocks of rows alone"):
        list(fitted.transform(iter([(X, Z)])))


def test_an_audit_of_rows_in_blocks(tmp_path: Path, fitted: MUtE) -> None:
    np.save(tmp_path / "x.npy", X32)
    settings = {"adversaries": ["logistic"], "most_rows": 400, "random_state": 0}
    expected = audit(fitted, X32, Z, **settings).to_dict()
    for rows in (open_matrix(tmp_path / "x.npy"), iter(np.split(X32, CUTS))):
        found = audit(fitted, rows, Z, **settings).to_dict()
        assert found["privacy"] == expected["privacy"]
    with pytest.raises(MuteError, match=r"has 2000 rows where 4396 were announced"):
        audit(fitted, iter([X32[:2000]]), Z, **settings)
    with pytest.raises(MuteError, match="gives no block"):
        audit(fitted, iter([]), Z, **settings)


def test_what_comes_in_blocks() -> None:
    assert detect.come_in_blocks(iter([])) and not detect.come_in_blocks([X]) and not detect.come_in_blocks(X)


def test_an_iterator_of_large_blocks_is_known_as_the_rows_of_the_fit(fitted: MUtE) -> None:
    with pytest.raises(MuteError, match="the very rows that the eraser was fitted on"):
        audit(fitted, iter([X[:4001], X[4001:]]), Z, adversaries=["logistic"])


def test_no_blocks_at_all_are_refused(fitted: MUtE) -> None:
    for call in (fitted.route, fitted.flags):
        with pytest.raises(MuteError, match="X gives no blocks of rows; give at least one block"):
            call(iter([]))
