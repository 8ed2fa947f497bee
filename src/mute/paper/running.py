"""Every study of the paper as a list of small jobs: run side by side, kept when done, and not run again."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

from mute.errors import MuteError
from mute.paper import texts as moving
from mute.paper.augmenting import TWINS, augmented
from mute.paper.budgets import BUDGETS, budget_jobs, frontier_of, spent
from mute.paper.copies import copied
from mute.paper.erasing import CORE, SLOW, entries, erase
from mute.paper.fresh import FRESH_SETS, SYNTHETIC, fresh, fresh_jobs, most_judge_rows, rows_to_fit
from mute.paper.problems import MORE, PROBLEMS, Problem, Words, describe, problem, words_of
from mute.paper.published import FAIRNESS
from mute.paper.synthetic import SHIFTS, synthetic
from mute.storage.files import write_atomically
from mute.typing import Json

__all__ = ["DEFAULT_STUDIES", "STUDIES", "Plan", "Results", "run"]

STUDIES = {
    "synthetic": "two mixtures in the plane: probes, and the picture of the moves",
    "tradeoff": "what can be read of the concept against what is kept, all methods on all data sets",
    "words": "WordSim correlation and the nearest 1 % of word vectors",
    "fairness": "a task after erasure: accuracy and gaps between the classes",
    "augmentation": "a task learned from rows and their counterfactuals",
    "surrogates": "copies of MUtE: time, task, gaps, probes",
    "text": "counterfactual texts: ways to move embeddings and ways to decode them",
    "fresh": "what is read of unseen rows, by training rows, columns and what is kept; about an hour on two cores",
    "budget": "a leak budget on unseen rows, its frontier and its certificate; about three hours on two cores",
}

# What is run when no study is named; long ones that are not in the paper must be asked for.
DEFAULT_STUDIES = tuple(name for name in STUDIES if name not in ("fresh", "budget"))

# What each study needs, besides texts.
_DATA_SETS: dict[str, Iterable[str]] = {
    "tradeoff": PROBLEMS, "words": ("glove",), "fairness": FAIRNESS, "augmentation": FAIRNESS, "surrogates": FAIRNESS,
    "fresh": FRESH_SETS, "budget": BUDGETS,
}  # fmt: skip

# Studies of unseen rows split the data themselves; their jobs depend on nothing but the rows.
_UNSEEN, _UNSEEN_JOBS = ("fresh", "budget"), ("fresh", "budget", "frontier")

_TEXTS = "texts"
_QUICK_ROWS = 800
_QUICK_MIXTURE = 500


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes
    ----------
    studies : tuple of str
        Names in `STUDIES`.
    paths : dict
        Data sets (glove, bios, dial, jigsaw, and texts, the biographies of the text study) to folders with the
        authors' files. Other data sets use their stand-ins; texts have none.
    pairs : str or None
        File of human judgements of words, in place of the default.
    rows : int or None
        Training rows at most; half as many of the two other parts. None: all.
    runs : int
        Seeds for each method of the paper's tables; other methods, and Jigsaw, which is in a figure only, get one.
    quick : bool
        One run on few rows, only the methods of the paper, and stand-ins that are not prepared are left out.
    inverter : str or None
        Folder of a trained inverter, to decode texts with as well.
    """

    studies: tuple[str, ...] = DEFAULT_STUDIES
    paths: dict[str, str] = field(default_factory=dict)
    pairs: str | None = None
    rows: int | None = None
    runs: int = 5
    quick: bool = False
    inverter: str | None = None

    def __post_init__(self) -> None:
        for name in self.studies:
            if name not in STUDIES:
                raise MuteError(f"there is no study {name!r}; known studies: {', '.join(STUDIES)}")
        for name in self.paths:
            known = [*PROBLEMS, _TEXTS]
            if name not in known:
                raise MuteError(f"there is no data set {name!r} in the paper; give a path for: {', '.join(known)}")
        if self.runs < 1:
            raise MuteError(f"runs must be at least 1, not {self.runs}; give a number of seeds")
        if self.rows is not None and self.rows < 200:
            raise MuteError(f"rows must be at least 200, not {self.rows}")

    @property
    def most_rows(self) -> int | None:
        return min(self.rows or _QUICK_ROWS, _QUICK_ROWS) if self.quick else self.rows

    @property
    def mixture_rows(self) -> int:
        """Rows of each class of the synthetic study."""
        return _QUICK_MIXTURE if self.quick else 2000

    def data_sets(self, *studies: str) -> list[str]:
        """The data sets that those of `studies` need which are to be run."""
        found = {name for study in studies if study in self.studies for name in _DATA_SETS[study]}
        return [name for name in (*PROBLEMS, *MORE) if name in found]

    def jobs(
        self, problems: Iterable[str], texts: Iterable[str] = (), to_fit: dict[str, int] | None = None
    ) -> list[Json]:
        """All jobs on these data sets and sets of texts; `to_fit` are the rows that studies of unseen rows fit on.

        First seeds come first, so that a stopped run has something of everything.
        """
        present, runs = set(problems), 1 if self.quick else self.runs
        found: list[Json] = []

        def add(runs: int, **job: str) -> None:
            found.extend({**job, "seed": seed} for seed in range(runs))

        for regime in SHIFTS if "synthetic" in self.studies else ():
            add(runs, job="synthetic", regime=regime)
        for name in present & set(self.data_sets("tradeoff", "words", "fairness")):
            for label in entries(name, every="tradeoff" in self.studies and not self.quick):
                # The paper has tables of words, Bias in Bios and DIAL; Jigsaw is a panel of its figure.
                repeated = label in CORE and label not in SLOW and name != "jigsaw"
                if not (self.quick and label in SLOW):
                    add(runs if repeated else 1, job="erase", problem=name, label=label)
        for name in present & set(self.data_sets("augmentation")):
            for label in TWINS:
                add(runs, job="augment", problem=name, label=label)
        for name in present & set(self.data_sets("surrogates")):
            add(runs, job="copy", problem=name)
        found += moving.text_jobs(list(texts), self.inverter is not None, self.quick)
        if "fresh" in self.studies:
            found += fresh_jobs(to_fit or {}, runs, self.quick)
        if "budget" in self.studies:
            found += budget_jobs(to_fit or {}, runs, self.quick)
        return sorted(found, key=lambda job: (job["seed"], job["job"], job.get("problem", ""), job.get("label", "")))


