"""Ctrl-C in the middle of training: it ends what it interrupts, and what was fitted before stays."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier, MLPRegressor

from laws import draw
from mute import MUtE
from mute.adversaries.panel import CODER, PANEL, attack
from mute.evaluation.augmentation import CounterfactualAugmentation
from mute.evaluation.utility import paper_mse
from mute.flow import routing
from mute.flow.stopping import fresh_leak
from mute.rivals import FreeFormLEACE, TaCo
from mute.rows.interrupts import Stop, interruptible

# As a user has it: the suite makes an error of every warning, which would hide that the interrupt is lost.
pytestmark = pytest.mark.filterwarnings("ignore:Training interrupted")

X, Z = draw("gauss", 200, 4, seed=0)
X_NEW, Z_NEW = draw("gauss", 100, 4, seed=1)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Press Ctrl-C in the batch of this number, counted from now."""

    def arm(batch: int) -> None:
        batches = count(1)
        for kind in (MLPClassifier, MLPRegressor):

            def backprop(*args: Any, real: Any = kind._backprop) -> Any:
                if next(batches) == batch:
                    signal.raise_signal(signal.SIGINT)
                return real(*args)

            monkeypatch.setattr(kind, "_backprop", backprop)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield arm
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "eraser",
    [
        MUtE(2, random_state=0),
        MUtE(2, router=MLPClassifier(max_iter=50, random_state=0), random_state=0),
        MUtE(random_state=0, router="logistic", shrinkage=False),
        TaCo(random_state=0),
        TaCo(n_drop=1, epochs=50, random_state=0),
        FreeFormLEACE(random_state=0),
    ],
    ids=["router", "own router", "early stopping", "TaCo", "TaCo with epochs", "FreeFormLEACE"],
)
@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_ends_and_the_one_before_stays(eraser: Any, interrupt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_MOST_EPOCHS", 5)
    erased = eraser.fit(X, Z).transform(X)
    interrupt(25)
    with pytest.raises(KeyboardInterrupt):
        eraser.fit(X_NEW, Z_NEW)
    np.testing.assert_array_equal(eraser.transform(X), erased)


@pytest.mark.parametrize("few", [False, True])
def test_a_first_fit_leaves_nothing(few: bool, interrupt: Any) -> None:
    rows = np.r_[:20, 200:220] if few else slice(None)
    eraser = MUtE(2, random_state=0)
    interrupt(5)
    with pytest.raises(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eraser.fit(X[rows], Z[rows])
    assert not hasattr(eraser, "classes_") and not hasattr(eraser, "n_features_in_")


@pytest.mark.parametrize("adversary", [PANEL["network"], PANEL["wide network"], CODER], ids=lambda a: a.name)
def test_adversaries(adversary: Any, interrupt: Any) -> None:
    interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        attack(adversary, X.astype(np.float32), Z, X_NEW.astype(np.float32), 2, seed=0)


def test_the_judge_of_early_stopping(interrupt: Any) -> None:
    interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        fresh_leak(X, Z, 2, np.random.default_rng(0))


def test_the_papers_utility(interrupt: Any) -> None:
    interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        paper_mse(X, X)


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_augmentation(early_stopping: bool, interrupt: Any) -> None:
    network = MLPClassifier(max_iter=30, early_stopping=early_stopping, random_state=0)
    model = CounterfactualAugmentation(network, None, control="original", random_state=0).fit(X, Z, concept=Z)
    chances = model.predict_proba(X_NEW)
    interrupt(5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X_NEW, Z_NEW, concept=Z_NEW)
    np.testing.assert_array_equal(model.predict_proba(X_NEW), chances)


def test_other_warnings_pass_and_filters_are_restored() -> None:
    before = list(warnings.filters)
    with interruptible(), pytest.warns(UserWarning, match="something else"):
        warnings.warn("something else", stacklevel=1)
    with pytest.raises(UserWarning, match="something else"), interruptible():
        raise UserWarning("something else")
    assert warnings.filters == before


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as in a terminal: tests that run in the background may be told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_stop_waits_for_a_good_place_and_a_second_one_does_not() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        stop.leave()
    with pytest.raises(KeyboardInterrupt), Stop() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second signal was held back, too")
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_held_back() -> None:
    before, inside = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with Stop() as stop:
            inside.append((signal.getsignal(signal.SIGINT), stop.asked))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [(before, False)]
