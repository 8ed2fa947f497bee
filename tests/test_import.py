"""Importing loads nothing heavy, and compiled code is kept between processes; `benchmarks/waiting.py` has the times."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(code: str, **environment: str) -> dict:
    """Run code in a fresh process; its last line is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


IMPORT = """
import json, sys
import mute
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
HEAVY = {
    "torch",
    "numba",
    "dask",
    "pandas",
    "polars",
    "matplotlib",
    "sklearn",
    "scipy",
    "numpy",
    "safetensors",
    "typer",
}


def test_import_is_light() -> None:
    assert not HEAVY & set(run(IMPORT))


@pytest.mark.parametrize("name", ["MUtE", "RBIG"])
def test_estimators_import_nothing_optional(name: str) -> None:
    code = f"from mute import {name}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    loaded = {module.split(".")[0] for module in run(code)}
    assert not {"torch", "dask", "matplotlib", "plotly", "polars", "numba"} & loaded


def test_every_public_name_can_be_had() -> None:
    import mute

    assert set(mute.__all__) <= set(dir(mute))
    for name in mute.__all__:
        assert getattr(mute, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'erase'"):
        mute.erase  # noqa: B018


WORK = """
import json
import numpy as np
from mute import MUtE, RBIG
from mute.rows import kernels
z = np.repeat([0, 1], 200)
X = np.random.default_rng(0).normal(size=(400, 3)) + z[:, None]
for dtype in (np.float64, np.float32):
    for marginal in ("quantile", "histogram"):
        eraser = MUtE(2, router=None, marginal=marginal).fit(X.astype(dtype), z)
        eraser.inverse_transform(eraser.transform(X.astype(dtype), concept=z), concept=z)
        RBIG(2, marginal=marginal).fit(X.astype(dtype)).score(X.astype(dtype))
stats = [getattr(kernels, name).stats for name in kernels.__all__]
print(json.dumps({
    "hits": sum(sum(s.cache_hits.values()) for s in stats),
    "misses": sum(sum(s.cache_misses.values()) for s in stats),
}))
"""


def test_later_processes_use_compiled_code(tmp_path: Path) -> None:
    first = run(WORK, NUMBA_CACHE_DIR=str(tmp_path))
    assert first["misses"] > 0 and first["hits"] == 0
    second = run(WORK, NUMBA_CACHE_DIR=str(tmp_path))
    assert second["misses"] == 0, "nothing is compiled again"
    assert second["hits"] == first["misses"]


def test_no_method_needs_torch_to_be_imported() -> None:
    code = """
import json, sys
from mute.estimators.registry import HOMES, class_of
for kind in HOMES:
    class_of(kind)
print(json.dumps({"torch": "torch" in sys.modules}))
"""
    assert run(code) == {"torch": False}


def test_tables_need_neither_the_command_line_nor_what_reads_parquet() -> None:
    code = "import mute.tables\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    loaded = {module.split(".")[0] for module in run(code)}
    assert not {"typer", "rich", "pyarrow", "pandas", "safetensors", "sklearn", "scipy"} & loaded
