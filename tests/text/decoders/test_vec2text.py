"""The adapter of vec2text, with a tiny package of that name whose functions are called as the real ones are."""

import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from mute.errors import MuteError
from mute.text import load_encoder
from mute.text.decoders import vec2text as adapter
from mute.text.decoders.decoder import Decoder
from mute.text.decoders.vec2text import LicenceNotice, Vec2Text

FAKE = """
from types import SimpleNamespace
import torch
calls = []

class _Model:
    def __init__(self, path): self.path = path
    @classmethod
    def from_pretrained(cls, path, use_safetensors=None):
        assert use_safetensors is True
        if "broken" in path: raise OSError("no such weights\\nand more")
        return cls(path)

class InversionModel(_Model):
    embedder_dim = 3
    config = SimpleNamespace(embedder_model_name="gtr_base")

class CorrectorEncoderModel(_Model):
    device = torch.device("cpu")

models = SimpleNamespace(InversionModel=InversionModel, CorrectorEncoderModel=CorrectorEncoderModel)

class Corrector:
    def __init__(self, inversion, corrector):
        self.model, self.inversion_trainer = corrector, SimpleNamespace(model=inversion)

def load_corrector(inversion_model, corrector_model):
    return Corrector(inversion_model, corrector_model)

def invert_embeddings(embeddings, corrector, num_steps=None, sequence_beam_width=0):
    assert isinstance(corrector, Corrector) and embeddings.dtype == torch.float32
    assert num_steps is not None or sequence_beam_width == 0
    calls.append((len(embeddings), num_steps, sequence_beam_width))
    return [" ".join(f"{value:.0f}" for value in row) for row in embeddings.tolist()]
"""

METADATA = "Metadata-Version: 2.1\nName: vec2text\nVersion: 0.0.13\nLicense-File: LICENSE\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package, installed as pip would."""
    shelf = tmp_path / "site"
    about = shelf / "vec2text-0.0.13.dist-info"
    about.mkdir(parents=True)
    (shelf / "vec2text.py").write_text(FAKE)
    (about / "METADATA").write_text(METADATA)
    (about / "LICENSE").write_text("\nSoftware for Open Models License (SOM)\nVersion 1.0\n")
    names = ("vec2text.py", *(f"{about.name}/{name}" for name in ("METADATA", "LICENSE", "RECORD")))
    (about / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    monkeypatch.syspath_prepend(shelf)
    monkeypatch.setattr(adapter, "_noticed", False)
    sys.modules.pop("vec2text", None)
    import vec2text  # type: ignore[import-not-found]

    yield vec2text
    sys.modules.pop("vec2text", None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in ("hypothesizer", "corrector"):
        (tmp_path / "models" / part).mkdir(parents=True)
        (tmp_path / "models" / part / "model.safetensors").write_bytes(b"")
    return tmp_path / "models"


def numbers(texts: list[str]) -> list[list[float]]:
    return [[float(word) + 1 for word in text.split()] for text in texts]


def encoder(columns: int = 3) -> Any:
    made = load_encoder(numbers, name="numbers")
    made([" ".join("0" * columns)])
    return made


def test_it_decodes_and_scores_by_the_encoder(package: Any, folder: Path) -> None:
    decoder = Vec2Text(folder, encoder(), batch_size=2, quiet=True)
    assert isinstance(decoder, Decoder)
    decoded = decoder.decode([[1, 2, 3], [0, 0, 5], [1, 1, 1]], ["a", "b", "c"])
    assert decoded.texts == ["1 2 3", "0 0 5", "1 1 1"]
    assert_allclose(decoded.scores, [20 / np.sqrt(14 * 29), 30 / np.sqrt(25 * 38), 1], rtol=1e-6)
    assert package.calls == [(2, 20, 2), (1, 20, 2)]
    assert decoder.decode(np.empty((0, 3))).texts == []


def test_without_steps_it_takes_the_first_guess(package: Any, folder: Path) -> None:
    Vec2Text((folder / "hypothesizer", folder / "corrector"), encoder(), steps=0, quiet=True).decode([[1, 2, 3]])
    assert package.calls == [(1, None, 0)]


def test_a_corrector_of_the_user_is_taken_as_it_is(package: Any) -> None:
    models = [kind("x") for kind in (package.models.InversionModel, package.models.CorrectorEncoderModel)]
    corrector = package.load_corrector(*models)
    assert Vec2Text(corrector, encoder(), quiet=True).decode([[1, 2, 3]]).texts == ["1 2 3"]


def test_the_licence_is_told_once(package: Any, folder: Path) -> None:
    with pytest.warns(LicenceNotice, match=r"Software for Open Models License .* must make that model") as notices:
        Vec2Text(folder, encoder())
    assert notices[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Vec2Text(folder, encoder())


def test_a_wrong_width_names_the_encoder(package: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MuteError, match=r"numbers has 2 columns, .* need the 3 of .* gtr_base"):
        Vec2Text(folder, encoder(2), quiet=True)
    monkeypatch.setattr(package.models.InversionModel, "embedder_dim", 768)
    with pytest.raises(MuteError, match=r"GTR-T5-base \(768 columns, mean-pooled, no dense layer, not normalised\)"):
        Vec2Text(folder, encoder(), quiet=True)
    # A function says how wide it is only when it is called; then the embeddings are checked.
    unknown = load_encoder(numbers, name="numbers")
    decoder = Vec2Text(folder, unknown, quiet=True)
    with pytest.raises(MuteError, match="these embeddings have 3 columns"):
        decoder.decode([[1, 2, 3]])


def test_missing_things_are_said(package: Any, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MuteError, match=r"there is no folder .*hypothesizer"):
        Vec2Text(tmp_path / "nowhere", encoder(), quiet=True)
    with pytest.raises(MuteError, match="two models"):
        Vec2Text((folder,), encoder(), quiet=True)
    with pytest.raises(MuteError, match="steps must be a whole number"):
        Vec2Text(folder, encoder(), steps=-1, quiet=True)
    (folder / "corrector" / "model.safetensors").rename(folder / "corrector" / "pytorch_model.bin")
    with pytest.raises(MuteError, match="no weights in safetensors"):
        Vec2Text(folder, encoder(), quiet=True)
    (folder / "hypothesizer").rename(folder / "broken")
    with pytest.raises(MuteError, match=r"cannot load .* \(no such weights\)"):
        Vec2Text((folder / "broken", folder / "broken"), encoder(), quiet=True)


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vec2text", None)
    with pytest.raises(MuteError, match="pip install vec2text"):
        Vec2Text("x", encoder())


def test_gradients_are_not_kept(package: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    real = package.invert_embeddings

    def watch(**given: Any) -> list[str]:
        kept.append(torch.is_grad_enabled())
        return real(**given)

    monkeypatch.setattr(package, "invert_embeddings", watch)
    Vec2Text(types.SimpleNamespace(**vars(package.load_corrector(None, None))), encoder(), quiet=True)
    Vec2Text(folder, encoder(), quiet=True).decode([[1, 2, 3]])
    assert kept == [False]
