"""Perfect erasure functions: what the couplings promise, and that the outputs keep it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.neighbors import KernelDensity
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from laws import draw
from mute import MuteError, WeakResultWarning
from mute.rivals.pef import PEF, copies, couple, densities, digests, entropy, nearest


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")  # some checks repeat their rows
@parametrize_with_checks([PEF(), PEF(3, probabilities="kde", draw="copy")])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def random_law(n: int, seed: int) -> NDArray[np.float64]:
    p = np.random.default_rng(seed).gamma(0.5, size=n) + 1e-6
    return p / p.sum()


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 7), (7, 1), (50, 50), (1000, 800)])
def test_a_coupling_has_the_two_laws(n: int, m: int) -> None:
    p, q = random_law(n, 0), random_law(m, 1)
    source, output, mass = couple(p, q)
    # Sums of up to a thousand numbers below 1, and ends that are at most 1e-13 apart taken as one.
    np.testing.assert_allclose(np.bincount(source, mass, n), p, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.bincount(output, mass, m), q, rtol=0, atol=1e-12)
    assert len(mass) <= n + m - 1 and (mass > 0).all()
    # The joint law tells at least as much as each of its two, and the greedy coupling beats the independent one.
    assert max(entropy(p), entropy(q)) - 1e-9 <= entropy(mass) <= entropy(p) + entropy(q) + 1e-9


def test_equal_laws_are_matched_one_to_one_in_spite_of_rounding() -> None:
    p = random_law(300, 0)
    order = np.random.default_rng(1).permutation(300)
    q = p[order] * (1 + 1e-16 * np.arange(300))
    source, output, mass = couple(p, q / q.sum())
    assert len(mass) == 300
    np.testing.assert_allclose(mass, p, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(order[output], source)


def finite(counts: list[list[int]], seed: int = 0) -> tuple[NDArray, NDArray]:
    """Rows of three columns with so many copies of each value, no value in two classes, shuffled."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([np.repeat(rng.normal(size=(len(c), 3)) + 10 * k, c, axis=0) for k, c in enumerate(counts)])
    z = np.repeat(np.arange(len(counts)), [sum(c) for c in counts])
    order = rng.permutation(len(X))
    return X[order], z[order]


def test_classes_of_equal_laws_lose_nothing() -> None:
    X, z = finite([[400, 300, 200, 100], [100, 200, 300, 400], [300, 100, 400, 200]])
    eraser = PEF(draw="copy").fit(X, z)
    p = np.array([0.4, 0.3, 0.2, 0.1])
    assert eraser.bound_ == pytest.approx(entropy(p), abs=1e-12)
    assert eraser.utility_ == pytest.approx(eraser.bound_, abs=1e-12)
    assert len(eraser.couplings_) == 12, "one output for each atom"
    Q = eraser.transform(X, concept=z)
    for k in range(3):
        before, after = (np.unique(rows[z == k], axis=0, return_inverse=True)[1] for rows in (X, Q))
        assert len(np.unique(np.column_stack([before, after]), axis=0)) == 4, "a bijection given the class"
        np.testing.assert_array_equal(np.unique(Q[z == k], axis=0), np.unique(Q, axis=0))
        assert sorted(np.unique(Q[z == k], axis=0, return_counts=True)[1]) == [100, 200, 300, 400]


COUNTS = [[5000, 3000, 1500, 500], [2500, 2500, 2500, 1500, 1000], [9000, 500, 500]]


def test_every_class_gets_the_same_output_law() -> None:
    X, z = finite(COUNTS)
    eraser = PEF(draw="copy", random_state=0).fit(X, z)
    Q = eraser.transform(X, concept=z)
    values = np.unique(Q, axis=0)
    assert len(values) > 1
    shares = [[(Q[z == k] == v).all(axis=1).mean() for v in values] for k in range(3)]
    # Copies of a row follow the golden-ratio sequence: of n points, the number in an interval is off by less than
    # 2 + log2(n) = 15; an output atom takes an interval from at most five atoms of 10,000 rows.
    assert np.ptp(shares, axis=0).max() < 2 * 5 * 15 / 10_000
    law = eraser.law_[np.unique(eraser.couplings_[:, 1]).astype(int)]
    np.testing.assert_allclose(np.sort(shares[0]), np.sort(law), atol=5 * 15 / 10_000)


