"""Decode with vec2text (Morris et al., 2023), for users who have its package and its weights.

Neither comes with this package, and neither is fetched. vec2text has a licence of its own; a notice says once what it
asks of its users.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from mute.errors import MuteError
from mute.rows.validation import check_whole_number
from mute.text.decoders.decoder import Decoded, check_wanted, cosines
from mute.text.encoders.encoder import Encoder, first_line
from mute.typing import Foreign

__all__ = ["LicenceNotice", "Vec2Text"]

# Which encoders the published weights were trained for, by the columns of their embeddings.
_PUBLISHED = {
    768: "GTR-T5-base (768 columns, mean-pooled, no dense layer, not normalised)",
    1536: "text-embedding-ada-002 (1536 columns)",
}
_PARTS = ("hypothesizer", "corrector")
_Path = str | os.PathLike[str]

_noticed = False


class LicenceNotice(UserWarning):
    """What the licence of a package that this one uses asks of its users."""


class Vec2Text:
    """Turns embeddings back into texts with the package and the weights of vec2text.

    Parameters
    ----------
    model : path, pair of paths, or corrector
        The folders of the two models of vec2text, as ``save_pretrained`` writes them: one folder with both as
        ``hypothesizer`` and ``corrector``, or the two folders. Only weights in safetensors are read. Or the object that
        ``vec2text.load_corrector`` gives.
    encoder : Encoder
        The encoder that the weights were trained for, to score texts with. The published ``gtr-base`` weights need
        GTR-T5-base: 768 columns, mean-pooled, without its dense layer, not normalised.
    steps : int, default=20
        Corrections; with 0, the result is the hypothesizer's first guess.
    beam : int, default=2
        Texts kept from step to step.
    batch_size : int, default=64
    quiet : bool, default=False
        Leave out the `LicenceNotice`, a warning given once.

    See Also
    --------
    Inverter : a small network of the same kind, trained here for any encoder.

    Notes
    -----
    *Limits.* Sources are not used. The published weights know texts of up to 32 tokens. Their models look for the
    encoder that they were trained with under its name, which the ``transformers`` package must find by itself.
    """

    def __init__(
        self,
        model: _Path | tuple[_Path, _Path] | Foreign,
        encoder: Encoder,
        *,
        steps: int = 20,
        beam: int = 2,
        batch_size: int = 64,
        quiet: bool = False,
    ) -> None:
        for name, value, least in (("steps", steps, 0), ("beam", beam, 1), ("batch_size", batch_size, 1)):
            check_whole_number(name, value, least)
        self.encoder, self.steps, self.beam, self._batch_size = encoder, steps, beam, batch_size
        try:
            self._package = import_module("vec2text")
        except ImportError as error:
            raise MuteError(f"vec2text is not there ({error}): pip install vec2text, and mind its licence") from error
        if not quiet:
            _give_notice()
        self._corrector = _load(self._package, model) if isinstance(model, str | os.PathLike | tuple) else model
        self._check_width(encoder.dimension, f"{encoder.name} has")

    def decode(self, embeddings: ArrayLike, sources: Sequence[str] | None = None) -> Decoded:
        """Find a text for each embedding; sources are not used, and scores are those of the encoder given here."""
        import torch

        wanted, _ = check_wanted(embeddings, sources, self.encoder)
        self._check_width(wanted.shape[1], "these embeddings have")
        device = getattr(self._corrector.model, "device", "cpu")
        texts: list[str] = []
        # Its first guess takes no beam.
        search = {"num_steps": self.steps or None, "sequence_beam_width": self.beam if self.steps else 0}
        for start in range(0, len(wanted), self._batch_size):
            rows = torch.tensor(wanted[start : start + self._batch_size], device=device)
            with torch.no_grad():
                texts += self._package.invert_embeddings(embeddings=rows, corrector=self._corrector, **search)
        scores = cosines(self.encoder(texts), wanted) if texts else np.empty(0, np.float32)
        return Decoded(texts, scores)

    def _check_width(self, width: int | None, who: str) -> None:
        model = self._corrector.inversion_trainer.model
        needed = getattr(model, "embedder_dim", None)
        if width is None or needed is None or width == needed:
            return
        names = [getattr(getattr(model, "config", None), "embedder_model_name", None), _PUBLISHED.get(needed)]
        known = ", for the published weights ".join(name for name in names if name) or "its name is not known"
        raise MuteError(
            f"{who} {width} columns, but these weights of vec2text need the {needed} of an encoder: {known}"
        )


def _load(package: Foreign, model: _Path | tuple[_Path, ...]) -> Foreign:
    folders = [Path(part) for part in model] if isinstance(model, tuple) else [Path(model) / part for part in _PARTS]
    if len(folders) != 2:
        raise MuteError(f"vec2text has two models, {' and '.join(_PARTS)}; {len(folders)} folders were given")
    for folder, part in zip(folders, _PARTS, strict=True):
        if not folder.is_dir():
            raise MuteError(f"there is no folder {folder}: put the {part} of vec2text there")
        # Other files of weights are pickles, and reading these can run code.
        if not any(folder.glob("*.safetensors")):
            raise MuteError(f"{folder} holds no weights in safetensors: save the {part} in that format")
    kinds = (package.models.InversionModel, package.models.CorrectorEncoderModel)
    try:
        pairs = zip(kinds, folders, strict=True)
        return package.load_corrector(*(kind.from_pretrained(str(at), use_safetensors=True) for kind, at in pairs))
    except Exception as error:
        # Broad on purpose: files, settings and torch each raise their own types.
        raise MuteError(f"vec2text cannot load {' and '.join(map(str, folders))} ({first_line(error)})") from error


def _give_notice() -> None:
    global _noticed
    if _noticed:
        return
    _noticed = True
    name = _licence()
    notice = f"vec2text is used under its own licence: {name}."
    if name.startswith("Software for Open Models"):
        notice += (
            " Whoever uses a model through it, be it only to decode, must make that model and its weights public under"
            " open terms; read the licence before you use it."
        )
    warnings.warn(notice + " (quiet=True leaves this notice out.)", LicenceNotice, stacklevel=3)


def _licence() -> str:
    """What the installed package says: the first line of its licence, else the field of its metadata."""
    try:
        package = metadata.distribution("vec2text")
    except metadata.PackageNotFoundError:
        return "see the package"
    names = ("LICENSE", "LICENCE")
    files = [f for f in package.files or [] if f.name.upper().startswith(names) and ".dist-info" in str(f)]
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    fields = [package.metadata[name] for name in ("License-Expression", "License") if name in package.metadata]
    return next(filter(None, [*lines, *fields]), "see the package")
