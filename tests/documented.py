"""What the code in README and docs takes for granted: small rows, files in the working directory, quick settings."""

import re
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import mute
from tiny_encoders import sentences, write_encoder

# Parsed, not run: they fetch data, need the authors' files or a cluster, or take long.
COSTLY = re.compile(
    r"mute (paper|text|data (prepare|encode)) |--dask|/big/disk|problems/|--methods (all|none,mute,leace)"
)


def made_rows(n, seed):
    """Rows of four columns that show the gender, and a job."""
    rng = np.random.default_rng(seed)
    z = rng.choice(["female", "male"], n)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    X[z == "male", 0] += 2
    return X, z, np.where(X[:, 1] > 0, "nurse", "judge")


def write_files(parts):
    """Files of the names that the pages use, in the working directory."""
    for name, tables in {"": ["people", "bios"], "_new": ["new", "new_people"], "_more": []}.items():
        X, z, y = parts[name]
        np.save(f"X{name}.npy", X)
        for table in tables:
            people = pd.DataFrame({"gender": z, "job": y})
            people.to_csv(f"{table}.csv", index=False)
            columns = {f"e{i}": X[:, i] for i in range(X.shape[1])}
            people.assign(person_id=range(len(X)), **columns).to_parquet(f"{table}.parquet", index=False)
    np.save("z.npy", parts[""][1])
    for folder in ("data", "parquet_folder"):
        Path(folder).mkdir()
        X, z, _ = parts["_more"]
        pd.DataFrame({"emb": list(X), "gender": z}).to_parquet(f"{folder}/part.parquet")


def quick(monkeypatch):
    """Defaults that take seconds: a logistic router, few epochs, one adversary on few rows."""
    from mute.distill import MLPSurrogate
    from mute.rivals import FaRM
    from mute.steering import LinearOT

    for function, settings in {
        mute.MUtE.__init__: {"router": "logistic"},
        LinearOT.__init__: {"router": "logistic"},
        FaRM.__init__: {"epochs": 2},
        MLPSurrogate.__init__: {"epochs": 2},
        mute.audit: {"adversaries": ["logistic"], "most_rows": 200},
        mute.frontier: {"max_leak": 0.1, "shares": (0.5,)},
    }.items():
        for name, value in settings.items():
            assert name in function.__kwdefaults__
            monkeypatch.setitem(function.__kwdefaults__, name, value)
    for place in ("evaluation.frontier", "budget.search"):
        monkeypatch.setattr(f"mute.{place}.JUDGES", ("logistic",))


def torch_names(X):
    """A model with the layer that the pages name, and rows and classes as tensors."""
    import torch
    from torch import nn

    model = nn.Sequential()
    model.encoder = nn.Sequential()
    width = X.shape[1]
    model.encoder.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(8)))
    x = torch.from_numpy(X)
    return {
        "model": model,
        "tokens": x.reshape(10, -1, width),
        "x": x,
        "k": 0,
        "source": 0,
        "target": 1,
        "encoder": nn.Linear(width, width),
        "head": nn.Linear(width, 2),
    }


def write_minilm(folder):
    """A tiny encoder in the place of the one that `mute data prepare minilm` fetches."""
    from mute.datasets.prepared import PREPARED

    write_encoder(folder, "bert")
    for name in PREPARED["minilm"].files:
        (folder / name).parent.mkdir(exist_ok=True)
        if not (folder / name).exists():
            (folder / name).write_text("[]" if name == "modules.json" else "{}")


def dask_names(X, z, stack: ExitStack):
    """Rows as a dask array, and the address of a cluster inside this process."""
    import dask.array
    import distributed

    cluster = stack.enter_context(
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    )
    parts = [slice(start, start + 100) for start in range(0, len(X), 100)]
    blocks = iter([(X[part], z[part]) for part in parts])
    return {"address": cluster, "X": dask.array.from_array(X, chunks=(100, -1)), "z": z, "blocks": blocks}


def format_names(eraser, X):
    """The arrays of the file, by the names of the page on the format."""
    flow = eraser.flow_
    names = {name: getattr(flow, name) for name in ("center", "scale", "rotations", "origin", "step", "values")}
    T, _, D, M = flow.values.shape
    return {**names, "T": T, "D": D, "M": M, "k": 0, "x": X[0], "clip": np.clip, "floor": lambda v: int(np.floor(v))}


def prepare(page, monkeypatch, stack: ExitStack):
    """Files for a page in the working directory; the names that its Python blocks use."""
    quick(monkeypatch)
    # A leak budget needs rows that can show it.
    parts = {"": made_rows(2000 if page == "budget" else 400, 0), "_new": made_rows(200, 1), "_more": made_rows(400, 2)}
    write_files(parts)
    (X, z, y), (X_new, z_new, y_new) = parts[""], parts["_new"]
    eraser = mute.MUtE(random_state=0).fit(X, z)
    eraser.save("gender.safetensors")
    np.save("Q_new.npy", eraser.transform(X_new))
    names = {
        "__name__": "docs",
        "X": X,
        "z": z,
        "y": y,
        "X_new": X_new,
        "z_new": z_new,
        "y_new": y_new,
        "eraser": eraser,
    }
    names |= {"X_train": X, "z_train": z, "matrix_new": X_new, "classifier": LogisticRegression()}
    names["blocks"] = [(X[:200], z[:200]), (X[200:], z[200:])]
    if page in ("torch", "uses", "distill"):
        # The eraser of the page on uses is one of words, of 100 columns.
        names |= torch_names(np.tile(X, (1, 25)) if page == "uses" else X)
    if page in ("text", "data"):
        monkeypatch.setenv("MUTE_DATA", "prepared")
        write_minilm(Path("prepared/minilm"))
        names |= {"texts": sentences(800, longest=12), "genders": ["female", "male"] * 400}
    if page == "large":
        names |= dask_names(*parts["_more"][:2], stack)
    if page == "format":
        names |= format_names(eraser, X)
    return names
