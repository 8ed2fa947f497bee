"""Bad input: one exception type, whose message quotes what was given and says what to do."""

import os
import re
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from mute import RBIG, Histogram, MUtE, MuteError, Quantile, WeakResultWarning

D, N = 3, 200
Z = np.repeat(["female", "male"], N // 2)
X = np.random.default_rng(0).standard_normal((N, D)) + (Z == "male")[:, None]


@pytest.fixture(scope="module")
def eraser() -> MUtE:
    return MUtE(2, router="logistic", diagnostics=False, random_state=0).fit(X, Z)


@pytest.fixture(scope="module")
def density() -> RBIG:
    return RBIG(2, random_state=0).fit(X)


def refusal(call: Any, message: str = "") -> MuteError:
    with pytest.raises(MuteError, match=rf"(?s){message}") as caught:
        call()
    return caught.value


# --- rows ---------------------------------------------------------------------------------------------------------

CALLS: dict[str, Any] = {
    "MUtE.fit": lambda eraser, density, x: MUtE(2, router=None).fit(x, np.resize(Z, _length(x))),
    "MUtE.transform": lambda eraser, density, x: eraser.transform(x),
    "MUtE.transform*": lambda eraser, density, x: eraser.transform(x, concept=np.resize(Z, _length(x))),
    "MUtE.inverse_transform": lambda eraser, density, x: eraser.inverse_transform(x, concept=np.resize(Z, _length(x))),
    "MUtE.counterfactual": lambda eraser, density, x: eraser.counterfactual(x, "male"),
    "MUtE.route": lambda eraser, density, x: eraser.route(x),
    "MUtE.flags": lambda eraser, density, x: eraser.flags(x),
    "RBIG.fit": lambda eraser, density, x: RBIG(2).fit(x),
    "RBIG.transform": lambda eraser, density, x: density.transform(x),
    "RBIG.inverse_transform": lambda eraser, density, x: density.inverse_transform(x),
    "RBIG.score_samples": lambda eraser, density, x: density.score_samples(x),
}


def _length(x: Any) -> int:
    return x.shape[0] if hasattr(x, "shape") and x.shape else len(x) if hasattr(x, "__len__") else 1


def spoilt(value: Any, *rows: int, n: int = N) -> np.ndarray:
    x = np.resize(X, (n, D))
    x[list(rows), np.arange(len(rows)) % D] = value
    return x


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "NaN": (spoilt(np.nan, 3), r"contains NaN in 1 row \(row 3\); remove or fill these rows"),
    "inf": (spoilt(-np.inf, 1, 7), r"contains infinity in 2 rows \(rows 1, 7\); remove or fill"),
    "NaN and infinity": (spoilt([np.nan, np.inf], 2, 6), r"contains NaN and infinity in 2 rows \(rows 2, 6\)"),
    "float32 inf": (spoilt(np.inf, 5).astype(np.float32), r"in 1 row \(row 5\)"),
    "both infinities": (spoilt([np.inf, -np.inf], 0, 1), r"in 2 rows \(rows 0, 1\)"),
    "NaN in many rows": (spoilt(np.nan, *range(10, 30)), r"in 20 rows \(rows 10, 11, 12, 13, 14 and 15 more\)"),
    "NaN far down": (spoilt(np.nan, 2, 70_000, n=70_001), r"in 2 rows \(rows 2, 70000\)"),
    "None in an object array": (np.where(spoilt(9, 4) == 9, None, X), r"NaN in 1 row \(row 4\)"),
    "no rows": (X[:0], r"0 sample\(s\).*minimum of 1"),
    "no columns": (X[:, :0], r"0 feature\(s\).*minimum of 1"),
    "one-dimensional": (X[:, 0], r"Expected 2D array, got 1D.*[Rr]eshape"),
    "three-dimensional": (X[None], r"with dim 3"),
    "a scalar": (3.0, r"Expected 2D array, got scalar"),
    "nothing": (None, r"Expected 2D array|None"),
    "sparse": (sparse.csr_matrix(X), r"is a sparse csr_matrix; give a dense array, for example .*toarray"),
    "sparse array": (sparse.coo_array(X), r"is a sparse coo_array; give a dense array"),
    "text": (X.astype(str).astype(object) + "!", r"could not convert string to float"),
    "text dtype": (np.full((N, D), "a"), r"could not convert string to float"),
    "objects": (np.full((N, D), object()), r"cannot be read as an array of numbers|cannot be used"),
    "ragged": ([[1.0, 2.0, 3.0]] * (N - 1) + [[1.0, 2.0]], r"inhomogeneous|sequence"),
    "complex": (X + 1j, r"[Cc]omplex"),
    "a frame of text": (
        pd.DataFrame({"a": ["x"] * N, "b": 1.0, "c": 2.0}),
        r"no column that is recognised .* b, c; give|could not convert string to float",
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", BAD_ROWS)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_rows(eraser: MUtE, density: RBIG, call: str, kind: str) -> None:
    bad, message = BAD_ROWS[kind]
    name = "Q" if "inverse" in call else "X"
    assert str(refusal(lambda: CALLS[call](eraser, density, bad), message)).startswith(f"{name} ")


@pytest.mark.parametrize("call", [call for call in CALLS if not call.endswith("fit")])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_wrong_width(eraser: MUtE, density: RBIG, call: str, width: int) -> None:
    wide = np.resize(X, (N, width))
    message = f"has {width} features, but {call.split('.')[0]} is expecting {D} features"
    refusal(lambda: CALLS[call](eraser, density, wide), message)


def test_other_columns() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for model in (RBIG(1).fit(frame), MUtE(1, router=None).fit(frame, Z)):
        options = {} if isinstance(model, RBIG) else {"concept": Z}
        expected = model.transform(frame, **options)
        np.testing.assert_array_equal(model.transform(frame[["b", "a", "c"]], **options), expected)
        np.testing.assert_array_equal(model.transform(frame.assign(id=1)[["id", "c", "b", "a"]], **options), expected)
        renamed = frame.rename(columns={"a": "z"})
        refusal(lambda m=model, o=options, f=renamed: m.transform(f, **o), "X has no column 'a', which the model was")


def test_one_row_is_no_law() -> None:
    refusal(lambda: RBIG(2).fit(X[:1]), "n_samples = 1; give at least two rows")


def test_half_precision_and_whole_numbers_are_numbers(eraser: MUtE) -> None:
    """Not everything unusual is bad."""
    whole = np.round(X).astype(int)
    assert_array_equal(eraser.transform(whole, concept=Z), eraser.transform(np.round(X), concept=Z))
    half = X.astype(np.float16)
    assert_array_equal(eraser.transform(half, concept=Z), eraser.transform(half.astype(np.float32), concept=Z))
    assert_array_equal(eraser.transform(X.tolist(), concept=Z), eraser.transform(X, concept=Z))
    assert_array_equal(eraser.transform(X.astype(object), concept=Z), eraser.transform(X, concept=Z))


# In a process of its own, because compiled loops that read past their tables end it; see test_io_fuzz.py.
_LARGE = """
import sys, warnings
import numpy as np
from mute import MUtE, MuteError
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
z = np.repeat([0, 1], 100)
for dtype in (np.float32, np.float64):
    x = (rng.standard_normal((200, 3)) + z[:, None]).astype(dtype)
    model = MUtE(10, router="logistic", diagnostics=False, random_state=0).fit(x, z)
    quiet = model.transform(x, concept=z)
    top = np.finfo(dtype).max
    for row in ([top, -top, top], [top, top, top], [0, 0, -top], [top / 4, -top / 2, 0]):
        large = x.copy()
        large[7] = row
        try:
            q = model.transform(large, concept=z)
            assert np.array_equal(np.delete(q, 7, 0), np.delete(quiet, 7, 0)), "a row has touched another"
            model.transform(large), model.flags(large), model.counterfactual(large, 1)
            model.inverse_transform(large, concept=z)
        except MuteError:
            pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="MALLOC_PERTURB_ is of the GNU C library")
def test_the_largest_numbers_do_not_crash() -> None:
    """They may be refused, and may overflow, but must not end the process or touch other rows."""
    env = {**os.environ, "MALLOC_PERTURB_": "165"}
    done = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"


# --- labels -------------------------------------------------------------------------------------------------------

LABELLED: dict[str, tuple[str, Any]] = {
    "fit": ("y", lambda eraser, z: MUtE(2, router=None).fit(X, z)),
    "fit concept": ("concept", lambda eraser, z: MUtE(2, router=None).fit(X, np.zeros(N), concept=z)),
    "transform": ("concept", lambda eraser, z: eraser.transform(X, concept=z)),
    "inverse": ("concept", lambda eraser, z: eraser.inverse_transform(X, concept=z)),
    "counterfactual": ("concept", lambda eraser, z: eraser.counterfactual(X, "male", concept=z)),
    "target": ("target", lambda eraser, z: eraser.counterfactual(X, z)),
    "flags": ("concept", lambda eraser, z: eraser.flags(X, concept=z)),
    "diagnose": ("concept", lambda eraser, z: eraser.diagnose(X, z)),
}


def with_hole(hole: Any, dtype: Any = object) -> Any:
    z = Z.astype(object)
    z[[3, 8]] = [hole, hole]
    return pd.array(z, dtype=dtype) if isinstance(dtype, str) else z


BAD_LABELS: dict[str, tuple[Any, str]] = {
    "too few": (Z[:5], r"{name} has 5 labels for 200 rows; give one label for each row"),
    "too many": ([*Z, "male"], r"{name} has 201 labels for 200 rows; give one"),
    "none at all": ([], r"{name} has 0 labels for 200 rows"),
    "None": (with_hole(None), r"{name} contains missing .* in 2 row\(s\), first in row 3; remove these rows"),
    "NaN": (with_hole(np.nan), r"{name} contains missing .* in 2 row\(s\), first in row 3; remove"),
    "NaN of float32": (with_hole(np.float32("nan")), r"{name} contains missing .* in 2 row\(s\), first in row 3"),
    "infinite": (with_hole(np.inf), r"{name} contains missing or infinite labels"),
    "NA of pandas": (with_hole(pd.NA, "string"), r"{name} contains missing .* in 2 row\(s\), first in row 3"),
    "NA in a series": (pd.Series(with_hole(pd.NA)), r"{name} contains missing .* in 2 row\(s\), first in row 3"),
    "NaT": (with_hole(pd.NaT), r"{name} contains missing .* in 2 row\(s\), first in row 3"),
    "two columns": (np.stack([Z, Z], axis=1), r"{name} must be one-dimensional, not of shape \(200, 2\)"),
    "a frame": (pd.DataFrame({"a": Z, "b": Z}), r"{name} must be one-dimensional, not of shape \(200, 2\)"),
}


@pytest.mark.parametrize("call", LABELLED)
@pytest.mark.parametrize("kind", BAD_LABELS)
def test_labels(eraser: MUtE, call: str, kind: str) -> None:
    name, run = LABELLED[call]
    labels, message = BAD_LABELS[kind]
    refusal(lambda: run(eraser, labels), message.format(name=name))


@pytest.mark.parametrize("call", [call for call in LABELLED if call != "target"])
@pytest.mark.parametrize("value", ["male", 3, 2.5, b"male"])
def test_one_label_for_all_rows(eraser: MUtE, call: str, value: Any) -> None:
    name, run = LABELLED[call]
    message = f"{name} must hold one label for each row, not the single value {value!r}"
    refusal(lambda: run(eraser, value), re.escape(message))


def test_no_labels(eraser: MUtE) -> None:
    refusal(lambda: MUtE(2).fit(X), r"labels are missing: call fit\(X, z\), or fit\(X, y, concept=z\)")
    refusal(lambda: eraser.inverse_transform(X), r"inverse_transform needs concept=, one label for each row")
    refusal(lambda: eraser.diagnose(X, None), r"concept is missing: give one label for each row")
    bare = eraser.without_router()
    for call in (bare.transform, bare.route, bare.flags, lambda x: bare.counterfactual(x, "male")):
        refusal(
            lambda c=call: c(X),
            r"no router, so it needs one label for each row: concept= in Python, --concept .*router=\"mlp\"",
        )
    assert_array_equal(bare.transform(X, concept=Z), eraser.transform(X, concept=Z))


@pytest.mark.parametrize("call", [call for call in LABELLED if "fit" not in call])
@pytest.mark.parametrize(
    ("label", "hint"), [("femal", r" \(did you mean 'female'\?\)"), ("Male", r" \(did you mean 'male'\?\)"), (7, "")]
)
def test_unseen_label(eraser: MUtE, call: str, label: Any, hint: str) -> None:
    name, run = LABELLED[call]
    labels = Z.astype(object)
    labels[4] = label
    refusal(
        lambda: run(eraser, labels),
        rf"{name} has the label {label!r}, which was not seen in fit{hint}; known labels: 'female', 'male'",
    )


@pytest.mark.parametrize("target", ["femal", 7, 2.5, None, True])
def test_unseen_target_for_all_rows(eraser: MUtE, target: Any) -> None:
    hint = r" \(did you mean 'female'\?\)" if target == "femal" else ""
    refusal(
        lambda: eraser.counterfactual(X, target),
        rf"target has the label {target!r}, which was not seen in fit{hint}; known labels: 'female', 'male'",
    )


def test_unseen_label_among_many() -> None:
    z = np.repeat(np.arange(30), 2)
    with pytest.warns(WeakResultWarning):
        model = MUtE(1, router=None, diagnostics=False).fit(np.resize(X, (60, D)), z)
    message = str(refusal(lambda: model.counterfactual(X, 31, concept=np.zeros(N, int)), "not seen in fit"))
    assert message.endswith("18, 19 and 10 more")


@pytest.mark.parametrize("labels", [[["a"], ["b"]] * (N // 2), [{"a"}, {"b"}] * (N // 2), [{}, {"b": 1}] * (N // 2)])
def test_unhashable_labels(eraser: MUtE, labels: list[Any]) -> None:
    refusal(lambda: MUtE(2).fit(X, labels), r"labels must be hashable \(text, numbers, tuples\)")
    refusal(lambda: eraser.transform(X, concept=labels), "was not seen in fit")


def test_classes_that_cannot_be_erased() -> None:
    model = MUtE(2, router=None)
    refusal(
        lambda: model.fit(X, ["x"] * N),
        r"only one class, 'x', in all 200 rows: there is nothing to erase; give labels of at least two",
    )
    lonely = np.append(Z[:-1], "other")
    refusal(lambda: model.fit(X, lonely), r"1 of \d+ classes have one row only \('other'\).*merge or drop them$")
    refusal(lambda: model.fit(X, [*Z[:-2], "p", "q"]), r"2 of \d+ classes have one row only \('p', 'q'\)")
    refusal(
        lambda: model.fit(X, X[:, 0]),
        r"200 different numbers \(-\d.* to \d.*\) in 200 rows, as a quantity .* has; bin it into a few classes",
    )
    many = np.repeat(np.arange(20_000), 2)
    start = time.perf_counter()
    refusal(
        lambda: model.fit(np.zeros((40_000, 2)), [f"c{k}" for k in many]), r"20,000 classes in 40,000 rows, more than"
    )
    refusal(lambda: model.fit(np.zeros((40_000, 2)), many), r"20,000 different numbers \(0 to 19999\) in 40,000 rows")
    assert time.perf_counter() - start < 5, "refused before any fit"  # a second on a free machine
    refusal(lambda: model.fit(X[:2], ["a", "b"]), r"2 of \d+ classes have one row only")


def test_a_column_of_labels_is_accepted_with_a_word() -> None:
    """As in scikit-learn: a column where a row is expected gives its warning, and works."""
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        model = MUtE(1, router=None, diagnostics=False).fit(X, Z[:, None])
    assert model.classes_.tolist() == ["female", "male"]


# --- settings -----------------------------------------------------------------------------------------------------

COUNTS = [0, -1, 2.5, "many", True, None, np.nan, [3]]
WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "MUtE": [
        *[
            (
                {"n_iterations": v},
                r"The 'n_iterations' parameter of MUtE must be an int in the range \[1, inf\) or a str among \{'auto'",
            )
            for v in COUNTS
        ],
        *[
            (
                {"max_iterations": v},
                r"The 'max_iterations' parameter of MUtE must be an int in the range \[1, inf\). Got ",
            )
            for v in COUNTS
        ],
        *[
            (
                {"validation_fraction": v},
                r"The 'validation_fraction' parameter of MUtE must be a float in the range \(0.0, 1.0\). Got ",
            )
            for v in (0.0, 1.0, 0, 1, -0.1, 1.5, np.nan, "some", None, True)
        ],
        *[
            ({"router": v}, r'router must be "mlp", "logistic", None or a classifier, not ')
            for v in ("forest", 5, 0.5, object(), True, [], LogisticRegression)
        ],
    ],
    "RBIG": [
        ({"n_iterations": v}, r"The 'n_iterations' parameter of RBIG must be an int in the range \[1, inf\). Got ")
        for v in [*COUNTS, "auto"]
    ],
}
for _settings in WRONG.values():
    _settings += [
        *[({"rotation": v}, r"rotation must be one of \['alternate', .*\], not ") for v in ("pca", None, 5, ["ica"])],
        *[
            ({"marginal": v}, r"marginal must be one of \['histogram', 'quantile'\], a Histogram or a Quantile, not ")
            for v in ("normal", None, 5, ["quantile"], {"bins": 3}, Histogram)
        ],
        *[
            ({"n_threads": v}, r"The 'n_threads' parameter of \w+ must be an int in the range \[1, inf\) or None. Got ")
            for v in COUNTS
            if v
        ],
        *[({"random_state": v}, r"random_state|seed") for v in ("lucky", -1, 1.5, np.random.default_rng(0))],
    ]


def _shown(settings: dict[str, Any]) -> str:
    """Without addresses in memory: the names of tests must not change from one process to the next."""
    ((name, value),) = settings.items()
    plain = isinstance(value, int | float | str | list | dict | None)
    return f"{name}={value!r}" if plain else f"{name}={getattr(value, '__name__', type(value).__name__)}"


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        pytest.param(kind, settings, message, id=f"{kind}-{_shown(settings)}")
        for kind, cases in WRONG.items()
        for settings, message in cases
        if settings != {"n_threads": None}
    ],
)
def test_settings(kind: str, settings: dict[str, Any], message: str) -> None:
    (name, value) = next(iter(settings.items()))
    model = {"MUtE": MUtE, "RBIG": RBIG}[kind](**{"n_iterations": 2, **settings})
    error = refusal(lambda: model.fit(X, Z), message)
    if name != "random_state":
        assert str(error).endswith((f"not {value!r}", f"Got {value!r} instead."))
    with pytest.raises(NotFittedError):
        model.transform(X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[(lambda v=v: Histogram(bins=v), r"bins must be a whole number of at least 2, not ") for v in (1, *COUNTS)],
        *[
            (lambda v=v: Histogram(alpha=v), r'alpha must lie between 0 and 0\.5 for floor="merge" and 1000 bins, not ')
            for v in (0, -1.0, 0.5, 2, np.nan, np.inf, "low", None, True)
        ],
        *[
            (
                lambda v=v: Histogram(bins=50, alpha=v, floor="add"),
                r'alpha must lie between 0 and 0\.02 for floor="add"',
            )
            for v in (0.0, 0.02, 0.4)
        ],
        *[(lambda v=v: Histogram(floor=v), r'floor must be "merge" or "add", not ') for v in ("clip", None, 3, [])],
        *[
            (lambda v=v: Quantile(knots=v), r'knots must be "auto" or a whole number of at least 2, not ')
            for v in (1, *COUNTS)
        ],
        *[(lambda v=v: Quantile(cells=v), r"cells must be a whole number of at least 2, not ") for v in (1, *COUNTS)],
    ],
)
def test_settings_of_marginals(make: Any, message: str) -> None:
    value = make.__defaults__[0]
    assert str(refusal(make, message)).endswith(f"not {value!r}")


@pytest.mark.parametrize("n", [0, -3, 2.5, "few", True])
def test_samples(density: RBIG, n: Any) -> None:
    refusal(lambda: density.sample(n), rf"n_samples must be a whole number of at least 1, not {n!r}")


@pytest.mark.parametrize("router", [LogisticRegression(), "logistic"], ids=["classifier", "logistic"])
@pytest.mark.parametrize("labels", [[("a", 1), ("a", 2)], ["a", 1], [frozenset("a"), frozenset("b")]], ids=str)
def test_any_hashable_label_with_any_router(router: Any, labels: list[Any]) -> None:
    """scikit-learn's classifiers know only text and numbers; that is the router's affair, not the user's."""
    z = [labels[int(k)] for k in Z == "male"]
    model = MUtE(1, router=router, diagnostics=False, random_state=0).fit(X, z)
    assert set(model.route(X).tolist()) == set(labels)


# --- before and after a fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: MUtE().transform(X),
        lambda: MUtE().inverse_transform(X, concept=Z),
        lambda: MUtE().counterfactual(X, "male"),
        lambda: MUtE().route(X),
        lambda: MUtE().flags(X),
        lambda: MUtE().diagnose(X, Z),
        lambda: MUtE().without_router(),
        lambda: RBIG().transform(X),
        lambda: RBIG().inverse_transform(X),
        lambda: RBIG().score_samples(X),
        lambda: RBIG().sample(),
    ],
)
def test_before_fit(call: Any) -> None:
    with pytest.raises(NotFittedError, match=r"not fitted yet. Call 'fit'"):
        call()


