"""Models that were saved before the modules moved load, and answer as they did."""

from pathlib import Path

import numpy as np
import pytest

import mute
from gendered_texts import mean_of_words
from mute.datasets import Dataset
from mute.text import TextCounterfactual

SAVED = Path(__file__).parent / "data" / "saved"
KINDS = sorted(path.stem for path in SAVED.glob("*.safetensors") if path.stem != "Dataset")


def test_there_are_saved_models() -> None:
    assert len(KINDS) == 14


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_answers_as_it_did(kind: str) -> None:
    """Equal to rounding: another BLAS sums in another order."""
    model = mute.load(SAVED / f"{kind}.safetensors")
    with np.load(SAVED / "expected.npz", allow_pickle=False) as file:
        x, z, answers = file["x"], file["z"], {n: file[n] for n in file.files if n.startswith(f"{kind}.")}
    assert f"{kind}.transform" in answers
    np.testing.assert_allclose(model.transform(x, concept=z), answers.pop(f"{kind}.transform"), rtol=1e-6, atol=1e-6)
    for answer in answers.values():
        np.testing.assert_allclose(model.counterfactual(x, "m", concept=z), answer, rtol=1e-6, atol=1e-6)


def test_a_saved_data_set_opens() -> None:
    data = Dataset.open(SAVED / "Dataset.safetensors")
    with np.load(SAVED / "expected.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(data.X, file["x"].astype(np.float32))
        np.testing.assert_array_equal(data.z, file["z"])


@pytest.mark.parametrize("decoder", ["edits", "retrieval"])
def test_a_saved_model_of_texts_answers_as_it_did(decoder: str) -> None:
    lines = (SAVED / f"text-{decoder}.txt").read_text().splitlines()
    model = TextCounterfactual.load(SAVED / f"text-{decoder}", mean_of_words())
    assert model.counterfactual(lines[:8], "female").texts == lines[8:]
