"""Write the models in ``saved/``: one of each kind, as release 0.1.0 wrote them before its modules moved.

They were made once and are not to be made again (see `make_golden.py`). Models of texts have a folder and a file
of eight texts and their counterfactuals. ``expected.npz`` holds the rows ``x``, their
labels ``z`` and, under ``KIND.transform`` and ``KIND.counterfactual``, what each model answered in float64.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import mute
from mute import MUtE, distill, rivals, steering
from mute.datasets import Dataset
from mute.text import TextCounterfactual

sys.path.insert(0, str(Path(__file__).parents[1]))
from gendered_texts import gendered_texts, mean_of_words

HERE = Path(__file__).parent / "saved"


def main() -> None:
    if HERE.exists() and "--force" not in sys.argv:
        raise SystemExit(f"{HERE} exists and is not to be made again")
    HERE.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    z = np.repeat(["f", "m"], 150)
    X = rng.standard_normal((300, 3)) @ np.triu(np.ones((3, 3))) + np.where(z == "m", 2.0, 0.0)[:, None]
    small: dict[str, Any] = {"random_state": 0}
    copies = {"width": 4, "epochs": 2, "random_state": 0}
    models: dict[str, Any] = {
        "MUtE": MUtE(marginal=mute.Quantile(cells=8), max_iterations=6, **small),
        "MUtE-histogram": MUtE(
            shrinkage=False,
            marginal=mute.Histogram(bins=8),
            max_iterations=4,
            keep_norm=True,
            router="logistic",
            **small,
        ),
        "MUtE-oracle": MUtE(3, router=None, marginal=mute.Quantile(cells=8), **small),
        "LEACE": rivals.LEACE(),
        "QLEACE": rivals.QLEACE(**small),
        "INLP": rivals.INLP(**small),
        "PEF": rivals.PEF(**small),
        "TaCo": rivals.TaCo(**small),
        "MeanDifference": steering.MeanDifference(),
        "LinearOT": steering.LinearOT(**small),
        "GaussianCFR": steering.GaussianCFR(**small),
        "LinearSurrogate": steering.LinearSurrogate(**small),
        "MLPSurrogate": distill.MLPSurrogate(**copies),
        "InvertibleSurrogate": distill.InvertibleSurrogate(**copies),
    }
    x = np.round(np.concatenate([X[::30], 10 * rng.standard_normal((4, 3))]), 2)
    labels = np.resize(["f", "m"], len(x))
    expected = {"x": x, "z": labels}
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, z)
        model.save(HERE / f"{name}.safetensors")
        expected[f"{name}.transform"] = model.transform(x, concept=labels)
        if hasattr(model, "counterfactual"):
            expected[f"{name}.counterfactual"] = model.counterfactual(x, "m", concept=labels)
    np.savez(HERE / "expected.npz", **expected)
    Dataset(X=x, z=labels, names=["row"] * len(x), split=["fit"] * len(x)).save(HERE / "Dataset.safetensors")
    texts, genders = gendered_texts(60)
    for decoder in ("edits", "retrieval"):
        method = steering.MeanDifference(router="logistic", random_state=0)
        model = TextCounterfactual(mean_of_words(), method, decoder).fit(texts, genders)
        model.save(HERE / f"text-{decoder}")
        answers = model.counterfactual(texts[:8], "female").texts
        (HERE / f"text-{decoder}.txt").write_text("\n".join([*texts[:8], *answers]) + "\n")


if __name__ == "__main__":
    main()
