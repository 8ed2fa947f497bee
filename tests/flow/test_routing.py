"""Routers: what they predict, from which rows they learn, and what they report."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC

from laws import draw
from mute.errors import MuteError
from mute.estimators import conditional
from mute.flow.routing import ClassifierRouter, NetworkRouter, RoutingReport, fit_router, margins
from mute.rows.validation import LabelEncoder
from mute.steering import MeanDifference


def train(
    spec: object, x: NDArray, z: NDArray, names: tuple = (), seed: int = 0
) -> tuple[NetworkRouter | ClassifierRouter, NDArray, RoutingReport]:
    encoder = LabelEncoder(names or tuple(range(z.max() + 1)))
    return fit_router(spec, x, z, encoder, np.random.default_rng(seed))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "classifier",
    [
        LogisticRegression(),
        MLPClassifier((20, 10), max_iter=500, early_stopping=True, random_state=0),
        MLPClassifier((), max_iter=200, early_stopping=True, random_state=0),
    ],
    ids=["logistic", "two hidden layers", "no hidden layer"],
)
def test_network_router_is_the_model_it_took_over(classifier: object, n_classes: int) -> None:
    x, z = draw("gauss", 500, 4, seed=0, n_classes=n_classes)
    model = classifier.fit(x, z)  # type: ignore[attr-defined]
    router = NetworkRouter.from_classifier(model)
    assert router is not None
    np.testing.assert_allclose(router.predict_proba(x), model.predict_proba(x), atol=1e-9)
    np.testing.assert_array_equal(router.predict(x), model.predict(x))


def test_a_class_the_model_never_saw_is_never_chosen() -> None:
    x, z = draw("gauss", 500, 4, seed=0, n_classes=2)
    names = np.array(["b", "d"])[z]
    encoder = LabelEncoder(("a", "b", "c", "d"))
    for model in (LogisticRegression().fit(x, names), GaussianNB().fit(x, names)):
        router = NetworkRouter.from_classifier(model, encoder) or ClassifierRouter(model, encoder)
        assert set(router.predict(x)) == {1, 3}
        assert (router.predict_proba(x)[:, [0, 2]] == 0).all()  # type: ignore[index]


@pytest.mark.parametrize("kind", [KNeighborsClassifier(), MLPClassifier(activation="tanh", max_iter=1)])
def test_other_models_are_not_taken_over(kind: object) -> None:
    assert NetworkRouter.from_classifier(kind) is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_row_gets_the_answer_of_a_batch(dtype: type) -> None:
    x, z = draw("gauss", 300, 5, seed=0)
    x = x.astype(dtype)
    router, _, _ = train("mlp", x, z)
    batch = router.predict_proba(x)
    assert batch.dtype == dtype  # type: ignore[union-attr]
    one = np.concatenate([router.predict_proba(x[i : i + 1]) for i in range(60)])  # type: ignore[misc]
    np.testing.assert_array_equal(one, batch[:60])  # type: ignore[index]


@pytest.mark.parametrize("spec", ["mlp", "logistic"])
def test_columns_of_any_scale(spec: str) -> None:
    x, z = draw("gauss", 1000, 3, seed=0)
    plain = train(spec, x, z)[2].error
    scaled = train(spec, x * [1e-6, 1, 1e6] + [0, 0, 3e6], z)[2].error
    # The same rows after standardisation; single routes may change with the rounding.
    assert scaled == pytest.approx(plain, abs=0.01)


def test_training_rows_are_routed_by_a_model_that_has_not_seen_them() -> None:
    """A model that memorises is perfect on what it knows; the route of a training row must not benefit from it."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2000, 3)), rng.integers(2, size=2000)
    router, routed, report = train(KNeighborsClassifier(1), x, z)
    assert (router.predict(x) == z).all()
    # Coins: half right, with a standard error of 1.1 points.
    assert (routed == z).mean() == pytest.approx(0.5, abs=0.04)
    assert report.error == pytest.approx((routed != z).mean(), abs=1e-12)


def test_report_foretells_the_error_on_new_rows() -> None:
    x, z = draw("skew", 1500, 3, seed=0, n_classes=3)
    router, _, report = train("mlp", x, z)
    new, z_new = draw("skew", 5000, 3, seed=1, n_classes=3)
    # Out of fold the model has learned from two thirds of the rows: a little worse, and both errors are known to a
    # standard error of half a point.
    assert report.error == pytest.approx((router.predict(new) != z_new).mean(), abs=0.03)


