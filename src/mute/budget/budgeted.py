"""Any eraser with a leak budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from mute.budget.channel import Bits
from mute.budget.spending import Spending, erased_rows, group_codes
from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.registry import HOMES, class_of
from mute.estimators.settings import BETWEEN_0_AND_1
from mute.rows.validation import concept_of, random_state_of
from mute.typing import Array, Constraints, Json, LabelsLike, Method, Ops, RowsLike, Seed, Value

__all__ = ["Budgeted"]

_INNER = "eraser."


def _has(method: str) -> Callable[[Method], bool]:
    """Whether the eraser of a `Budgeted` has this method."""
    return lambda budgeted: hasattr(getattr(budgeted, "eraser_", budgeted.eraser), method)


class Budgeted(Spending, ConceptEstimator):
    """An eraser followed by as little noise as keeps its leak within a budget.

    Folds of the training rows decide: the eraser is fitted on one half, erases the other half, and a panel of
    adversaries learns and is judged there; then the halves change places. The channel that keeps most of the rows and
    whose leak stays within the budget is used after the eraser, which is then fitted on all rows.

    Parameters
    ----------
    eraser : eraser
        Any method of this package, such as ``LEACE()``. A clone of it is fitted.
    max_leak : float, default=0.03
        The budget: balanced accuracy above chance of the strongest adversary on unseen rows. The upper end of its
        interval must be within it.
    random_state : int, RandomState or None
        Of the folds, the adversaries and the secret.

    Attributes
    ----------
    eraser_ : eraser
        The fitted, lossless eraser.
    channel_, leak_, r2_, budget_
        As in `MUtE`.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    MUtE : Has its own ``max_leak``.
    mute.certify : A bound for every adversary, not only those of the panel.

    Notes
    -----
    *Guarantees.* The leak on folds of the training rows, `leak_`, has its upper end within the budget. The fit on all
    rows leaks less: its estimates have half the variance.

    *Limits.* The budget holds for the adversaries of the panel with as many rows as there were. `fit` raises
    `BudgetNotMet` if no setting keeps the budget. Rows must fit in memory.

    *Labels.* As the eraser. *Cost.* Two fits on halves, one fit on all rows, and about a dozen runs of the panel.

    References
    ----------
    G. Bertoni, J. Daemen, M. Peeters and G. Van Assche, "Keccak", EUROCRYPT 2013: the hash that draws the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from mute import Budgeted
    >>> from mute.rivals import LEACE
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat([0, 1], 1000)
    >>> X = rng.normal(size=(2000, 3)) + 2 * z[:, None]
    >>> eraser = Budgeted(LEACE(), max_leak=0.05, random_state=0).fit(X, z)
    >>> bool(eraser.leak_.high <= 0.05)
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {"max_leak": BETWEEN_0_AND_1}

    def __init__(self, eraser: Method = None, max_leak: float = 0.03, *, random_state: Seed = None) -> None:
        self.eraser = eraser
        self.max_leak = max_leak
        self.random_state = random_state

    def fit(
        self,
        X: RowsLike,
        y: LabelsLike = None,
        *,
        concept: LabelsLike = None,
        task: LabelsLike = None,
        groups: LabelsLike = None,
        secret: bytes | str | None = None,
    ) -> Self:
        """Learn the eraser and its channel.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,), optional
            The concept's labels. Give them here or as `concept`.
        concept : array-like of shape (n,), optional
            The concept's labels if `y` has other labels, as in a pipeline.
        task : array-like of shape (n,), optional
            Labels of a task, for an eraser that learns from them.
        groups : array-like of shape (n,), optional
            The source of each row (document, person). Rows of one group are never on two sides of a fold.
        secret : bytes or str, optional
            The key of the noise, at least 16 random bytes. A file of the model then does not contain it, and
            ``mute.load(path, secret=...)`` needs it. By default the key is drawn and kept in the file.
        """
        self._given = {"task": task, "groups": groups, "secret": secret}
        try:
            return self._fit(X, y, concept)
        finally:
            self.__dict__.pop("_given", None)

    def _learn(self, X: Array, z: Array) -> str | None:
        self._spend_nothing()
        if self.eraser is None or not hasattr(self.eraser, "fit"):
            raise MuteError(f"Budgeted needs an eraser to fit, such as Budgeted(LEACE()), not {self.eraser!r}")
        task, groups = self._given["task"], group_codes(self._given["groups"], len(X))
        more = {} if task is None else {"task": concept_of(len(X), task, None)}
        labels = self._encoder.as_array()

        def fit(rows: NDArray[np.bool_]) -> Method:
            part = {name: np.asarray(given)[rows] for name, given in more.items()}
            return _seeded(clone(self.eraser), self._seed()).fit(X[rows], labels[z[rows]], **part)

        point = self._search_budget(fit, X, z, labels, groups, self._given["secret"])
        self.eraser_ = fit(np.ones(len(X), bool))
        sha256 = str(self.eraser_.fitted_on_["sha256_of_rows"])
        Q = erased_rows(self.eraser_, X, labels[z])
        self._open_channel(point, Q, X, sha256)
        self._n_features_out = Q.shape[1] if self.channel_ is None else self.channel_.width
        return sha256

    @property
    def needs_concept(self) -> bool:
        """Whether `transform` requires labels."""
        return bool(getattr(self.eraser_, "needs_concept", False))

    def _transform(self, X: Array, concept: LabelsLike) -> NDArray[np.floating]:
        return self._publish(self.eraser_.nameless().transform(X, concept=concept), X)

    def _transform_with(self, ops: Ops, x: Value, concept: LabelsLike) -> Value:
        raise MuteError("an eraser with a leak budget draws noise from a hash of each row; give X.cpu().numpy()")

    @available_if(_has("route"))
    def route(self, X: RowsLike) -> Array:
        """The class that the router of the eraser gives each row."""
        return self.eraser_.route(X)

    @available_if(_has("inverse_transform"))
    def inverse_transform(self, Q: RowsLike, concept: LabelsLike = None) -> Array:
        """Undo the lossless eraser; of published rows, what the noise left of them comes back.

        Where one bit of each column is published, published rows are no erased rows, and have no inverse.
        """
        return self.eraser_.inverse_transform(Q, concept=concept)

    @available_if(_has("counterfactual"))
    def counterfactual(self, X: RowsLike, target: LabelsLike, *, concept: LabelsLike = None) -> Array:
        """The rows under another class, by the lossless eraser."""
        return self.eraser_.counterfactual(X, target, concept=concept)

    def _to_artifact(self) -> tuple[dict[str, NDArray], Json]:
        """The eraser's own file within this one, and the channel."""
        tensors, state = self.eraser_._to_artifact()
        parts, budget = self._budget_state()
        seed = self.random_state if isinstance(self.random_state, int | np.integer | None) else None
        own = {"max_leak": self.max_leak, "random_state": None if seed is None else int(seed)}
        inner = {"kind": type(self.eraser_).__name__, "state": state}
        return {**{_INNER + name: a for name, a in tensors.items()}, **parts}, {
            "parameters": own, "eraser": inner, "budget": budget,
            "feature_names": [*getattr(self, "feature_names_in_", ())],
        }  # fmt: skip

    @classmethod
    def _from_artifact(cls, tensors: dict[str, NDArray], state: Json) -> Self:
        inner, own = state["eraser"], state["parameters"]
        if not isinstance(inner["kind"], str) or inner["kind"] not in HOMES or inner["kind"] == cls.__name__:
            raise MuteError(f"it contains an eraser of kind {inner['kind']!r}, which this version does not know")
        parts = {name.removeprefix(_INNER): a for name, a in tensors.items() if name.startswith(_INNER)}
        eraser = class_of(inner["kind"])._from_artifact(parts, inner["state"])
        random_state_of(own["random_state"])
        new = cls(clone(eraser), own["max_leak"], random_state=own["random_state"])
        new._check_settings()
        new.eraser_, new.fitted_on_ = eraser, eraser.fitted_on_
        new._restore_budget(tensors, state["budget"])
        new._encoder, new.classes_ = eraser._encoder, eraser.classes_
        new.n_features_in_ = eraser.n_features_in_
        # One bit is published of each column of the row itself, whatever the eraser gives.
        new._n_features_out = eraser.n_features_in_ if isinstance(new.channel_, Bits) else eraser._n_features_out
        if names := state["feature_names"]:
            if len(names) != new.n_features_in_ or not all(isinstance(name, str) for name in names):
                raise MuteError("its feature names do not fit its maps")
            new.feature_names_in_ = np.array(names, object)
        if new.channel_ is not None and new.channel_.width != new._n_features_out:
            raise MuteError("its channel does not fit its eraser")
        return new


def _seeded(eraser: Method, seed: int) -> Method:
    """The eraser, with a seed if it takes one and has none."""
    settings = eraser.get_params(deep=False)
    return eraser.set_params(random_state=seed) if settings.get("random_state", 0) is None else eraser
