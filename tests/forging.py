"""Files made by hand: models without a fit, and content that `save` itself would never write."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.storage.container import checksums, text_checksum, write_arrays

Tensors = dict[str, NDArray]
State = dict[str, Any]

SETTINGS = {
    "n_iterations": 3, "max_iterations": 100, "router": None, "rotation": "random", "marginal": "quantile",
    "keep_norm": False, "validation_fraction": 0.2, "diagnostics": False, "n_threads": None, "random_state": 0,
}  # fmt: skip


def forge(path: Path, tensors: Tensors, state: State, kind: str = "MUtE", doubled: str = "") -> None:
    """Write any content, with right checksums; the key that begins with "@" is written as `doubled`, a second time."""
    meta = {"format": "mute", "version": 1, "kind": kind, "state": state, "provenance": {}}
    described = json.dumps(meta | {"sha256": checksums(tensors)}).replace(f'"@{doubled}":', f'"{doubled}":')
    write_arrays(path, tensors, {"mute": described, "sha256": text_checksum(described)})


def read(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write(path: Path, header: Any, data: bytes) -> None:
    """A safetensors file with this header, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def contents(path: Path) -> tuple[Tensors, State]:
    """Arrays (copies) and state of a model's file."""
    header, data = read(path)
    state = json.loads(header.pop("__metadata__")["mute"])["state"]
    kinds = {"F32": "<f4", "F64": "<f8"}
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"]).copy()
        for name, entry in header.items()
    }, state


def eraser_parts(d: int, k: int, t: int, knots: int, seed: int = 0) -> tuple[Tensors, State]:
    """A float32 eraser without a router: orthogonal rotations, increasing tables, no fit."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    values = np.cumsum(rng.uniform(0.5, 1.5, (t, k, d, knots)).astype(np.float32), axis=-1) * (6 / knots) - 3
    tensors = {
        "flow.center": np.zeros(d), "flow.scale": np.ones(d), "flow.values": values,
        # One basis with its axes in ever new orders: as orthogonal as fresh ones, at the price of a copy.
        "flow.rotations": np.stack([basis[:, rng.permutation(d)] for _ in range(t)]),
        "flow.origin": np.full((t, k, d), -3.0), "flow.step": np.full((t, k, d), 6 / knots),
    }  # fmt: skip
    tensors = {name: array.astype(np.float32) for name, array in tensors.items()}
    tensors["support"] = np.stack([np.full((k, d), -3.0), np.full((k, d), 3.0)])
    return tensors, {
        "classes": list(range(k)), "parameters": SETTINGS, "feature_names": [], "router_layers": 0,
        "routing": None, "diagnostics": None, "stopping": None, "fitted_on": {"rows": 1000},
    }  # fmt: skip