def test_rows_are_drawn_at_random_and_small_classes_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sorted rows, and a class that the first rows do not hold.
    monkeypatch.setattr(conditional, "MAX_ROWS", 400)
    z = np.repeat([0, 1, 2], [3000, 3000, 60])
    x = np.random.default_rng(0).normal(size=(len(z), 2)) + 6 * np.eye(3, 2)[z]
    seen: list[NDArray] = []

    class Recorder(GaussianNB):
        def fit(self, X: NDArray, y: NDArray) -> "Recorder":
            seen.append(y)
            return super().fit(X, y)

    eraser = MeanDifference(router=Recorder(), random_state=0).fit(x, z)
    assert all(len(y) <= 450 for y in seen)
    assert (np.bincount(seen[-1]) >= [100, 100, 30]).all()
    assert eraser.routing_.class_error.max() < 0.1
    assert (eraser.route(x) == z).mean() > 0.95
    assert set(eraser.route(x)) == {0, 1, 2}


@pytest.mark.parametrize(
    "classifier",
    [GaussianNB(), RandomForestClassifier(20, random_state=0), LinearSVC(), RidgeClassifier(), LogisticRegression()],
    ids=lambda c: type(c).__name__,
)
@pytest.mark.parametrize(
    "names", [("x", "y", "z"), (7, -1, 3), (0.5, 1.5, 2.5), (("a", 1), ("b", 2), ("c", 3)), ("a", 1, ("t",))], ids=repr
)
def test_any_classifier_and_any_labels(classifier: object, names: tuple) -> None:
    x, z = draw("gauss", 300, 3, seed=0, n_classes=3)
    x += 6 * np.eye(3)[z]
    router, routed, report = train(classifier, x, z, names)
    assert report.error < 0.1
    assert (routed == z).mean() > 0.9
    assert (router.predict(x) == z).mean() > 0.9
    chances = router.predict_proba(x)
    if hasattr(classifier, "predict_proba"):
        assert chances is not None and chances.shape == (900, 3)
        np.testing.assert_array_equal(chances.argmax(axis=1), router.predict(x))
        assert np.isfinite(report.margin).all()
    else:
        assert chances is None
        assert np.isnan(report.margin).all() and np.isnan(report.calibration)


def test_same_generator_same_router() -> None:
    x, z = draw("gauss", 300, 3, seed=0)
    (one, routed, _), (two, again, _) = train("mlp", x, z), train("mlp", x, z)
    np.testing.assert_array_equal(routed, again)
    np.testing.assert_array_equal(one.predict_proba(x), two.predict_proba(x))  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", ["tree", 3, object(), GaussianNB], ids=["name", "number", "object", "class"])
def test_not_a_router(spec: object) -> None:
    x, z = draw("gauss", 50, 2, seed=0)
    with pytest.raises(MuteError, match='router must be "mlp", "logistic", None or a classifier, not '):
        train(spec, x, z)


def test_report() -> None:
    z = np.array([0, 0, 0, 0, 1, 1])
    chances = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [1.0, 0.0], [0.45, 0.55], [0.6, 0.4]])
    report = RoutingReport.measure(z, chances, chances.argmax(axis=1), 2)
    assert report.error == pytest.approx(2 / 6)
    np.testing.assert_allclose(report.class_error, [1 / 4, 1 / 2])
    np.testing.assert_allclose(report.confusion, [[3 / 4, 1 / 4], [1 / 2, 1 / 2]])
    np.testing.assert_allclose(report.margin, [(0.8 + 0.6 + 0.4 + 1) / 4, (0.1 + 0.2) / 2])
    # One row in each tenth of confidence but the last, which holds 0.9 and 1.0, both right.
    gaps = [(1 - 0.55), (0 - 0.6), (0 - 0.7), (1 - 0.8), 2 * (1 - 0.95)]
    assert report.calibration == pytest.approx(np.abs(gaps).sum() / 6)


@pytest.mark.parametrize("chances", [True, False])
def test_report_survives_json(chances: bool) -> None:
    import json

    z = np.array([0, 1, 2, 1])
    table = np.eye(3)[[0, 1, 1, 1]]
    report = RoutingReport.measure(z, table if chances else None, table.argmax(axis=1), 3)
    back = RoutingReport.from_json(json.loads(json.dumps(report.to_json())), 3)
    for name, value in vars(report).items():
        np.testing.assert_array_equal(getattr(back, name), value)


def test_margin_is_the_lead_of_the_first_over_the_second() -> None:
    np.testing.assert_allclose(margins(np.array([[0.2, 0.7, 0.1], [1 / 3, 1 / 3, 1 / 3]])), [0.5, 0])
