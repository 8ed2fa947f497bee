"""The outcome of an audit, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from mute.adversaries.estimates import Estimate
from mute.evaluation.advice import Cause, advice, want_of_rows
from mute.evaluation.counterfactuals import Move
from mute.evaluation.fairness import Fairness
from mute.evaluation.page import audit_page
from mute.evaluation.privacy import Privacy
from mute.evaluation.rendering import deliver, plain
from mute.evaluation.utility import Utility
from mute.evaluation.wording import markdown_of, next_lines, summary_of
from mute.typing import Json

__all__ = ["VERSION", "Leak", "Report", "TaskOutcome", "Verdict"]

# Raised when a report gets fields that its readers need.
VERSION = 2


@dataclass(frozen=True)
class Leak(Estimate):
    """Balanced accuracy above chance of the strongest adversary on unseen rows, its name, and the p-value of luck."""

    adversary: str = ""
    p_value: float = float("nan")


@dataclass(frozen=True)
class Verdict:
    """The judgement.

    "Erased": the interval of the strongest adversary's leak on unseen rows ends within `max_leak`. "Too few rows to
    say": it does not, but the leak itself is within `max_leak`, or luck explains it; `rows_to_settle` is about how many
    unseen rows would end the interval within `max_leak` if the leak stays as it is (None if the leak exceeds it). "Not
    erased": at least half of what could be read before can still be read, on training rows too where they are given.
    "Leaks": everything between. `kept` has the share of the leak before erasure that is left, by protocol and on
    training rows.
    """

    name: str
    leak: Leak
    max_leak: float
    kept: dict[str, float]
    rows_to_settle: int | None = None


@dataclass(frozen=True)
class TaskOutcome:
    """A downstream task: learned from original rows, learned from erased rows, and the commonest label always."""

    before: Fairness
    after: Fairness
    trivial: Fairness


@dataclass(frozen=True)
class Report:
    """The outcome of `mute.audit`.

    Attributes
    ----------
    decision : Verdict
    privacy : Privacy
    utility : Utility
    task : TaskOutcome, optional
    counterfactuals : tuple of Move, optional
    routing, diagnostics, layers, picture, about, certificate
        What else the figures show, as plain values.

    See Also
    --------
    mute.audit, mute.compare

    Notes
    -----
    *Limits.* `to_html` needs ``pip install "mute-erasure[report]"``. The other formats need nothing.
    """

    decision: Verdict
    privacy: Privacy
    utility: Utility
    task: TaskOutcome | None
    counterfactuals: tuple[Move, ...] | None
    routing: Json | None
    diagnostics: Json | None
    layers: list[tuple[int, float]] | None
    picture: Json
    about: Json
    certificate: Json | None = None

    @property
    def verdict(self) -> str:
        """One of "erased", "too few rows to say", "leaks" and "not erased"."""
        return self.decision.name

    @property
    def leak(self) -> Leak:
        """Balanced accuracy above chance of the strongest adversary on unseen rows."""
        return self.decision.leak

    @property
    def summary(self) -> list[str]:
        """The report in sentences, the strongest adversary first."""
        return summary_of(self.to_dict())

    @property
    def next(self) -> list[Cause]:
        """Causes of a leak, the largest first, and what to try next; empty where no leak was found."""
        return advice(self._figures())

    def with_files(self, **files: str | None) -> Report:
        """The same report with these files in the steps of `next`: model, x, concept, fit_rows, fit_concept."""
        return replace(self, about={**self.about, "files": files})

    def _figures(self) -> Json:
        return {"version": VERSION, **plain(self)}

    def to_dict(self) -> Json:
        """Plain values only; what is not a number becomes None."""
        figures = self._figures()
        return {**figures, "next": plain(self.next), "want_of_rows": plain(want_of_rows(figures))}

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text, also written to `path` where given."""
        return deliver(json.dumps(self.to_dict(), indent=1), path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """As Markdown text, also written to `path` where given."""
        return deliver(markdown_of(self.to_dict()), path)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained page with interactive figures, also written to `path` where given."""
        return deliver(audit_page(self.to_dict()), path)

    def _repr_html_(self) -> str:
        said = [*self.summary, *next_lines(self.to_dict())]
        lines = "".join(f"<li>{escape(line)}</li>" for line in said)
        return f"<b>{escape(self.about['eraser'])}: {self.verdict}</b><ul>{lines}</ul>"

    def __repr__(self) -> str:
        return f"Report({self.verdict!r}, leak={self.leak.value:.3f} by {self.leak.adversary})"
