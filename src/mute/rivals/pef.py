"""PEF: erasure by couplings of finitely many atoms, the optimum where the rows have finitely many values."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from mute.errors import MuteError, warn_weak_result
from mute.estimators.base import ConceptEstimator
from mute.estimators.settings import COUNT, POSITIVE, one_of
from mute.flow.network import Network
from mute.typing import Array, Constraints, Json, LabelsLike, Seed

__all__ = ["PEF"]

# The "auto" number of atoms: their probabilities are shares of about this many rows each.
_ROWS_PER_ATOM, _FEWEST_ATOMS, _MOST_ATOMS = 20, 10, 1000
_KMEANS_ITERATIONS = 50
# Atoms rarer than _RAREST are left out; ends of intervals closer than _SAME differ by rounding only.
_RAREST, _SAME = 1e-12, 1e-13
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: its multiples fill the circle evenly
_BLOCK = 256


@dataclass(eq=False, repr=False)
class PEF(ConceptEstimator):
    r"""Perfect erasure functions: each class is coupled with one output law on finitely many atoms.

    Class k has atoms with the law :math:`P_k`. A coupling :math:`J_k` of :math:`P_k` with a law Q that all classes
    share says how the atoms of class k spread over the outputs: the output has the law Q in every class. With H for
    entropy, the output keeps

    .. math:: I(X; f(X)) = H(Q) - \sum_k \pi_k H(J_k) + \sum_k \pi_k H(P_k) \le H(X \mid Z)

    of the rows, so the couplings should have little entropy. The greedy one sorts both laws and fills the largest
    atoms of one from the largest of the other. Q is the best of :math:`P_1, ..., P_K`, on the atoms of that class.

    Parameters
    ----------
    n_atoms : int or "auto", default="auto"
        The most atoms of each class. A class with no more distinct rows than that has its rows as atoms, which is the
        authors' setting. Otherwise the atoms are centres of k-means, which lie much nearer to the rows than as many
        rows drawn at random. "auto" takes one atom for every 20 rows, but at least 10 and at most 1000.
    probabilities : {"share", "kde"}, default="share"
        The law of the atoms of a class. "share": the share of its rows that are nearest to each, which gives the
        classes the same output law on the training rows. "kde" (the authors): a Gaussian kernel density of its rows at
        each atom, which does so only as far as densities agree with shares.
    bandwidth : float, default=0.5
        Of the kernel density.
    draw : {"row", "copy"}, default="row"
        Source of the random number that chooses among the outputs of an atom. "row": the values of the row, so that
        equal rows have equal outputs in any batch. "copy": also the number of equal rows of its atom that come before
        it in the call, so that copies spread as the coupling says. If rows repeat (a finite support) only "copy"
        erases, and the copies must come in one call.
    random_state : int, RandomState or None
        Two fits with the same int give the same eraser.

    Attributes
    ----------
    atoms_ : array of shape (A, D)
        The atoms of all classes, class by class.
    atom_class_, law_ : arrays of shape (A,)
        The class of each atom, as an index into `classes_`, and its probability within that class.
    couplings_ : array of shape (E, 3)
        One line for each pair of atoms that a coupling joins: source, output and probability, by source.
    utility_, bound_ : float
        I(X; f(X)) in nats, for rows that are atoms and classes without common atoms; and H(X | Z), the most that
        perfect erasure can keep.
    seed_ : int
        Of the draws.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    MUtE : Bijections between the classes in place of finitely many atoms.

    Notes
    -----
    *Guarantees.* Given the class, and with probabilities by share, every class has the same output law on the training
    rows, up to the error of as many random draws. If the laws of the classes are equal up to the order of their atoms,
    the map is a bijection of atoms given the class, and `utility_` reaches `bound_`.

    *Limits.* Outputs are atoms: of a row, only its nearest atom counts, and at most log A nats of it stay. Unseen rows
    fall to the atoms in other shares than the training rows, the more so the fewer rows an atom has, and that shows
    in their outputs. The greedy coupling is not always that of least entropy. The authors' search for a better Q by
    Bayesian optimisation, with as many dimensions as there are atoms, is left out.

    *Labels.* Not needed, but the guarantee needs them. Without labels a row takes the nearest atom of all classes,
    which also decides its class; if classes overlap, many rows take the coupling of another class and leak.
    ``fit_transform`` uses no labels.

    *Cost.* k-means on up to 20 rows an atom; K² couplings, each one sort; to transform, one distance to every atom.

    References
    ----------
    S. B. R. Chowdhury et al., "Fundamental Limits of Perfect Concept Erasure", AISTATS 2025.

    Examples
    --------
    Two classes with three values each, of equal laws but for the order: nothing is lost.

    >>> import numpy as np
    >>> from mute.rivals.pef import PEF
    >>> z = np.repeat(["a", "b"], 600)
    >>> X = np.concatenate([np.repeat([1.0, 2.0, 3.0], [300, 200, 100]), np.repeat([7.0, 8.0, 9.0], [100, 200, 300])])
    >>> eraser = PEF(draw="copy").fit(X[:, None], z)
    >>> Q = eraser.transform(X[:, None], concept=z)
    >>> [np.unique(Q[z == k], return_counts=True)[1].tolist() for k in ("a", "b")]
    [[300, 200, 100], [300, 200, 100]]
    >>> bool(np.isclose(eraser.utility_, eraser.bound_))
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "n_atoms": [*COUNT, *one_of("auto")],
        "probabilities": one_of("share", "kde"),
        "bandwidth": POSITIVE,
        "draw": one_of("row", "copy"),
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        "authors-synthetic": {"n_atoms": 50, "probabilities": "kde", "bandwidth": 0.5, "draw": "copy"},
    }
    _STORED: ClassVar[dict[str, str]] = {
        "atoms_": "A D",
        "atom_class_": "A",
        "law_": "A",
        "couplings_": "E triple",
        **dict.fromkeys(("utility_", "bound_", "seed_"), "plain"),
    }

    n_atoms: int | str = "auto"
    _: KW_ONLY
    probabilities: str = "share"
    bandwidth: float = 0.5
    draw: str = "row"
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        rng = self._generator()
        self.seed_ = int(rng.integers(2**31 - 1))
        rows = [X[z == k] for k in range(len(self.classes_))]
        atoms, laws = zip(*(self._atoms_of(mine, rng) for mine in rows), strict=True)
        shares = np.bincount(z) / len(z)
        self.bound_ = float(shares @ [entropy(p) for p in laws])
        self.utility_, best = -np.inf, 0
        for j in self._steps(len(laws), "output law"):
            cost = shares @ [entropy(couple(p, laws[j])[2]) for p in laws]
            utility = float(entropy(laws[j]) - cost) + self.bound_
            if utility > self.utility_:
                self.utility_, best = utility, j
        self.atoms_, self.law_ = np.concatenate(atoms), np.concatenate(laws)
        self.atom_class_ = np.repeat(np.arange(len(laws), dtype=float), [len(p) for p in laws])
        first = np.searchsorted(self.atom_class_, np.arange(len(laws)))
        lines = []
        for p, start in zip(laws, first, strict=True):
            source, output, mass = couple(p, laws[best])
            lines.append(np.column_stack([start + source, first[best] + output, mass]))
        self.couplings_ = np.concatenate(lines)

    def _atoms_of(self, X: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.float64]]:
        """Atoms of the class with these rows, and their law."""
        most = self.n_atoms
        if isinstance(most, str):
            most = min(max(len(X) // _ROWS_PER_ATOM, _FEWEST_ATOMS), _MOST_ATOMS)
        distinct = np.unique(digests(X, 0), return_index=True)[1]
        if self.draw == "row" and 2 * len(distinct) < len(X):
            warn_weak_result(
                f"{len(X)} rows of a class have only {len(distinct)} distinct values; equal rows get equal outputs, "
                'so the output laws of the classes will differ: use draw="copy"'
            )
        atoms = X[np.sort(distinct)] if len(distinct) <= most else centres(X, int(most), rng)
        if self.probabilities == "share":
            law = np.bincount(nearest(X, atoms), minlength=len(atoms)) / len(X)
        else:
            law = densities(X, atoms, self.bandwidth)
        kept = law > _RAREST
        return atoms[kept], law[kept] / law[kept].sum()

    def _transform(self, X: Array, concept: LabelsLike) -> NDArray[np.floating]:
        return self._erase(X, None if concept is None else self._encode(concept, len(X), "concept"))

    def _erase(self, X: Array, k: NDArray[np.int64] | None = None) -> NDArray[np.floating]:
        source = self._source(X, k)
        chance = digests(X, self.seed_)
        if self.draw == "copy":
            chance += _GOLDEN * copies(chance + source.astype(np.uint64))
        # Each line of the couplings is an interval of [source, source + 1); 32 bits keep the sum below the next.
        line = np.searchsorted(self._interval_ends(), source + (chance >> np.uint64(32)) / 2**32, side="right")
        return self.atoms_[self.couplings_[line, 1].astype(np.int64)].astype(X.dtype, copy=False)

    def _source(self, X: Array, k: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Nearest atom of each row: of its class, or of all classes."""
        if k is None:
            return nearest(X, self.atoms_)
        out = np.empty(len(X), np.int64)
        for c in np.unique(k):
            mine = np.flatnonzero(self.atom_class_ == c)
            out[k == c] = mine[nearest(X[k == c], self.atoms_[mine])]
        return out

    def _interval_ends(self) -> NDArray[np.float64]:
        """For each line of the couplings, its source plus the probability of all outputs up to it, given the source."""
        source, mass = self.couplings_[:, 0].astype(np.int64), self.couplings_[:, 2]
        last = np.flatnonzero(np.diff(source, append=-1))
        total = np.cumsum(mass)
        before = np.concatenate([[0.0], total[last[:-1]]])
        ends = source + (total - before[source]) / (total[last] - before)[source]
        ends[last] = source[last] + 1
        return ends

    def _check_restored(self) -> None:
        n, k, code = len(self.law_), len(self.classes_), self.atom_class_
        if not np.array_equal(np.unique(code), np.arange(k)) or (np.diff(code) < 0).any():
            raise MuteError("its atoms are not in the order of its classes")
        lines = self.couplings_
        if lines.shape[1] != 3 or not np.isin(lines[:, :2], np.arange(n)).all():
            raise MuteError("its couplings do not fit its atoms")
        (source, output), mass = lines[:, :2].T.astype(np.int64), lines[:, 2]
        if not np.array_equal(np.unique(source), np.arange(n)) or (np.diff(source) < 0).any() or (mass <= 0).any():
            raise MuteError("its couplings do not spread every atom in turn")
        # What each class gives to each atom, by pairs: a matrix of classes and atoms may be far larger than the file.
        pairs, place = np.unique(code[source].astype(np.int64) * n + output, return_inverse=True)
        shared = np.where(code == code[output[0]], self.law_, 0.0)
        exact = np.allclose(np.bincount(source, mass, n), self.law_, rtol=0, atol=1e-9)
        spread = np.allclose(np.bincount(place, mass), shared[pairs % n], rtol=0, atol=1e-9)
        if not exact or not spread or (shared[pairs % n] > 1e-9).sum() != k * (shared > 1e-9).sum():
            raise MuteError("its couplings do not have the laws of its atoms")
        if type(self.seed_) is not int or not 0 <= self.seed_ < 2**31:
            raise MuteError(f"its seed cannot be {self.seed_!r}")


def couple(
    p: NDArray[np.float64], q: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Greedy coupling of two laws without zeros: the largest atoms first, as much as both still have.

    Both sorted, the atoms of a law are intervals of [0, 1]; the coupling is how the two rows of intervals overlap.
    Returns source, output and probability of each pair of atoms that it joins, by source.
    """
    p_order, q_order = np.argsort(-p, kind="stable"), np.argsort(-q, kind="stable")
    p_ends, q_ends = np.cumsum(p[p_order]), np.cumsum(q[q_order])
    p_ends[-1] = q_ends[-1] = 1.0
    near = p_ends[np.minimum(np.searchsorted(p_ends, q_ends - _SAME), len(p) - 1)]
    q_ends = np.where(np.abs(near - q_ends) <= _SAME, near, q_ends)
    ends = np.union1d(p_ends, q_ends)
    source, output = p_order[np.searchsorted(p_ends, ends)], q_order[np.searchsorted(q_ends, ends)]
    by_source = np.argsort(source, kind="stable")
    return source[by_source], output[by_source], np.diff(ends, prepend=0.0)[by_source]


def entropy(p: NDArray[np.float64]) -> float:
    """Entropy in nats of a law without zeros."""
    return float(-(p * np.log(p)).sum())


def nearest(X: Array, atoms: Array) -> NDArray[np.int64]:
    """Index of the atom nearest to each row."""
    center = atoms.mean(axis=0, dtype=np.float64)
    places = atoms - center
    # |x - a|² is least where <x, a> - |a|² / 2 is largest, which is a linear layer.
    score = Network([places.T], [-0.5 * (places**2).sum(axis=1)])
    return np.concatenate([score(X[part] - center).argmax(axis=1) for part in gen_batches(len(X), _BLOCK)])


def centres(X: Array, n: int, rng: np.random.Generator) -> Array:
    """Centres of k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    sample = X[np.sort(rng.permutation(len(X))[: _ROWS_PER_ATOM * n])]
    kmeans = KMeans(n, n_init=1, max_iter=_KMEANS_ITERATIONS, random_state=int(rng.integers(2**31 - 1)))
    # Several threads add up in no fixed order, and two fits would differ in the last bits.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer centres than asked for will do
        return kmeans.fit(sample).cluster_centers_.astype(X.dtype, copy=False)


def densities(X: Array, atoms: Array, bandwidth: float) -> NDArray[np.float64]:
    """Gaussian kernel density of the rows at each atom, as a law."""
    from scipy.special import logsumexp
    from sklearn.metrics import pairwise_distances_chunked

    chunks = pairwise_distances_chunked(atoms.astype(np.float64), X.astype(np.float64), metric="sqeuclidean")
    logs = np.concatenate([logsumexp(-0.5 * chunk / bandwidth**2, axis=1) for chunk in chunks])
    return np.exp(logs - logsumexp(logs))


def digests(X: Array, seed: int) -> NDArray[np.uint64]:
    """64 random bits for each row, made from its values and the seed alone."""
    key = seed.to_bytes(8, "little")
    out = np.empty(len(X), np.uint64)
    for part in gen_batches(len(X), _BLOCK):
        block = X[part].astype("<f8") + 0.0  # -0 becomes 0: equal rows have equal bytes
        hashes = b"".join(blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in block)
        out[part] = np.frombuffer(hashes, "<u8")
    return out


def copies(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """How many equal values come before each."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=~values[order[:1]]))
    out = np.empty(len(values), np.uint64)
    out[order] = np.arange(len(values)) - np.repeat(starts, np.diff(starts, append=len(values)))
    return out