@dataclass
class Results:
    """The results of the jobs, and what a reader must know of the run."""

    plan: Plan
    problems: dict[str, Json]
    left_out: dict[str, str]
    about: Json
    texts: dict[str, Json] = field(default_factory=dict)
    found: list[Json] = field(default_factory=list)
    failures: list[Json] = field(default_factory=list)

    def of(self, job: str, **which: str) -> list[Json]:
        """Results of these jobs, in order of their seeds."""
        mine = [r for r in self.found if r["job"] == job and all(r.get(k) == v for k, v in which.items())]
        return [r["result"] for r in sorted(mine, key=lambda r: r["seed"])]

    def to_dict(self) -> Json:
        return asdict(self)


def run(
    plan: Plan, folder: Path, *, n_jobs: int = 1, progress: Callable[[str, int, int], None] | None = None
) -> Results:
    """Run the jobs of a plan, each at most once for the same data and settings.

    Results of finished jobs are kept in ``folder/parts``. With `n_jobs` > 1 that many processes run side by side, each
    on one thread. `progress` gets what was done last, jobs done, and jobs in all.
    """
    start = time.perf_counter()
    problems, left_out, prints = {}, {}, {}
    for name in plan.data_sets(*_DATA_SETS):
        try:
            data = _problem(name, plan)
        except MuteError as error:
            if not plan.quick or name in plan.paths:
                raise
            left_out[name] = str(error)
            continue
        problems[name], prints[name] = describe(data), _print_of(data)
    bare = dict(prints)
    if "glove" in problems and {"tradeoff", "words"} & set(plan.studies):
        words = _words(plan)
        surveys = {} if words is None else words.surveys
        problems["glove"]["surveys"] = {name: len(pairs) for name, pairs in surveys.items()}
        prints["glove"] += repr(surveys)
    texts = _text_prints(plan, left_out)
    inverter = "" if plan.inverter is None else moving.print_of_inverter(plan.inverter)
    fresh_sets = [name for name in FRESH_SETS if name in problems and name in plan.data_sets(*_UNSEEN)]
    jobs = plan.jobs(problems, texts, {name: rows_to_fit(_problem(name, plan), plan.quick) for name in fresh_sets})
    names = [
        _name(job, _data_of(job, plan, bare if job["job"] in _UNSEEN_JOBS else prints, texts, inverter)) for job in jobs
    ]
    parts = folder / "parts"
    try:
        parts.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MuteError(f"cannot make the folder {parts}: {error.strerror or error}") from error
    results = Results(plan, problems, left_out, {})
    results.texts = {name: moving.describe_texts(_text_set(name, plan)) for name in texts}
    waiting = []
    for job, name in zip(jobs, names, strict=True):
        try:
            results.found.append(json.loads((parts / name).read_text()))
        except (OSError, ValueError):  # not run yet, or damaged
            waiting.append((job, parts / name))
    for name in {job["set"] for job, _ in waiting if job["job"] == "text"}:
        moving.encoded_corpus(_text_set(name, plan))  # on all cores, before the processes ask for it one by one
    done = len(jobs) - len(waiting)
    for job, found, failure in _all(waiting, plan, n_jobs):
        done += 1
        if found is None:
            results.failures.append({**job, "error": failure})
        else:
            results.found.append(found)
        if progress is not None:
            progress(" ".join(str(v) for k, v in job.items() if k != "seed"), done, len(jobs))
    results.about = _about(time.perf_counter() - start, sum(r["seconds"] for r in results.found), n_jobs)
    return results