def test_utility_is_the_mutual_information_of_rows_and_outputs() -> None:
    X, z = finite([[c // 10 for c in counts] for counts in COUNTS])
    eraser = PEF(draw="copy").fit(X, z)
    weight = np.bincount(z) / len(z)
    source, output = eraser.couplings_[:, :2].T.astype(int)
    joint = np.zeros((len(eraser.law_),) * 2)
    joint[source, output] = eraser.couplings_[:, 2] * weight[eraser.atom_class_[source].astype(int)]
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    information = (joint[joint > 0] * np.log(joint[joint > 0] / outer[joint > 0])).sum()
    assert eraser.utility_ == pytest.approx(information, abs=1e-12)
    assert 0 < eraser.utility_ < eraser.bound_


def test_no_other_class_offers_a_better_output_law() -> None:
    X, z = finite(COUNTS)
    laws = [np.array(c) / sum(c) for c in COUNTS]
    utilities = [
        entropy(q) + np.mean([entropy(p) - entropy(couple(p, q)[2]) for p in laws]) for q in laws
    ]  # the classes have equally many rows
    assert PEF(draw="copy").fit(X, z).utility_ == pytest.approx(max(utilities), abs=1e-12)


def test_the_class_whose_law_it_is_stays_as_it_is() -> None:
    X, z = finite(COUNTS)
    eraser = PEF(draw="copy").fit(X, z)
    own = z == eraser.atom_class_[int(eraser.couplings_[0, 1])]
    np.testing.assert_array_equal(eraser.transform(X[own], concept=z[own]), X[own])


@pytest.mark.parametrize("n_atoms", ["auto", 30])
def test_embeddings_of_every_class_get_the_same_output_law(n_atoms: Any) -> None:
    X, z = draw("skew", 3000, 4, seed=0, n_classes=3)
    eraser = PEF(n_atoms, random_state=0).fit(X, z)
    Q = eraser.transform(X, concept=z)
    goal = np.unique(eraser.couplings_[:, 1]).astype(int)
    assert len(goal) <= (150 if n_atoms == "auto" else 30)
    place = nearest(Q, eraser.atoms_[goal])
    np.testing.assert_array_equal(Q, eraser.atoms_[goal][place])
    for k in range(3):
        expected = 3000 * eraser.law_[goal]
        found = np.bincount(place[z == k], minlength=len(goal))
        # Pearson's statistic of as many independent draws has mean df and variance 2 df; these vary less.
        df = len(goal) - 1
        assert ((found - expected) ** 2 / expected).sum() < df + 4 * np.sqrt(2 * df)


def test_without_labels_far_classes_are_told_by_their_atoms() -> None:
    X, z = draw("gauss", 500, 3, seed=0)
    X[z == 1] += 100
    new, z_new = draw("gauss", 200, 3, seed=1)
    new[z_new == 1] += 100
    eraser = PEF(random_state=0).fit(X, z)
    np.testing.assert_array_equal(eraser.transform(new), eraser.transform(new, concept=z_new))
    assert not eraser.needs_concept


def test_a_row_has_one_output_whatever_the_batch() -> None:
    X, z = draw("gauss", 300, 5, seed=0)
    eraser = PEF(random_state=0).fit(X, z)
    Q = eraser.transform(X)
    for one in (0, 17, 599):
        np.testing.assert_array_equal(eraser.transform(X[one : one + 1])[0], Q[one])
    order = np.random.default_rng(0).permutation(len(X))[:333]
    np.testing.assert_array_equal(eraser.transform(X[order]), Q[order])
    np.testing.assert_array_equal(eraser.transform(np.repeat(X[:1], 40, axis=0)), np.repeat(Q[:1], 40, axis=0))


def test_rows_between_two_atoms_do_not_depend_on_the_batch() -> None:
    """Exact ties are decided by rounding, which must be the same for one row as for many."""
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), -1).reshape(-1, 2) / 3
    ties = grid + 1 / 6
    together = nearest(ties, grid)
    np.testing.assert_array_equal([nearest(row[None], grid)[0] for row in ties], together)


def test_digests_belong_to_numbers_not_to_bytes() -> None:
    X = np.array([[0.0, 1.5], [-0.0, 1.5], [0.0, -1.5]])
    first, second, third = digests(X, 3)
    assert first == second != third
    np.testing.assert_array_equal(digests(X.astype(np.float32), 3), digests(X, 3))
    assert digests(X, 4)[0] != first


def test_draws_are_uniform() -> None:
    u = (digests(np.arange(20_000.0)[:, None], 0) >> np.uint64(32)) / 2**32
    counts = np.bincount((u * 20).astype(int), minlength=20)
    assert ((counts - 1000) ** 2 / 1000).sum() < 19 + 4 * np.sqrt(38)  # Pearson's statistic, as above


def test_copies_are_counted() -> None:
    assert copies(np.array([5, 3, 5, 5, 3, 0], np.uint64)).tolist() == [0, 0, 1, 2, 1, 0]
    assert copies(np.zeros(1, np.uint64)).tolist() == [0]


def test_rows_that_repeat_are_warned_of() -> None:
    X, z = finite([[50, 50], [20, 80]])
    with pytest.warns(WeakResultWarning, match='use draw="copy"') as caught:
        PEF().fit(X, z)
    assert {w.filename for w in caught} == {__file__}


def test_kernel_densities_are_those_of_scikit_learn() -> None:
    X, _ = draw("gauss", 200, 2, seed=0)
    law = densities(X, X[:30], 0.5)
    expected = np.exp(KernelDensity(bandwidth=0.5).fit(X).score_samples(X[:30]))
    # The tree of scikit-learn stops at a relative error of 1e-8.
    np.testing.assert_allclose(law, expected / expected.sum(), rtol=1e-7)
    far = densities(1e6 * X, 1e6 * X[:30], 0.5)
    np.testing.assert_allclose(far, 1 / 30, rtol=1e-9)  # each row sees itself only


def test_few_distinct_rows_are_the_atoms() -> None:
    X, z = finite([[40, 30, 30], [60, 40]])
    eraser = PEF(5, draw="copy").fit(X, z)
    assert len(eraser.atoms_) == 5
    np.testing.assert_array_equal(np.unique(eraser.atoms_, axis=0), np.unique(X, axis=0))
    assert sorted(eraser.law_) == pytest.approx([0.3, 0.3, 0.4, 0.4, 0.6])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_and_file(dtype: type, tmp_path: Path) -> None:
    X, z = draw("clusters", 400, 6, seed=0, n_classes=3)
    X = X.astype(dtype)
    eraser = PEF(random_state=0).fit(X, np.array(["a", "b", "c"])[z])
    eraser.save(tmp_path / "pef.safetensors")
    loaded = mute.load(tmp_path / "pef.safetensors")
    for rows in (X, X.astype(np.float32), X.astype(np.float64)):
        Q = eraser.transform(rows)
        assert Q.dtype == rows.dtype
        np.testing.assert_array_equal(loaded.transform(rows), Q)
    assert loaded.utility_ == eraser.utility_ and loaded.bound_ == eraser.bound_


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("couplings_", (0, 0), 0.5),
        ("couplings_", (0, 1), 1e6),
        ("couplings_", (0, 2), 0.7),
        ("couplings_", (0, 2), -1.0),
        ("atom_class_", 0, 1.0),
        ("atom_class_", 0, 7.0),
        ("law_", 3, 0.9),
    ],
)
def test_files_that_contradict_themselves_are_refused(name: str, place: Any, value: float) -> None:
    X, z = draw("gauss", 200, 3, seed=0)
    tensors, state = PEF(random_state=0).fit(X, z)._to_artifact()
    tensors[name] = tensors[name].copy()
    tensors[name][place] = value
    with pytest.raises(MuteError, match=r"its (atoms|couplings)"):
        PEF._from_artifact(tensors, state)