class Broken(ClassifierMixin, BaseEstimator):
    """A router that fails when it is fitted, or by being interrupted."""

    def __init__(self, error: type[BaseException] = RuntimeError) -> None:
        self.error = error

    def fit(self, X: Any, y: Any) -> Any:
        raise self.error("no")

    def predict(self, X: Any) -> Any:
        return X


WIDE = np.hstack([X, X[:, :1]])  # another width than the first fit's, and still 20 rows for each column
FAILURES: dict[str, tuple[dict[str, Any], tuple[Any, ...], type[BaseException]]] = {
    "NaN": ({}, (np.where(WIDE[3, 0] == WIDE, np.nan, WIDE), Z), MuteError),
    "other names, labels too few": ({}, (pd.DataFrame(WIDE, columns=list("abcd")), Z[:5]), MuteError),
    "labels too few": ({}, (WIDE, Z[:5]), MuteError),
    "one class": ({}, (WIDE, ["a"] * N), MuteError),
    "no labels": ({}, (WIDE,), MuteError),
    "sparse": ({}, (sparse.csr_matrix(WIDE), Z), MuteError),
    "unknown router": ({"router": "forest"}, (WIDE, Z), MuteError),
    "unknown rotation": ({"rotation": "pca"}, (WIDE, Z), MuteError),
    "broken router": ({"router": Broken()}, (WIDE, Z), RuntimeError),
    "interrupted router": ({"router": Broken(KeyboardInterrupt)}, (WIDE, Z), KeyboardInterrupt),
}


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("first", [True, False], ids=["fresh", "fitted"])
def test_a_failed_fit_changes_nothing(kind: str, first: bool) -> None:
    settings, arguments, error = FAILURES[kind]
    model = MUtE(2, router="logistic", diagnostics=False, random_state=0)
    expected = None if first else model.fit(X, Z).transform(X)
    before = {name: value for name, value in vars(model).items() if name.endswith("_")}
    with pytest.raises(error):
        model.set_params(**settings).fit(*arguments)
    after = {name: value for name, value in vars(model).items() if name.endswith("_")}
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)
    if first:
        with pytest.raises(NotFittedError):
            model.transform(X)
        with pytest.raises(NotFittedError):
            model.save("/nowhere")
    else:
        assert_array_equal(model.transform(X), expected)
    model.set_params(router="logistic", rotation="alternate").fit(X, Z)
    assert_array_equal(model.transform(X), clone(model).fit(X, Z).transform(X))


