"""Copies of a flow beside the flow itself: how fast they are, and what they lose.

    python benchmarks/distill.py speed          768 columns, 70 layers: rows per second, and fidelity (10 minutes)
    python benchmarks/distill.py faithful       words and a larger problem: probes, task, fairness (40 minutes)
    python benchmarks/distill.py steps          words: from the paper's network to the default, step by step (8 minutes)
    python benchmarks/distill.py speed --quick  the same speed, copies hardly trained (3 minutes)

Speed: every contender is given the same rows, in turns, and has its shortest time of several rounds; the flow's time
includes its router. Fidelity is the share of the variance of the flow's answers that a copy explains, on rows that
neither has seen. The copies have 10 epochs to learn; left alone they go on for as long as they gain.

In `faithful`, all probes and task classifiers are trained on the copy's own outputs; those of the task are linear, and
their figures are means over the same ten splits for all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from made_up import Mixture
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mute import MUtE, audit
from mute.distill import InvertibleSurrogate, LinearSurrogate, LowRankSurrogate, MLPSurrogate
from mute.evaluation.fairness import fairness
from mute.export import to_onnx

TARGET = 8.0  # times as fast as the flow: the MLP
CLOSE = {"accuracy": 0.01, "gap": 0.02}  # of the flow's: task accuracy, and fairness gaps


def copies(teacher: Any, **few: Any) -> dict[str, Any]:
    return {
        "MLP, 4 layers": MLPSurrogate(teacher, random_state=0, **few),
        "MLP, 3 layers": MLPSurrogate.from_preset("fast", teacher=teacher, random_state=0, **few),
        "cINN": InvertibleSurrogate(teacher, random_state=0, **few),
        "INN": InvertibleSurrogate(teacher, conditional=False, random_state=0, **few),
        "a matrix for each class": LinearSurrogate(teacher, router="teacher", random_state=0),
        "one matrix": LowRankSurrogate(teacher, random_state=0),
    }


def speed(quick: bool, rounds: int, plot: str | None) -> None:
    n, d, layers = 20_000, 768, 70
    X, z = Mixture(d).draw(n + 8192)
    X, z, new = X[:n], z[:n], X[n:]
    teacher = MUtE(layers, random_state=0, diagnostics=False).fit(X, z)
    exact = teacher.transform(new)
    contenders: dict[str, Callable[[], NDArray]] = {"flow": lambda: teacher.transform(new)}
    with tempfile.TemporaryDirectory() as folder:
        contenders["flow, ONNX"] = runtime(teacher, Path(folder), new)
        few = {"epochs": 1 if quick else 10, "augment": 0}
        for name, copy in copies(teacher, **few).items():
            start = time.perf_counter()
            copy.fit(X)
            print(f"{name}: fitted in {time.perf_counter() - start:.0f} s", flush=True)
            put_back(copy)
            contenders[name] = lambda copy=copy: copy.transform(new)
            contenders[f"{name}, ONNX"] = runtime(copy, Path(folder), new)
            if isinstance(copy, MLPSurrogate):
                contenders[f"{name}, ONNX, 8 bits"] = runtime(copy, Path(folder), new, quantize=True)
    answers = {name: run() for name, run in contenders.items()}
    times = dict.fromkeys(contenders, np.inf)
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - start)
    table = Table(title=f"{len(new):,} rows of {d} columns; the flow has {layers} layers")
    for column in ("", "rows per second", "times the flow's", "R² against the flow"):
        table.add_column(column, justify="left" if not column else "right")
    found = {}
    for name, seconds in times.items():
        r2 = 1 - ((answers[name] - exact) ** 2).mean() / exact.var(axis=0).mean()
        found[name] = (times["flow"] / seconds, float(r2))
        table.add_row(name, f"{len(new) / seconds:,.0f}", f"{found[name][0]:.2f}", f"{r2:.4f}")
    Console(width=100).print(table)
    if plot:
        draw(found, plot)
    for name in ("MLP, 4 layers", "MLP, 3 layers", "MLP, 4 layers, ONNX, 8 bits"):
        ratio = found[name][0]
        print(f"target, {name} at least {TARGET:g} x the flow: {ratio:.1f}, {'met' if ratio >= TARGET else 'missed'}")


def put_back(copy: Any) -> None:
    """The network of an MLP that gained nothing is left out of it. Here it counts: with a last layer of zeros."""
    if isinstance(copy, MLPSurrogate) and "layer0_weight" not in copy.weights_:
        d = copy.n_features_in_
        network = copy._initial(d, d, np.random.default_rng(0))
        copy.weights_ |= {name: w.astype(np.float32) for name, w in network.items()}


def draw(found: dict[str, tuple[float, float]], path: str) -> None:
    """Bars of the speed, with what each explains of the flow's answers beside them."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.4 * len(found) + 1), layout="constrained")
    names = list(found)[::-1]
    colours = ["0.6" if "ONNX" in name else "C0" for name in names]
    axes.barh(names, [found[name][0] for name in names], color=colours)
    for i, name in enumerate(names):
        ratio, r2 = found[name]
        axes.text(ratio * 1.05, i, f"{ratio:.1f} x, R² {r2:.3f}", va="center", fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(right=4 * max(ratio for ratio, _ in found.values()))
    axes.set_xlabel("rows per second, in times of the flow's (768 columns, 70 layers)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def runtime(eraser: Any, folder: Path, rows: NDArray, **options: Any) -> Callable[[], NDArray]:
    path = folder / "model.onnx"
    to_onnx(eraser, path, check=rows[:1000], **options)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    # In blocks: the flow's tables are read once for each.
    blocks = np.array_split(rows, max(len(rows) // 1024, 1))
    return lambda: np.concatenate([session.run(None, {"X": block})[0] for block in blocks])


def words() -> tuple[NDArray, NDArray, NDArray, int]:
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    from comparison_data import words

    return *words(), 20


def larger() -> tuple[NDArray, NDArray, NDArray, int]:
    """Factors of one size each, whose law is peaked in one class and flat in the other, and noise; 300 columns."""
    n, d, factors = 40_000, 300, 40
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=n)
    flat = rng.uniform(-np.sqrt(3), np.sqrt(3), (n, factors))
    peaked = rng.laplace(scale=np.sqrt(0.5), size=(n, factors))
    F = np.where(z[:, None] == 1, flat, peaked)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = (F * np.linspace(8, 2, factors)) @ axes[:factors] + 0.5 * rng.normal(size=(n, d)) + np.outer(z, 3 * axes[-1])
    y = F[:, 0] + F[:, 1] + z + rng.normal(size=n) > 0.5
    return X.astype(np.float32), z, y.astype(int), 40


PROBLEMS = {"words": words, "larger": larger}


def strongest(eraser: Any, X: NDArray, z: NDArray, fit: NDArray) -> list[float]:
    """Balanced accuracy of the strongest adversary on new rows: learned on other new rows, and on those of the fit."""
    attacks = audit(eraser, X[~fit], z[~fit], fit_rows=(X[fit], z[fit])).privacy.attacks
    return [max(a.balanced_accuracy.value for a in attacks if a.protocol == name) for name in ("fresh", "paper")]


def on_task(Q: NDArray, y: NDArray, z: NDArray) -> dict[str, float]:
    """Accuracy and fairness of a linear task classifier on the rows it did not learn from, over ten halves of them."""
    figures = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        learn = rng.permutation(len(Q)) < len(Q) // 2
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(Q[learn], y[learn])
        found = fairness(y[~learn], model.predict(Q[~learn]), z[~learn], rng=rng, draws=1)
        figures.append([found.accuracy.value, found.tpr_rms.value, found.demographic_parity.value])
    return dict(zip(("task", "TPR gap", "DP gap"), np.mean(figures, axis=0).tolist(), strict=True))


def faithful(quick: bool, problems: list[str]) -> None:
    for problem in (PROBLEMS[name] for name in problems):
        X, z, y, layers = problem()
        rng = np.random.default_rng(0)
        fit = rng.permutation(len(X)) < len(X) // 2
        teacher = MUtE(layers, random_state=0, diagnostics=False).fit(X[fit], z[fit])
        exact = teacher.transform(X[~fit])
        table = Table(title=f"{problem.__name__}: {fit.sum():,} rows to fit, {X.shape[1]} columns, {layers} layers")
        names = ("", "fit, s", "R²", "fresh leak", "paper's", "task", "TPR gap", "DP gap")
        for name in names:
            table.add_column(name, justify="left" if not name else "right")
        first = None
        missed = []
        for name, eraser in {"flow": teacher, **copies(teacher, **({"epochs": 1} if quick else {}))}.items():
            start = time.perf_counter()
            if eraser is not teacher:
                eraser.fit(X[fit])
            seconds = time.perf_counter() - start
            r2 = 1 - ((eraser.transform(X[~fit]) - exact) ** 2).mean() / exact.var(axis=0).mean()
            leaks = strongest(eraser, X, z, fit)
            found = on_task(eraser.transform(X[~fit]), y[~fit], z[~fit])
            first = first or found
            cells = [f"{v:.3f}" for v in (*leaks, *found.values())]
            table.add_row(name, f"{seconds:.0f}", f"{r2:.4f}", *cells)
            missed += [
                f"{name}: {what} differs by {abs(value - first[what]):.3f}"
                for what, value in found.items()
                if abs(value - first[what]) > CLOSE["accuracy" if what == "task" else "gap"]
            ]
        Console(width=110).print(table)
        print(f"chance {1 / len(np.unique(z)):.3f}; target, task within 0.01 and gaps within 0.02 of the flow's:")
        print("  met by all" if not missed else "  missed: " + "; ".join(missed), flush=True)


def steps() -> None:
    """What each change of the paper's network brings: mean squared error on new words."""
    X, z, _, layers = words()
    fit = np.random.default_rng(0).permutation(len(X)) < 0.7 * len(X)
    teacher = MUtE(layers, random_state=0, diagnostics=False).fit(X[fit], z[fit])
    exact = teacher.transform(X[~fit])
    plain = {"augment": 0, "weight_decay": 1e-2, "random_state": 0}
    contenders = {
        "the paper's network": MLPSurrogate.from_preset("paper", teacher=teacher, random_state=0),
        "one matrix": LowRankSurrogate(teacher, random_state=0),
        "one matrix for each class": LinearSurrogate(teacher, router="teacher", random_state=0),
        "... and the paper's network for what they leave": MLPSurrogate(teacher, batch_size=2048, fall=False, **plain),
        "... smaller batches, a learning rate that falls": MLPSurrogate(teacher, **plain),
        "... stronger weight decay": MLPSurrogate(teacher, augment=0, random_state=0),
        "... made rows: the default": MLPSurrogate(teacher, random_state=0),
    }
    table = Table(
        "", "error", "fit, s", title=f"{fit.sum():,} words to fit; the mean has {exact.var(axis=0).mean():.3f}"
    )
    for name, copy in contenders.items():
        start = time.perf_counter()
        copy.fit(X[fit])
        seconds = time.perf_counter() - start
        table.add_row(name, f"{((copy.transform(X[~fit]) - exact) ** 2).mean():.4f}", f"{seconds:.0f}")
    Console(width=100).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "faithful", "steps"])
    parser.add_argument("--quick", action="store_true", help="Copies hardly trained.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--problem", choices=list(PROBLEMS), help="Only this one, for faithful.")
    parser.add_argument("--plot", help="Draw the speeds to this file.")
    options = parser.parse_args()
    if options.what == "speed":
        speed(options.quick, options.rounds, options.plot)
    elif options.what == "steps":
        steps()
    else:
        faithful(options.quick, [options.problem] if options.problem else list(PROBLEMS))


if __name__ == "__main__":
    main()