def test_one_seed_one_eraser() -> None:
    X, z = draw("gauss", 500, 4, seed=0)
    first, again, other = (PEF(random_state=seed).fit(X, z).transform(X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_degenerate_rows() -> None:
    X = np.tile([[1.0, 2.0]], (40, 1))
    Q = PEF(draw="copy").fit(X, np.arange(40) % 2).transform(X)
    np.testing.assert_array_equal(Q, X)
    X = np.column_stack([np.random.default_rng(0).normal(size=300), np.full(300, 1e6)])
    Q = PEF(5, random_state=0).fit(X, np.arange(300) % 2).transform(X)
    np.testing.assert_allclose(Q[:, 1], 1e6, rtol=1e-12)  # a mean of equal numbers


@pytest.mark.parametrize(
    "settings",
    [
        {"n_atoms": 0},
        {"n_atoms": "many"},
        {"n_atoms": 2.5},
        {"probabilities": "exact"},
        {"draw": "random"},
        {"bandwidth": 0.0},
        {"bandwidth": "scott"},
        {"bandwidth": np.nan},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    X, z = draw("gauss", 20, 2, seed=0)
    with pytest.raises(MuteError, match=next(iter(settings))):
        PEF(**settings).fit(X, z)


@pytest.mark.parametrize("preset", PEF.PRESETS)
def test_presets(preset: str) -> None:
    X, z = finite([[60, 40], [30, 70]])
    eraser = PEF.from_preset(preset, random_state=0).fit(X, z)
    assert np.isin(eraser.transform(X, concept=z), eraser.atoms_).all()
