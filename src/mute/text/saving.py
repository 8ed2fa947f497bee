"""A text model as a folder: written whole or not at all, checked on the way in, never running code.

``model.json`` says what the model is and holds the SHA-256 of the other files; ``map.safetensors`` is the method, as
`mute.load` reads it; ``decoder.safetensors`` holds the arrays of the decoder.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from mute.errors import MuteError, listed
from mute.storage.container import read_arrays, reading, write_arrays
from mute.storage.files import check_target, sha256_of_file, write_json
from mute.storage.hidden import exchange, hidden_name, temporary_folder
from mute.text.decoders.decoder import Decoder
from mute.text.decoders.edit_search import EditSearch
from mute.text.decoders.retrieval import Retrieval
from mute.text.encoders.encoder import Encoder, EncoderLike, FunctionEncoder, as_encoder, load_encoder
from mute.typing import Json, Method

__all__ = ["DECODERS", "check_model_target", "decoder_class", "read_model", "write_model"]

FORMAT_VERSION = 1

_WHAT = "a folder written by `mute text fit`"
_ABOUT, _MAP, _DECODER = "model.json", "map.safetensors", "decoder.safetensors"

# A file names its decoder, and only these are ever looked up.
DECODERS: dict[str, type[Any]] = {"edits": EditSearch, "retrieval": Retrieval}


def decoder_class(kind: str) -> type[Any]:
    """The class of a decoder that is known by a name."""
    if kind not in DECODERS:
        raise MuteError(f"there is no decoder {kind!r}; known decoders: {', '.join(DECODERS)}")
    return DECODERS[kind]


def check_model_target(folder: str | os.PathLike[str]) -> Path:
    """Check that a model can be written at `folder`, which must be free or hold a model, before any work is spent."""
    target = Path(os.path.realpath(folder))
    _put_back(target)
    if target.is_dir():
        names = sorted(path.name for path in target.iterdir())
        if names and not _is_ours(target):
            raise MuteError(f"cannot write {folder}: the folder there holds no model of mute, so give another name")
        others = [name for name in names if name not in (_ABOUT, _MAP, _DECODER)]
        if others:
            # A model is replaced with its folder, and they would be lost.
            raise MuteError(f"cannot write {folder}: the folder there also has {listed(others)}, so give another name")
    elif target.exists():
        raise MuteError(f"cannot write {folder}: a file is there, so give the name of a folder")
    # A sibling is made and renamed: that is allowed where a file may be made.
    check_target(hidden_name(target))
    return target


def _is_ours(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / _ABOUT).read_bytes())["format"] == "mute-text")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def write_model(
    folder: str | os.PathLike[str], encoder: Encoder, method: Method, decoder: Decoder, n_texts: int
) -> None:
    """Write a model beside its place, then move it there.

    Limits: where two folders cannot change places at one blow (only Linux can), a process killed outright while it
    replaces an older model may leave that one under a hidden name; the next one that writes there puts it back.
    """
    import mute

    target = check_model_target(folder)
    kind = next((kind for kind, known in DECODERS.items() if type(decoder) is known), None)
    arrays, meta = DECODERS[kind].state(decoder) if kind else ({}, {})
    # What finds the encoder again; a function has to be given again.
    spec = os.path.abspath(encoder.name) if os.path.isdir(encoder.name) else encoder.name
    about: Json = {
        "format": "mute-text",
        "version": FORMAT_VERSION,
        "mute": mute.__version__,
        "encoder": {
            "name": encoder.name,
            "spec": None if isinstance(encoder, FunctionEncoder) else spec,
            "dimension": encoder.dimension,
            "fingerprint": encoder.fingerprint,
        },
        "method": type(method).__name__,
        "decoder": {"kind": kind, "name": type(decoder).__name__, "meta": meta},
        "texts": n_texts,
    }
    with temporary_folder(target) as new:
        try:
            method.save(new / _MAP)
            if arrays:
                write_arrays(new / _DECODER, arrays)
            about["sha256"] = {name: sha256_of_file(new / name) for name in (_MAP, _DECODER) if (new / name).exists()}
            write_json(new / _ABOUT, about)
            _put(new, target)
        except OSError as error:
            raise MuteError(f"cannot write {folder}: {error.strerror or error}, so choose another place") from error


def _put(new: Path, target: Path) -> None:
    """Move a folder to its place; what was there is put back if that does not succeed."""
    if target.exists() and exchange(new, target):
        return
    old = target.with_name(f".{target.name}.old")
    try:
        if target.exists():
            os.rename(target, old)
        os.rename(new, target)
    except BaseException:
        _put_back(target)
        raise
    finally:
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


def _put_back(target: Path) -> None:
    """Give an older model its name again, if it lost it and no newer one has it."""
    old = target.with_name(f".{target.name}.old")
    if _is_ours(old) and not target.exists():
        with suppress(OSError):
            os.rename(old, target)


def read_model(
    folder: str | os.PathLike[str], encoder: EncoderLike | None, decoder: Decoder | None
) -> tuple[Encoder, Method, Decoder, int]:
    """What `write_model` wrote, with the encoder and decoder in place of the stored ones if given."""
    import mute

    place = Path(folder)
    with reading(place, _WHAT):
        about = json.loads((place / _ABOUT).read_bytes())
        if about["format"] != "mute-text":
            raise MuteError(f"its {_ABOUT} is not mute's")
        if about["version"] != FORMAT_VERSION:
            raise MuteError(
                f"{place} has format version {about['version']!r}, this mute reads version {FORMAT_VERSION}: load "
                "it with the release that wrote it, or update mute"
            )
        for name, expected in about["sha256"].items():
            if name not in (_MAP, _DECODER) or sha256_of_file(place / name) != expected:
                raise MuteError(f"{name} does not match its checksum")
        name, spec, fingerprint = (about["encoder"][key] for key in ("name", "spec", "fingerprint"))
        kind, own, n_texts = about["decoder"]["kind"], about["decoder"].get("name"), int(about["texts"])
        if decoder is None and kind is None:
            raise MuteError(f"{place} was saved with a decoder of your own, {own}: give it to load as decoder=")
        method = mute.load(place / _MAP)
        if type(method).__name__ != about["method"] or not hasattr(method, "counterfactual"):
            raise MuteError(f"{_MAP} holds a {type(method).__name__}, which is not what {_ABOUT} says")
    known = _encoder(place, name, spec, fingerprint, encoder, method.n_features_in_)
    if decoder is None:
        with reading(place, _WHAT):
            arrays = read_arrays(place / _DECODER, _WHAT)[1] if _DECODER in about["sha256"] else {}
            decoder = decoder_class(kind).from_state(known, arrays, about["decoder"]["meta"])
    return known, method, decoder, n_texts


def _encoder(
    place: Path, name: str, spec: str | None, fingerprint: str | None, given: EncoderLike | None, width: int
) -> Encoder:
    """The encoder of the fit: the one given if it is the same, else the one that the model names."""
    if given is not None:
        found = as_encoder(given)
    elif spec is None:
        raise MuteError(f"{place} was fitted with the function {name!r}: give it to load as encoder=")
    else:
        try:
            found = load_encoder(str(spec))
        except MuteError as error:
            raise MuteError(f"{place} needs its encoder {name!r}, which cannot be loaded: {error}") from error
    if found.fingerprint != fingerprint:
        raise MuteError(
            f"{place} needs the encoder {name!r} that it was fitted with, and {found.name!r} is another or has other "
            "settings: give that one as encoder="
        )
    if found.dimension not in (None, width):
        raise MuteError(f"{place} needs an encoder of {width} columns ({name!r}), {found.name!r} has {found.dimension}")
    return found
