"""The estimators among scikit-learn's own: checks, pipelines, searches, data frames."""

from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from laws import draw
from mute import RBIG, Histogram, MUtE, Quantile


# The checks fit on a few dozen rows, of which the warning rightly says that they are few.
@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
@parametrize_with_checks(
    [MUtE(), MUtE(n_iterations=2), MUtE(n_iterations=2, marginal="histogram", router="logistic"), RBIG(n_iterations=2)]
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow  # fifty layers on data of every kind
def test_scikit_learns_checks_of_rbig_at_its_defaults() -> None:
    for estimator, check in estimator_checks_generator(RBIG()):
        if "array_api" not in str(check):  # skips itself unless SCIPY_ARRAY_API is set
            check(estimator)


@pytest.fixture(scope="module")
def task() -> tuple[NDArray, NDArray, NDArray]:
    """Rows, a downstream label and a concept that is correlated with it."""
    X, z = draw("gauss", 1000, 4, seed=0)
    y = (X[:, 0] - X[:, 1] + np.random.default_rng(1).normal(size=len(X)) > 0).astype(int)
    return X, y, np.array(["a", "b"])[z]


def test_get_and_set_params() -> None:
    eraser = MUtE(5, router=GaussianNB(var_smoothing=1e-3), marginal=Histogram(bins=50))
    parameters = eraser.get_params()
    assert parameters["router__var_smoothing"] == 1e-3
    assert parameters["marginal"] == Histogram(bins=50)
    copy = clone(eraser)
    assert copy.get_params()["marginal"] == Histogram(bins=50)
    assert copy.router is not eraser.router
    assert clone(eraser.set_params(n_iterations=3, router=None)).n_iterations == 3


def test_clone_carries_no_fit(task: tuple[NDArray, NDArray, NDArray]) -> None:
    X, _, z = task
    fitted = MUtE(2, router="logistic", random_state=0).fit(X, z)
    assert not any(name.endswith("_") for name in vars(clone(fitted)))
    np.testing.assert_array_equal(clone(fitted).fit(X, z).transform(X), fitted.transform(X))


def test_repr_shows_what_was_changed() -> None:
    assert repr(MUtE(20, marginal="histogram")) == "MUtE(marginal='histogram', n_iterations=20)"
    assert repr(RBIG()) == "RBIG()"


def test_fit_transform_is_fit_and_transform(task: tuple[NDArray, NDArray, NDArray]) -> None:
    X, _, z = task
    eraser = MUtE(3, router="logistic", random_state=0)
    np.testing.assert_array_equal(clone(eraser).fit_transform(X, z), clone(eraser).fit(X, z).transform(X))
    np.testing.assert_array_equal(RBIG(3).fit_transform(X), RBIG(3).fit(X).transform(X))


def test_pipeline_on_the_concept(task: tuple[NDArray, NDArray, NDArray]) -> None:
    """Where y is the concept itself: a probe after the eraser finds little."""
    X, _, z = task
    before = cross_val_score(LogisticRegression(), X, z).mean()
    after = cross_val_score(
        make_pipeline(MUtE(4, router="logistic", diagnostics=False, random_state=0), LogisticRegression()), X, z
    ).mean()
    assert before > 0.8
    # 400 test rows in each of five folds: a standard error of 1.1 points, and what misrouted rows give away.
    assert abs(after - 0.5) < 0.06


def with_concept(eraser: MUtE) -> MUtE:
    return eraser.set_fit_request(concept=True).set_transform_request(concept=True)


@pytest.mark.parametrize("router", ["logistic", None])
def test_pipeline_with_a_downstream_label(task: tuple[NDArray, NDArray, NDArray], router: str | None) -> None:
    X, y, z = task
    with sklearn.config_context(enable_metadata_routing=True):
        eraser = MUtE(4, router=router, diagnostics=False, random_state=0)
        pipe = make_pipeline(StandardScaler(), with_concept(eraser), LogisticRegression())
        pipe.fit(X, y, concept=z)
        inner = pipe.named_steps["mute"]
        assert inner.classes_.tolist() == ["a", "b"], "fitted on the concept, not on y"
        score = pipe.score(X, y, concept=z)
        predicted = pipe.predict(X, concept=z)
        erased = inner.transform(StandardScaler().fit_transform(X), concept=z)
        np.testing.assert_array_equal(pipe[-1].predict(erased), predicted)
        # The task is linear in what the classes share: the concept may cost accuracy, but not the task itself.
        assert score > 0.65
        if router is not None:
            assert pipe.predict(X).shape == y.shape, "labels are not needed where there is a router"


@pytest.mark.parametrize("router", ["logistic", None])
def test_fit_transform_with_a_downstream_label(task: tuple[NDArray, NDArray, NDArray], router: str | None) -> None:
    """Downstream models learn on rows erased as new ones will be: by the router, or where there is none by labels."""
    X, y, z = task
    with sklearn.config_context(enable_metadata_routing=True):
        eraser = with_concept(MUtE(4, router=router, diagnostics=False, random_state=0))
        Q = clone(eraser).fit_transform(X, y, concept=z)
        expected = clone(eraser).fit(X, y, concept=z).transform(X, concept=None if router else z)
        np.testing.assert_array_equal(Q, expected)


def test_grid_search(task: tuple[NDArray, NDArray, NDArray]) -> None:
    X, y, z = task
    grid = {
        "mute__n_iterations": [1, 3],
        "mute__marginal": ["quantile", "histogram", Quantile(knots=16)],
    }
    with sklearn.config_context(enable_metadata_routing=True):
        eraser = with_concept(MUtE(router="logistic", diagnostics=False, random_state=0))
        pipe = Pipeline([("mute", eraser), ("task", LogisticRegression())])
        folds = StratifiedKFold(2, shuffle=True, random_state=0)  # the rows are in the order of the concept
        search = GridSearchCV(pipe, grid, cv=folds, error_score="raise").fit(X, y, concept=z)
    assert len(search.cv_results_["params"]) == 6
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.named_steps["mute"].n_iterations_ == search.best_params_["mute__n_iterations"]


@pytest.mark.parametrize("request_fit", [True, "gender"])
def test_one_request_is_enough_for_a_pipeline(task: tuple[NDArray, NDArray, NDArray], request_fit: bool | str) -> None:
    """`transform` takes over the request of `fit`: the recipe of the guide, also when cloned and searched."""
    X, y, z = task
    labels = {"concept" if request_fit is True else request_fit: z}
    with sklearn.config_context(enable_metadata_routing=True):
        eraser = MUtE(2, router="logistic", diagnostics=False, random_state=0).set_fit_request(concept=request_fit)
        pipe = make_pipeline(eraser, LogisticRegression())
        fitted = clone(pipe).fit(X, y, **labels)
        assert fitted[0].classes_.tolist() == ["a", "b"], "fitted on the concept, not on y"
        np.testing.assert_array_equal(fitted.predict(X), fitted[-1].predict(fitted[0].transform(X)))
        with_labels = fitted[-1].predict(fitted[0].transform(X, concept=z))
        np.testing.assert_array_equal(fitted.predict(X, **labels), with_labels)
        folds = StratifiedKFold(2, shuffle=True, random_state=0)
        search = GridSearchCV(pipe, {"mute__n_iterations": [1, 2]}, cv=folds, error_score="raise").fit(X, y, **labels)
        assert search.predict(X).shape == y.shape
        scores = cross_validate(pipe, X, y, cv=folds, params=labels, error_score="raise")["test_score"]
        assert np.isfinite(scores).all()


def test_a_request_of_transform_is_kept() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        eraser = MUtE().set_fit_request(concept=True).set_transform_request(concept=False)
        assert eraser.get_metadata_routing().transform.requests["concept"] is False
        eraser = MUtE().set_fit_request(concept=True).set_fit_request(concept=False)
        assert eraser.get_metadata_routing().transform.requests["concept"] is False, "the request that holds now"


def test_grid_search_for_the_density() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 3000))
    X = np.column_stack([a, a**2 + 0.3 * b])  # uncorrelated and far from independent
    grid = {"n_iterations": [1, 10], "rotation": ["random", "alternate"]}
    search = GridSearchCV(RBIG(random_state=0), grid, cv=2, error_score="raise").fit(X)
    assert search.best_params_["n_iterations"] == 10, "one layer leaves the dependence in"


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_data_frames(library: str, output: str, task: tuple[NDArray, NDArray, NDArray]) -> None:
    frames = pytest.importorskip(library)
    X, _, z = task
    names = ["p", "q", "r", "s"]
    frame, labels = frames.DataFrame(dict(zip(names, X.T, strict=True))), frames.Series(z.tolist())
    eraser = MUtE(3, router="logistic", random_state=0).set_output(transform=output)
    Q = eraser.fit(frame, labels).transform(frame, concept=labels)
    assert eraser.feature_names_in_.tolist() == names
    assert eraser.get_feature_names_out().tolist() == ["mute0", "mute1", "mute2", "mute3"]
    plain = MUtE(3, router="logistic", random_state=0).fit(X, z).transform(X, concept=z)
    np.testing.assert_allclose(np.asarray(Q), plain, atol=1e-12)
    if output != "default":
        assert type(Q).__module__.split(".")[0] == output
        assert list(Q.columns) == ["mute0", "mute1", "mute2", "mute3"]
    other = eraser.counterfactual(frame, frames.Series(["a"] * len(X)), concept=labels)
    np.testing.assert_allclose(np.asarray(other), eraser.counterfactual(frame, "a", concept=labels), atol=1e-12)
    np.testing.assert_array_equal(np.asarray(eraser.transform(frame[["q", "p", "s", "r"]], concept=labels)), Q)
    with pytest.raises(ValueError, match="X has no column 'q', which the model was fitted on"):
        eraser.transform(frame[["p", "r", "s"]], concept=labels)


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
@pytest.mark.parametrize("kind", [MUtE, RBIG])
def test_the_way_back_takes_what_transform_gave(
    output: str, kind: type, task: tuple[NDArray, NDArray, NDArray]
) -> None:
    """Erased columns have names of their own, not those of the rows that were fitted on."""
    import pandas as pd

    X, _, z = task
    frame = pd.DataFrame(X, columns=list("pqrs"))
    labels = {"concept": z} if kind is MUtE else {}
    settings = {"router": "logistic"} if kind is MUtE else {}
    model = kind(2, random_state=0, **settings).set_output(transform=output).fit(frame, z)
    Q = model.transform(frame, **labels)
    np.testing.assert_allclose(np.asarray(model.inverse_transform(Q, **labels)), X, atol=1e-9)
    np.testing.assert_allclose(np.asarray(model.inverse_transform(np.asarray(Q), **labels)), X, atol=1e-9)


def test_pandas_keeps_its_index(task: tuple[NDArray, NDArray, NDArray]) -> None:
    import pandas as pd

    X, _, z = task
    frame = pd.DataFrame(X, columns=list("pqrs"), index=[f"row {i}" for i in range(len(X))])
    eraser = MUtE(2, router="logistic", random_state=0).set_output(transform="pandas").fit(frame, pd.Categorical(z))
    assert eraser.transform(frame).index.equals(frame.index)
    assert eraser.classes_.tolist() == ["a", "b"]


def test_rbig_feature_names() -> None:
    X, _ = draw("gauss", 300, 3, seed=0)
    model = RBIG(2).set_output(transform="pandas").fit(X)
    assert list(model.transform(X).columns) == ["rbig0", "rbig1", "rbig2"]
