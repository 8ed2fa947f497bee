"""When to stop: the adversary that is asked, what layers find, and the rules by which that counts."""

from dataclasses import asdict

import numpy as np
import pytest
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.stopping import EarlyStopping, StopOnNoGain, fresh_leak, stopping_from_json


def labels(n: int, n_classes: int = 2) -> NDArray:
    return np.repeat(np.arange(n_classes), n)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_leak_where_there_is_nothing_to_find(n_classes: int) -> None:
    z = labels(1000, n_classes)
    x = np.random.default_rng(0).normal(size=(len(z), 6))
    leak, error = fresh_leak(x, z, n_classes, np.random.default_rng(1))
    # The better of two adversaries errs upwards; three of its standard errors is one chance in hundreds.
    assert abs(leak) < 3 * error
    recall = leak + 1 / n_classes
    assert error == pytest.approx(np.sqrt(recall * (1 - recall) / (1000 * n_classes)), rel=1e-6)


@pytest.mark.parametrize("what", ["shift", "spread", "correlation", "shape"])
def test_finds_what_may_leak(what: str) -> None:
    rng, z = np.random.default_rng(0), labels(1500)
    x = rng.normal(size=(3000, 6))
    match what:
        case "shift":
            x[z == 1] += 0.4
        case "spread":
            x[z == 1] *= 1.3
        case "correlation":
            x[z == 1, 0] = 0.8 * x[z == 1, 1] + 0.6 * x[z == 1, 0]
        case "shape":
            x[z == 1] = rng.uniform(-(3**0.5), 3**0.5, size=(1500, 6))
    leak, error = fresh_leak(x, z, 2, np.random.default_rng(1))
    # Plain enough differences that the answer must be far beyond its own noise.
    assert leak > 5 * error


def test_small_classes_count_as_much_as_large_ones() -> None:
    z = np.repeat([0, 1], [2700, 300])
    x = np.random.default_rng(0).normal(size=(3000, 4))
    leak, error = fresh_leak(x, z, 2, np.random.default_rng(1))
    assert abs(leak) < 3 * error, "always saying 0 is right in nine of ten cases, and no leak"


def test_same_generator_same_answer() -> None:
    z = labels(300)
    x = np.random.default_rng(0).normal(size=(600, 4))
    ask = lambda: fresh_leak(x, z, 2, np.random.default_rng(5))  # noqa: E731
    assert ask() == ask()


def run(
    gains: list[float], leaks: list[float], error: float = 0.01, n_classes: int = 2, **settings: int
) -> EarlyStopping:
    """Feed prepared gains and leaks until it says stop."""
    stopping = EarlyStopping(n_classes, settings.pop("max_layers", len(gains)), **settings)
    answers = iter(leaks)
    for gain in gains:
        stopping.gains.append(gain)
        if stopping.due():
            stopping.record(next(answers), error)
            if stopping.done():
                break
    return stopping


def test_checks_become_rarer() -> None:
    stopping = run([1.0] * 60, list(np.linspace(0.5, 0.1, 60)))
    assert stopping.layers[:4] == [2, 4, 6, 8]
    steps = np.diff(stopping.layers[:-1])
    assert (np.diff(steps) >= 0).all()
    assert (steps <= np.maximum(2, 0.25 * np.array(stopping.layers[:-2]))).all()
    assert stopping.layers[-1] == 60, "the last layer is always checked"


def test_stops_after_three_checks_at_chance() -> None:
    stopping = run([1.0] * 40, [0.3, 0.02, 0.018, 0.019, 0.5])
    assert stopping.layers == [2, 4, 6, 8]
    assert stopping.best() == 6


def test_stops_after_three_checks_without_a_new_best() -> None:
    stopping = run([1.0] * 40, [0.3, 0.1, 0.2, 0.2, 0.2, 0.5])
    assert stopping.layers == [2, 4, 6, 8, 10]
    assert stopping.best() == 4


def test_goes_on_while_the_leak_falls() -> None:
    stopping = run([1.0] * 10, [0.5, 0.4, 0.3, 0.2, 0.1])
    assert stopping.best() == 10


@pytest.mark.parametrize("n_classes", [2, 3])
def test_stops_when_no_class_has_gained_from_its_last_two_turns(n_classes: int) -> None:
    good, bad = [1.0] * (2 * n_classes), [-0.1] * 20
    stopping = run(good + bad, list(np.linspace(0.5, 0.1, 20)), n_classes=n_classes)
    assert len(stopping.gains) == 4 * n_classes
    assert stopping.layers[-1] == 4 * n_classes, "checked before it ends"


def test_one_gain_keeps_it_going() -> None:
    stopping = run(([-0.1] * 3 + [0.1]) * 5, list(np.linspace(0.5, 0.1, 20)))
    assert len(stopping.gains) == 20


def test_the_fewest_layers_of_equals() -> None:
    assert run([1.0] * 8, [0.3, 0.1, 0.1, 0.1]).best() == 4


def settle(finds: list[tuple[float, float]], first: int = 2, patience: int = 3) -> StopOnNoGain:
    """Feed prepared finds until it says stop."""
    settling = StopOnNoGain(first, patience)
    for nats, score in finds:
        settling.record(nats, score)
        if settling.done():
            break
    return settling


FIND, TOO_SMALL, BY_CHANCE = (0.1, 20.0), (1e-5, 20.0), (0.1, 1.0)


def test_settles_after_layers_that_find_nothing() -> None:
    settling = settle([FIND, FIND, FIND, BY_CHANCE, FIND, *[TOO_SMALL] * 9])
    assert settling.best() == 5, "the last that found anything"
    assert len(settling.nats) == 7, "half as many as are kept"
    assert len(settle([FIND] * 40 + [BY_CHANCE] * 9).nats) == 43, "but not more than its patience"


def test_the_first_layers_stay_whatever_they_find() -> None:
    assert settle([BY_CHANCE] * 9, first=4).best() == 4
    assert len(settle([FIND] * 4 + [BY_CHANCE] * 9, first=4).nats) == 6


@pytest.mark.parametrize(
    "record", [StopOnNoGain(3, nats=[0.1, 0.2], scores=[4.0, 1.0]), EarlyStopping(2, 9, gains=[1.0])]
)
def test_records_come_back_from_a_file(record: StopOnNoGain | EarlyStopping) -> None:
    assert stopping_from_json(asdict(record)) == record


@pytest.mark.parametrize("change", [{"nats": [0.1]}, {"scores": "ab"}, {"nats": [0.1, None]}])
def test_a_record_that_does_not_fit_together(change: dict) -> None:
    with pytest.raises(MuteError, match="record of early stopping"):
        stopping_from_json(asdict(StopOnNoGain(3, nats=[0.1, 0.2], scores=[4.0, 1.0])) | change)