def _text_prints(plan: Plan, left_out: dict[str, str]) -> dict[str, str]:
    """The fingerprint of each set of texts that is there."""
    found = {}
    for name in moving.SETS if "text" in plan.studies else ():
        if plan.quick and name == "occupations":
            continue
        try:
            found[name] = moving.print_of_texts(_text_set(name, plan))
        except MuteError as error:
            # The biographies are the authors' own, without a stand-in.
            if not plan.quick and not (name == "bios" and _TEXTS not in plan.paths):
                raise
            left_out[f"texts: {name}"] = str(error)
    return found


def _text_set(name: str, plan: Plan) -> moving.TextSet:
    return moving.text_set(name, plan.paths.get(_TEXTS), plan.quick)


def _data_of(job: Json, plan: Plan, prints: dict[str, str], texts: dict[str, str], inverter: str) -> str | int:
    """What the answer of a job depends on, besides its settings."""
    if job["job"] == "text":
        return texts[job["set"]] + (inverter if job["decoder"] == "inverter" else "")
    if job["job"] in _UNSEEN_JOBS:
        return f"{prints.get(job['problem'], '')} {most_judge_rows(plan.quick)}"
    return prints[job["problem"]] if "problem" in job else plan.mixture_rows


def _all(waiting: list[tuple[Json, Path]], plan: Plan, n_jobs: int) -> Iterable[tuple[Json, Json | None, str | None]]:
    if n_jobs == 1:
        yield from (_do(job, part, plan) for job, part in waiting)
        return
    from joblib import Parallel, delayed, parallel_config

    # Threads of several processes that wait for each other are many times slower than one thread each.
    with parallel_config("loky", n_jobs=n_jobs, inner_max_num_threads=1):
        yield from Parallel(return_as="generator_unordered")(delayed(_do)(job, part, plan) for job, part in waiting)