@pytest.mark.parametrize("first", [True, False], ids=["fresh", "fitted"])
@pytest.mark.parametrize("bad", [np.where(WIDE[3, 0] == WIDE, np.nan, WIDE), WIDE[:1], sparse.csr_matrix(WIDE)])
def test_a_failed_density_changes_nothing(first: bool, bad: Any) -> None:
    model = RBIG(2, random_state=0)
    expected = None if first else model.fit(X).transform(X)
    refusal(lambda: model.fit(bad))
    if first:
        with pytest.raises(NotFittedError):
            model.transform(X)
    else:
        assert_array_equal(model.transform(X), expected)


@pytest.mark.parametrize("bad", ["NaN", "one-dimensional", "sparse", "no rows"])
def test_a_failed_transform_changes_nothing(eraser: MUtE, density: RBIG, bad: str) -> None:
    expected = eraser.transform(X), density.transform(X)
    state = dict(vars(eraser)), dict(vars(density))
    refusal(lambda: eraser.transform(BAD_ROWS[bad][0]))
    refusal(lambda: density.transform(BAD_ROWS[bad][0]))
    assert (vars(eraser), vars(density)) == state
    assert_array_equal(eraser.transform(X), expected[0])
    assert_array_equal(density.transform(X), expected[1])


def test_input_is_left_alone(eraser: MUtE, density: RBIG) -> None:
    x = X.copy()
    x.flags.writeable = False  # a write would raise
    q = eraser.transform(x)
    q.flags.writeable = False
    eraser.counterfactual(x, "male"), eraser.flags(x), eraser.inverse_transform(q, concept=Z)
    density.transform(x), density.inverse_transform(x), density.score_samples(x)
    clone(eraser).fit(x, Z), clone(density).fit(x)
    assert_array_equal(x, X)


