"""The layers of an unfinished fit in a folder, from which the same fit can continue."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.flow import TABLES, Flow
from mute.flow.stopping import StoppingRule
from mute.storage.container import read_arrays, write_arrays
from mute.storage.files import write_json
from mute.typing import Json

__all__ = ["Checkpoint"]

_ABOUT = "fit.json"


class Checkpoint:
    """A folder with one small file for each finished layer; it is created if it does not exist.

    The folder does not contain rows: a resumed fit applies the finished layers to the rows again. `about` identifies
    the fit: rows, labels, settings. `seed` is for a new fit; a resumed fit keeps its first seed.
    """

    def __init__(self, folder: str | Path, about: Json, seed: int) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise MuteError(f"resume must be a folder or None, not {folder!r}")
        self.folder, self.seed, path = Path(folder), seed, Path(folder) / _ABOUT
        about = json.loads(json.dumps(about))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MuteError(f"cannot keep layers in {folder}: {error.strerror or error}") from error
        if not path.exists():
            if any(self.folder.iterdir()):
                raise MuteError(f"{folder} contains other files; give a new or empty folder for the layers")
            write_json(path, {"fit": about, "seed": seed})
            return
        try:
            kept = json.loads(path.read_text())
            before, self.seed = dict(kept["fit"]), int(kept["seed"])
        except (OSError, ValueError, KeyError, TypeError):
            raise MuteError(f"{path} cannot be read; remove the folder to start again") from None
        if before != about:
            differing = sorted(name for name in {*before, *about} if before.get(name) != about.get(name))
            raise MuteError(
                f"{folder} contains the layers of another fit, which differs in {', '.join(differing)}; give another "
                "folder, or remove this one to start again"
            )

    def write(
        self, t: int, layer: Flow, support: NDArray, rng: np.random.Generator, stopping: StoppingRule | None
    ) -> None:
        """Write layer `t` and the state that the next layers need."""
        arrays = {name: getattr(layer, name) for name in Flow.arrays()} | {"support": support}
        state = {
            "sha256": _checksum(arrays),
            "random": rng.bit_generator.state,
            "stopping": None if stopping is None else asdict(stopping),
        }
        write_arrays(self._path(t), arrays, {"state": json.dumps(state)})

    def read(self, max_layers: int) -> tuple[Flow, NDArray[np.float64], Json] | None:
        """The finished layers as one flow, the support, and the state after the last layer."""
        layers: list[dict[str, NDArray]] = []
        while len(layers) < max_layers and (path := self._path(len(layers))).exists():
            try:
                metadata, arrays = read_arrays(path, "a layer of a fit")
                layers.append({name: arrays[name] for name in (*Flow.arrays(), "support")})
                state = json.loads(metadata["state"])
                if state["sha256"] != _checksum(layers[-1]):
                    raise ValueError
            except (ValueError, KeyError, TypeError):
                raise MuteError(
                    f"{path} is damaged; remove it and all later ones to continue from the layers before"
                ) from None
        if not layers:
            return None
        tables = {name: np.concatenate([layer[name] for layer in layers]) for name in TABLES}
        flow = Flow(center=layers[0]["center"], scale=layers[0]["scale"], **tables)
        return flow, layers[0]["support"], state

    def _path(self, t: int) -> Path:
        return self.folder / f"layer-{t:04d}.safetensors"

    @staticmethod
    def remove(folder: str | Path) -> None:
        """Remove the files of a fit, and the folder if it is then empty."""
        place = Path(folder)
        for path in (*place.glob("layer-*.safetensors"), place / _ABOUT):
            path.unlink(missing_ok=True)
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _checksum(arrays: dict[str, NDArray]) -> str:
    # One sum over all arrays, as in earlier releases, whose folders can be resumed.
    return hashlib.sha256(b"".join(np.ascontiguousarray(arrays[name]).data for name in sorted(arrays))).hexdigest()