def _do(job: Json, part: Path, plan: Plan) -> tuple[Json, Json | None, str | None]:
    """One job, written as soon as it is done; one that fails must not lose the others."""
    start = time.perf_counter()
    try:
        result = _result(job, plan)
    except Exception as error:
        return job, None, f"{type(error).__name__}: {error}"
    found = {**job, "result": result, "seconds": time.perf_counter() - start}
    with write_atomically(part) as file:
        file.write(json.dumps(found).encode())
    return job, found, None


def _result(job: Json, plan: Plan) -> Json:
    import warnings

    if job["job"] == "synthetic":
        return synthetic(job["regime"], job["seed"], plan.mixture_rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what methods say of weak results is what the tables show
        if job["job"] == "text":
            return moving.moved_texts(_text_set(job["set"], plan), job["mover"], job["decoder"], plan.inverter)
        if job["job"] == "fresh":
            return fresh(None if job["problem"] == SYNTHETIC else _problem(job["problem"], plan), job, plan.quick)
        data = _problem(job["problem"], plan)
        if job["job"] == "budget":
            return spent(data, job, plan.quick)
        if job["job"] == "frontier":
            return frontier_of(data, job, plan.quick)
        if job["job"] == "augment":
            return augmented(data, job["label"], job["seed"])
        if job["job"] == "copy":
            return copied(data, job["seed"])
        method, settings = entries(data.name, every=True)[job["label"]]
        return erase(data, method, settings, job["seed"], words=_words(plan) if data.name == "glove" else None)


def _shipped(plan: Plan) -> bool:
    """Whether the smaller set of words that ships with the package is used."""
    from mute.datasets import prepared_folder

    if not plan.quick or "glove" in plan.paths:
        return False
    try:
        prepared_folder("glove")
    except MuteError:
        return True
    return False


_loaded = lru_cache(maxsize=2)(problem)
_loaded_words = lru_cache(maxsize=1)(words_of)


def _problem(name: str, plan: Plan) -> Problem:
    shipped = name == "glove" and _shipped(plan)
    return _loaded(name, plan.paths.get(name), most_rows=plan.most_rows, shipped=shipped)


def _words(plan: Plan) -> Words | None:
    """The words that people have compared; the set that ships with the package has too few of them."""
    if _shipped(plan):
        return None
    try:
        return _loaded_words(plan.paths.get("glove"), pairs=plan.pairs)
    except MuteError:
        if plan.quick and plan.pairs is None and "glove" not in plan.paths:
            return None  # what is not prepared is left out
        raise


def _print_of(data: Problem) -> str:
    from mute.estimators.base import digest_of_rows

    digest = hashlib.sha256()
    for part in (data.fit, data.fresh, data.test):
        digest.update(digest_of_rows(part.X).encode())
        digest.update(repr((part.z.tolist(), None if part.y is None else part.y.tolist())).encode())
    return digest.hexdigest()


def _name(job: Json, data: str | int) -> str:
    """The file of a job: another one for other data or another version."""
    import mute

    digest = hashlib.sha256(json.dumps([job, data, mute.__version__], sort_keys=True).encode()).hexdigest()[:12]
    return "-".join(str(v) for v in [*job.values(), digest]) + ".json"


def _about(seconds: float, work: float, n_jobs: int) -> Json:
    import sklearn

    import mute
    from mute.rows.threads import resolve_threads

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    model = models[0] if models else platform.processor()
    return {
        "seconds": seconds,
        "work_seconds": work,
        "processes": n_jobs,
        "machine": f"{model or platform.machine()}, {resolve_threads(None)} cores",
        "python": platform.python_version(),
        "mute": mute.__version__,
        "scikit-learn": sklearn.__version__,
    }