# --- unusual, and right -------------------------------------------------------------------------------------------


def _scales(dtype: Any) -> np.ndarray:
    # From 1e-12 to 1e12 in float64; in float32 what its seven digits allow within one rotation after scaling.
    reach = 12 if dtype == np.float64 else 6
    return np.logspace(-reach, reach, D)


def unusual(kind: str, dtype: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    """Rows, labels, and whether there are too few of them."""
    rng = np.random.default_rng(1)
    x, z = X.copy(), Z
    if kind == "constant column":
        x[:, 1] = 7.5
    elif kind == "all constant":
        x[:] = [3.0, -1.0, 0.0]
    elif kind == "constant in one class":
        x[z == "male", 2] = 0.25
    elif kind == "same column twice":
        x[:, 1] = x[:, 0]
    elif kind == "one column":
        x = x[:, :1]
    elif kind == "one constant column":
        x = np.ones((N, 1))
    elif kind == "fewer rows than columns":
        x = rng.standard_normal((20, 30))
        z = np.repeat(["female", "male"], 10)
    elif kind == "two rows each":
        x, z = x[[0, 1, -2, -1]], z[[0, 1, -2, -1]]
    elif kind == "wild scales":
        x *= _scales(dtype)
    elif kind == "far from the origin":
        x += 1e6 if dtype == np.float64 else 1e3
    elif kind == "unit norm":
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    elif kind == "ties":
        x = np.round(x)
    few = min(np.unique(z, return_counts=True)[1]) < 20 * x.shape[1]
    return x.astype(dtype), z, few


UNUSUAL = [
    "constant column", "all constant", "constant in one class", "same column twice", "one column",
    "one constant column", "fewer rows than columns", "two rows each", "wild scales", "far from the origin",
    "unit norm", "ties",
]  # fmt: skip


@pytest.mark.parametrize("marginal", ["quantile", "histogram"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_rows_work(kind: str, dtype: Any, marginal: str) -> None:
    """Finite, and undone by the inverse, to rounding relative to each column's size; a warning only if rows are few.

    In float64 nothing here costs more than six of the sixteen digits. float32 has seven, of which five layers with
    slopes down to 1/30 (a class without spread, moved by wrong routes) leave three.
    """
    x, z, few = unusual(kind, dtype)
    model = MUtE(5, router="logistic", marginal=marginal, random_state=0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.fit(x, z)
    assert {w.category for w in seen} == ({WeakResultWarning} if few else set()), [str(w.message) for w in seen]
    q = model.transform(x, concept=z)
    assert q.dtype == dtype and np.isfinite(q).all()
    assert np.isfinite(model.transform(x)).all()
    size = np.abs(x).max(axis=0)
    size[size == 0] = size.max() or 1
    back = model.inverse_transform(q, concept=z)
    assert_allclose(back / size, x / size, rtol=0, atol=1e-9 if dtype == np.float64 else 1e-3)
    target = np.where(z == "male", "female", "male")
    there = model.counterfactual(x, target, concept=z)
    assert np.isfinite(there).all()
    if dtype == np.float64:
        size = np.maximum(np.abs(there).max(axis=0), size)
        assert_allclose(model.counterfactual(there, z, concept=target) / size, x / size, rtol=0, atol=1e-9)


@pytest.mark.parametrize("marginal", ["quantile", "histogram"])
@pytest.mark.parametrize("kind", ["constant column", "same column twice", "fewer rows than columns"])
def test_rounding_is_not_blown_up(kind: str, marginal: str) -> None:
    """Directions without spread hold the rounding of float32 and nothing else: to stretch it would make noise a value.

    A change in the seventh digit may move an erased row in its fifth or, where a class varies little, its third.
    """
    x, z, _ = unusual(kind, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakResultWarning)
        model = MUtE(5, router=None, marginal=marginal, diagnostics=False, random_state=0).fit(x, z)
    moved = model.transform(x * np.float32(1 + 2e-7), concept=z)
    assert_allclose(moved, model.transform(x, concept=z), rtol=0, atol=1e-2)


@pytest.mark.parametrize("marginal", ["quantile", "histogram"])
def test_an_outlier_does_not_spoil_the_inverse(marginal: str) -> None:
    """One training row 30 standard deviations out, which the router sends to the other class.

    The figure asked of clean data is 1e-9; here 1e-6 of the outlier's size, three digits less.
    """
    rng = np.random.default_rng(0)
    z = np.repeat(["female", "male"], 1000)
    x = rng.standard_normal((2000, 8)) + 0.5 * (z == "male")[:, None]
    x[5] = 30.0
    model = MUtE(50, router="logistic", marginal=marginal, diagnostics=False, random_state=0).fit(x, z)
    assert model.route(x)[5] == "male" != z[5]
    assert_allclose(model.inverse_transform(model.transform(x, concept=z), concept=z), x, rtol=0, atol=3e-5)


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_rows_have_a_density(kind: str) -> None:
    x, _, _ = unusual(kind, np.float64)
    model = RBIG(5, random_state=0).fit(x)
    size = np.abs(x).max(axis=0)
    size[size == 0] = 1
    assert_allclose(model.inverse_transform(model.transform(x)) / size, x / size, rtol=0, atol=1e-9)
    assert np.isfinite(model.score_samples(x)).all()


@pytest.mark.parametrize("n_columns", [1, 4])
def test_the_warning_begins_below_twenty_rows_a_column(n_columns: int) -> None:
    rng = np.random.default_rng(0)
    n = 20 * n_columns
    z = np.repeat(["many", "few"], [3 * n, n])
    x = rng.standard_normal((len(z), n_columns))
    model = MUtE(1, router=None, diagnostics=False)
    model.fit(x, z)  # enough: a warning would be an error here
    with pytest.warns(WeakResultWarning, match=rf"class 'few' has {n - 1} rows for {n_columns} columns.*\({n}\).*leak"):
        model.fit(x[:-1], z[:-1])


def test_too_few_rows_to_choose_the_number_of_layers() -> None:
    z = np.repeat([0, 1], 60)
    x = np.random.default_rng(0).standard_normal((120, 1)) + z[:, None]
    with pytest.warns(WeakResultWarning, match=r"smallest class has 60 rows, too few for n_iterations=\"auto\".*100"):
        model = MUtE(router=None, shrinkage=False, diagnostics=False).fit(x, z)
    assert model.n_iterations_ == 10 and model.stopping_ is None


@pytest.mark.parametrize("few", [True, False], ids=["rows", "auto"])
def test_warnings_point_at_the_call(few: bool) -> None:
    """At the line of the user's `fit`, not at one of ours or scikit-learn's."""
    model = MUtE(1 if few else "auto", router=None, shrinkage=few, diagnostics=False)
    x, z = (X[::4], Z[::4]) if few else (X[::2, :1], Z[::2])
    with pytest.warns(WeakResultWarning) as seen:
        model.fit(x, z)
    assert [w.filename for w in seen] == [__file__]
