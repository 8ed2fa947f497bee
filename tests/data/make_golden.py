"""Write the golden files: models of format 1 that every later release must load.

They were made once, by release 0.1.0, with ``python tests/data/make_golden.py`` and are not to be made again: a file
that the current code has just written proves nothing about old files. Give a new format files of its own.

``golden_v1.safetensors`` is a MUtE (float32, four named columns, three classes, three layers, a router of two layers,
routing report and diagnostics), ``golden_v1_rbig.safetensors`` an RBIG (float64). Beside each, ``..._expected.npz``
holds rows ``x``, some of them far outside the training data, and their outputs in float64.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.neural_network import MLPClassifier

from mute import RBIG, MUtE, Quantile

HERE = Path(__file__).parent


def main() -> None:
    sys.path.insert(0, str(HERE.parent))
    from test_io import golden_outputs

    rng = np.random.default_rng(2024)
    z = np.repeat(["f", "m", "n"], 200)
    shift = np.array([[0.0, 0, 0, 0], [2, 1, 0, 0], [0, -1, 2, 1]])[np.arange(600) // 200]
    x = rng.standard_normal((600, 4)) @ np.triu(np.ones((4, 4))) + shift
    frame = pd.DataFrame(x.astype(np.float32), columns=list("wxyz"))
    router = MLPClassifier((8,), max_iter=300, tol=1e-2, random_state=0)
    # Every row is exact in float32 as well, so that both precisions are asked the same question.
    probe = np.round(np.concatenate([x[::60], 20 * rng.standard_normal((6, 4)), np.zeros((1, 4))]), 2)
    probe = probe.astype(np.float32).astype(np.float64)
    models = {
        "golden_v1": MUtE(3, router=router, marginal=Quantile(cells=16), random_state=1).fit(frame, z),
        "golden_v1_rbig": RBIG(3, marginal=Quantile(cells=16), random_state=1).fit(x),
    }
    for name, model in models.items():
        if (HERE / f"{name}.safetensors").exists() and "--force" not in sys.argv:
            raise SystemExit(f"{name}.safetensors exists and is not to be made again")
        model.save(HERE / f"{name}.safetensors")
        np.savez(HERE / f"{name}_expected.npz", x=probe, **golden_outputs(model, probe))


if __name__ == "__main__":
    main()
