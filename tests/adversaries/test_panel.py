import numpy as np
import pytest

from mute.adversaries.panel import PANEL, ShrunkQuadratic, attack, panel_of
from mute.adversaries.scoring import cross_read


def read(X, z, n_classes=2, adversary="quadratic"):
    """Answers of an adversary on the second half of the rows."""
    half = len(X) // 2
    return attack(panel_of(adversary)[0], X[:half], z[:half], X[half:], n_classes, 0)


def test_the_quadratic_adversary_takes_a_class_without_spread_in_a_direction():
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    rng = np.random.default_rng(0)
    z = rng.integers(2, size=4000)
    X = rng.normal(size=(4000, 2)) * np.where(z == 0, 1.0, 3.0)[:, None] * [1.0, 1e-3]
    with pytest.raises(np.linalg.LinAlgError):  # what it is about
        QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(X, z)
    # The best answer, a cut at a distance of 2.22 from the middle, is right for 0.84 of the rows.
    assert np.mean(read(X, z).argmax(axis=1) == z[2000:]) > 0.82
    X[z == 0, 1] = 0.0  # one class has no spread at all there, whitened or not
    assert np.mean(read(X, z).argmax(axis=1) == z[2000:]) > 0.99


@pytest.mark.parametrize("rows", [200, 4000])  # few rows for the columns, and many
def test_the_quadratic_adversary_is_affine_invariant(rows):
    rng = np.random.default_rng(1)
    z = rng.integers(3, size=rows)
    X = rng.normal(size=(rows, 12)) * np.where(z == 0, 1.0, 1.3)[:, None] + 0.2 * z[:, None]
    moved = X @ (rng.normal(size=(12, 12)) * np.geomspace(1, 1e-2, 12)) + 5
    wider = np.hstack([moved, moved @ rng.normal(size=(12, 3)), np.ones((rows, 1))])  # and without new directions
    answers = read(X, z, 3)
    assert np.mean(answers.argmax(axis=1) == z[rows // 2 :]) > 0.4
    for same in (moved, wider):
        assert np.abs(read(same, z, 3) - answers).max() < 1e-6


def test_far_rows_do_not_blind_the_quadratic_adversary():
    from sklearn.covariance import ledoit_wolf

    rng = np.random.default_rng(2)
    z = np.tile([0, 1], 4000)
    X = rng.normal(size=(8000, 40))
    X[z == 1, :20] *= 1.3
    X[z == 1, 20:] /= 1.3  # the norm does not tell
    X[rng.choice(8000, 40, replace=False)] *= 10
    assert ledoit_wolf(X[z == 0])[1] == 1.0  # would leave nothing of the covariance
    # 0.69 with that; the best answer without far rows is right for 0.88.
    assert np.mean(read(X, z).argmax(axis=1) == z[4000:]) > 0.77


def test_lengths_do_not_blind_the_neighbours():
    from sklearn.neighbors import KNeighborsClassifier

    rng = np.random.default_rng(3)
    z = np.tile([0, 1], 2000)
    clouds = 0.5 * rng.normal(size=(20, 60))
    X = clouds[2 * rng.integers(10, size=4000) + z] + rng.normal(size=(4000, 60))
    X *= np.exp(rng.normal(size=(4000, 1)))
    nearest = KNeighborsClassifier(25).fit(X[:2000], z[:2000])
    assert nearest.score(X[2000:], z[2000:]) < 0.87  # to most rows the nearest are the short ones
    assert np.mean(read(X, z, adversary="neighbours").argmax(axis=1) == z[2000:]) > 0.91


def test_neighbours_see_length_alone():
    rng = np.random.default_rng(4)
    z = np.tile([0, 1], 2000)
    X = rng.normal(size=(4000, 2))
    X[z == 1] *= 1.4 / np.linalg.norm(X[z == 1], axis=1, keepdims=True)  # a circle among the rows of a Gaussian
    assert np.mean(read(X, z, adversary="neighbours").argmax(axis=1) == z[2000:]) > 0.85
    X[0] = 0.0  # a row without direction
    assert np.isfinite(read(X, z, adversary="neighbours")).all()


def test_shrunk_quadratic_is_scikit_learns() -> None:
    """The same answers as scikit-learn's own, which has shrinkage from 1.8 on."""
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    rng = np.random.default_rng(0)
    z = np.repeat([0, 1, 2], [200, 100, 50])
    X = rng.normal(size=(350, 4)) * (1 + z)[:, None] + z[:, None]
    for shrinkage in (1e-3, 0.5):
        ours, theirs = (
            ShrunkQuadratic(shrinkage).fit(X, z),
            QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=shrinkage).fit(X, z),
        )
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-9)
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("rows", [3000, 8000])  # to learn from 1,500, exactly, and 4,000, from landmarks
def test_the_narrow_kernel_reads_small_clusters(rows):
    """A chess board of 8 x 8 cells: the classes agree wherever one looks with a wide eye."""
    rng = np.random.default_rng(5)
    X = rng.random((rows, 2)) * 8
    z = X.astype(int).sum(axis=1) % 2
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    right = {
        name: np.mean(read(X, z, adversary=name).argmax(axis=1) == z[rows // 2 :])
        for name in ("logistic", "quadratic", "kernel", "narrow kernel")
    }
    assert right.pop("narrow kernel") > 0.85
    # 1,500 answers at least: three standard errors of a guess are 4 points.
    assert max(right.values()) < 0.56


def test_the_narrow_kernel_reads_nothing_in_noise():
    rng = np.random.default_rng(6)
    X, z = rng.normal(size=(6000, 20)), (rng.random(6000) < 0.2).astype(int)
    chances = read(X, z, adversary="narrow kernel")
    answers = (chances / (np.bincount(z[:3000]) / 3000)).argmax(axis=1)
    # 600 rows of the rare class: three standard errors of the mean recall are 3.4 points.
    assert np.mean([np.mean(answers[z[3000:] == k] == k) for k in (0, 1)]) == pytest.approx(0.5, abs=0.035)
    # Nor is it sure of anything: it would pay for that in bits.
    assert chances[:, 1].std() < 0.05


def test_the_narrow_kernel_takes_a_rare_class():
    rng = np.random.default_rng(7)
    X, z = rng.normal(size=(12000, 3)), (np.arange(12000) % 400 == 0).astype(int)
    assert np.isfinite(read(X, z, adversary="narrow kernel")).all()


@pytest.mark.parametrize("name", ["kernel", "narrow kernel"])
def test_sorted_rows_do_not_blind_the_kernels(name):
    """Small clusters in the order of a file: one half of the file says nothing of the other half."""
    rng = np.random.default_rng(8)
    clouds = np.repeat(np.arange(200), 10)
    X = 3 * rng.normal(size=(200, 30))[clouds] + 0.1 * rng.normal(size=(2000, 30))
    z = rng.integers(2, size=200)[clouds]
    learn = np.arange(2000) % 2 == 0
    X /= X.std(axis=0)
    chances = attack(panel_of(name)[0], X[learn], z[learn], X[~learn], 2, 0)
    assert np.mean(chances.argmax(axis=1) == z[~learn]) > 0.95


def test_noise_on_other_axes_hides_nothing_from_the_leading_axes() -> None:
    """Six axes of large variance hold a pattern of signs; 54 small ones are noise, which standardised columns equal."""
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=4000)
    signs = rng.choice([-1.0, 1.0], size=(4000, 2))
    signs[:, 1] = signs[:, 0] * np.where(z, 1, -1)
    X = 0.1 * rng.normal(size=(4000, 60))
    X[:, :6] = rng.normal(size=(4000, 6)) * 0.5
    X[:, :2] += 1.5 * signs
    read = {}
    for name in ("narrow kernel", "leading axes"):
        found = cross_read(PANEL[name], "fresh", X, z, 2, np.random.default_rng(0))
        read[name] = found.balanced_accuracy.value
    assert read["leading axes"] > 0.95
    assert read["narrow kernel"] < read["leading axes"] - 0.1
