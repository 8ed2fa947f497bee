"""Encoders: the graph is the network, batches change nothing, and what cannot be used is said in one line."""

import json
import math
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf, log_softmax

from mute import MuteError
from mute.text import load_encoder
from tiny_encoders import (
    ATTENTION,
    BUCKETS,
    HEADS,
    LAYERS,
    LONGEST,
    WIDTH,
    config_of,
    sentences,
    tokens_of,
    weights_of,
    write_encoder,
)

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

TEXTS = ["", "she is a nurse", "wibble", *sentences(7), " ".join(["the doctor went to work"] * 30)]


@pytest.fixture(scope="module", params=["bert", "mpnet"])
def folder(request, tmp_path_factory) -> Path:
    return write_encoder(tmp_path_factory.mktemp(request.param) / request.param, request.param)


def layer_norm(x, w, name):
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return (x - x.mean(axis=-1, keepdims=True)) / spread * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x, w, name):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def bucket(distance: int) -> int:
    """Of key minus query: half of the buckets for each direction; in each, half for single steps, half growing."""
    half, near = BUCKETS // 2, BUCKETS // 4
    n = abs(distance)
    if n >= near:
        n = min(near + int(math.log(n / near) / math.log(128 / near) * (half - near) + 1e-9), half - 1)
    return n + half * (distance > 0)


def forward(kind: str, ids: list[int], pooling: str | None) -> np.ndarray:
    """One text, without padding or batches, in double precision; without pooling, all its tokens."""
    w = {name: values.astype(np.float64) for name, values in weights_of(kind).items()}
    n = len(ids)
    x = w["embeddings.word_embeddings.weight"][ids]
    bias = np.zeros((HEADS, n, n))
    if kind == "bert":
        x = x + w["embeddings.position_embeddings.weight"][:n] + w["embeddings.token_type_embeddings.weight"][0]
    else:
        x = x + w["embeddings.position_embeddings.weight"][2 : n + 2]
        table = w["encoder.relative_attention_bias.weight"]
        bias = np.array([[table[bucket(j - i)] for j in range(n)] for i in range(n)]).transpose(2, 0, 1)
    x = layer_norm(x, w, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        query, key, value, output, norm = (f"{at}attention.{name}" for name in ATTENTION[kind])
        heads = []
        for h in range(HEADS):
            part = slice(h * WIDTH // HEADS, (h + 1) * WIDTH // HEADS)
            q, k, v = (linear(x, w, name)[:, part] for name in (query, key, value))
            scores = q @ k.T / math.sqrt(WIDTH / HEADS) + bias[h]
            heads.append(np.exp(log_softmax(scores, axis=1)) @ v)
        x = layer_norm(linear(np.hstack(heads), w, output) + x, w, norm)
        inner = linear(x, w, at + "intermediate.dense")
        inner = inner * (1 + erf(inner / math.sqrt(2))) / 2
        x = layer_norm(linear(inner, w, at + "output.dense") + x, w, at + "output.LayerNorm")
    return x if pooling is None else x.mean(axis=0) if pooling == "mean" else x[0]


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_graph_is_the_network(folder, pooling, normalise):
    encoder = load_encoder(folder, pooling=pooling, normalise=normalise)
    expected = np.array([forward(folder.name, tokens_of(folder.name, text), pooling) for text in TEXTS])
    if normalise:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = encoder(TEXTS)
    assert found.dtype == np.float32 and found.shape == (len(TEXTS), WIDTH) == (len(TEXTS), encoder.dimension)
    # Single precision against double, through two layers.
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_tokens_are_the_last_layer_without_its_marks(folder, monkeypatch):
    encoder = load_encoder(folder, pooling="cls", normalise=True)
    expected = [forward(folder.name, tokens_of(folder.name, text), None)[1:-1] for text in TEXTS]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    for batch_size in (1, 3, 64):
        found = encoder.tokens(TEXTS, batch_size)
        assert [one.shape for one in found] == [one.shape for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == np.float32
            np.testing.assert_allclose(one, other, atol=1e-5)
    assert encoder.tokens([]) == [] and encoder.tokens([""])[0].shape == (0, WIDTH)
    with pytest.raises(MuteError, match="batch_size"):
        encoder.tokens(["a"], 0)


def test_padding_inside_a_text_has_the_position_of_padding(tmp_path):
    """MPNet counts positions over tokens that are not padding, also where a text spells the padding token."""
    encoder = load_encoder(write_encoder(tmp_path / "first", "mpnet"))
    # A second encoder in which the word 6 looks like padding, and positions 2 to 6 are those that the first counts.
    weights = weights_of("mpnet")
    weights["embeddings.word_embeddings.weight"][6] = weights["embeddings.word_embeddings.weight"][1]
    places = weights["embeddings.position_embeddings.weight"]
    places[2:7] = places[[2, 3, 1, 4, 5]]
    other = load_encoder(write_encoder(tmp_path / "second", "mpnet", weights=weights))
    mask = np.ones((1, 5), np.float32)
    found, expected = (
        one._session.run(None, {"ids": np.array([[0, 4, word, 5, 2]]), "mask": mask})[0]
        for one, word in ((encoder, 1), (other, 6))
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_batches_and_threads_change_nothing(folder, monkeypatch):
    encoder, texts = load_encoder(folder), sentences(150)
    alone = np.concatenate([encoder([text]) for text in texts])
    for batch_size in (1, 7, 64, 1000):
        np.testing.assert_allclose(encoder(texts, batch_size), alone, atol=1e-5)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    np.testing.assert_allclose(encoder(texts), alone, atol=1e-5)
    shuffled = np.random.default_rng(0).permutation(len(texts))
    np.testing.assert_allclose(encoder([texts[i] for i in shuffled]), alone[shuffled], atol=1e-5)
    # numpy's strings are texts, too.
    np.testing.assert_allclose(encoder(np.array(texts)), alone, atol=1e-5)
    assert encoder([]).shape == (0, WIDTH)


def test_long_texts_are_cut(folder):
    text = " ".join(["she went home"] * 100)
    for longest in (3, 10, LONGEST):
        expected = forward(folder.name, tokens_of(folder.name, text, longest), "mean")
        np.testing.assert_allclose(load_encoder(folder, max_tokens=longest)([text])[0], expected, atol=1e-5)
    np.testing.assert_allclose(load_encoder(folder)([text])[0], expected, atol=1e-5)


def test_the_folder_says_how_it_is_used(folder, tmp_path):
    write_encoder(tmp_path, folder.name)
    steps = [("", "models.Transformer"), ("1_Pooling", "models.Pooling"), ("2_Normalize", "models.Normalize")]
    modules = [{"path": path, "type": f"sentence_transformers.{kind}"} for path, kind in steps]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 7, "do_lower_case": false}')
    (tmp_path / "1_Pooling").mkdir()
    pools = tmp_path / "1_Pooling" / "config.json"
    expected = load_encoder(folder, pooling="cls", max_tokens=7, normalise=True)(TEXTS)
    for config in (
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        {"pooling_mode": "cls"},
        {"pooling_mode": ["cls"]},
    ):
        pools.write_text(json.dumps(config))
        np.testing.assert_array_equal(load_encoder(tmp_path)(TEXTS), expected)
    other = load_encoder(tmp_path, pooling="mean", max_tokens=9, normalise=False)(TEXTS)
    np.testing.assert_array_equal(other, load_encoder(folder, max_tokens=9)(TEXTS))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 100000}')
    assert load_encoder(tmp_path)(TEXTS).shape == (len(TEXTS), WIDTH)


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_other_names_and_precisions_of_weights(kind, tmp_path):
    plain = load_encoder(write_encoder(tmp_path / "plain", kind))(TEXTS)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): values
        for name, values in weights_of(kind).items()
    }
    found = load_encoder(write_encoder(tmp_path / "old", kind, prefix=f"{kind}.", weights=old))(TEXTS)
    np.testing.assert_array_equal(found, plain)
    halves = {name: values.astype(np.float16) for name, values in weights_of(kind).items()}
    found = load_encoder(write_encoder(tmp_path / "half", kind, weights=halves))(TEXTS)
    assert found.dtype == np.float32 and 0 < np.abs(found - plain).max() < 0.05


def test_the_fingerprint_follows_what_decides_the_embeddings(folder, tmp_path):
    def prints(place, **settings):
        return load_encoder(place, **settings).fingerprint

    same = write_encoder(tmp_path / "same", folder.name)
    other = write_encoder(tmp_path / "other", folder.name, weights=weights_of(folder.name, seed=1))
    assert prints(folder) == prints(same) == prints(folder, pooling="mean", name="another name")
    different = [{"pooling": "cls"}, {"max_tokens": 9}, {"normalise": True}]
    found = [prints(folder), prints(other), *(prints(folder, **settings) for settings in different)]
    assert len(set(found)) == 5


def test_prepared_encoders(folder, monkeypatch):
    monkeypatch.setattr(f"{load_encoder.__module__}.cached_folder", lambda name, files: {"minilm": folder}[name])
    encoder = load_encoder("minilm")
    assert encoder.name == "minilm" and encoder.fingerprint == load_encoder(folder).fingerprint


def test_functions():
    sizes = []

    def lengths(texts):
        sizes.append(len(texts))
        return [[len(text), 1] for text in texts]

    encoder = load_encoder(lengths)
    assert (encoder.name, encoder.dimension, encoder.fingerprint) == ("lengths", None, None)
    seen = []
    found = encoder(["a", "", "abc"], 2, progress=lambda done, total: seen.append((done, total)))
    assert found.tolist() == [[1, 1], [0, 1], [3, 1]] and found.dtype == np.float32
    assert encoder.dimension == 2 and sizes == [2, 1] and seen == [(2, 3), (3, 3)]
    assert load_encoder(lengths, name="a").fingerprint != load_encoder(lengths, name="b").fingerprint is not None
    unit = load_encoder(lengths, normalise=True)(["abc"])
    np.testing.assert_allclose(unit, [[3 / math.sqrt(10), 1 / math.sqrt(10)]], atol=1e-7)


def test_progress_counts_all_texts(folder, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    seen = []
    load_encoder(folder)(sentences(100), 8, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen) and seen[-1] == (100, 100) and len(seen) >= 13


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("she", "one text was given"),
        ([b"she"], "text 0 (counting from 0) is b'she', not a text"),
        (["she", None], "text 1 (counting from 0) is None, not a text"),
        (["she", float("nan")], "text 1 (counting from 0) is nan"),
        (["a\ud800"], "half of a surrogate pair"),
        (7, "must be a list of texts, not int"),
    ],
)
def test_what_is_no_text(folder, texts, message):
    with pytest.raises(MuteError) as caught:
        load_encoder(folder)(texts)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: [1.0] * len(texts), "shape (2,) for 2 texts, not (2, D)"),
        (lambda texts: [[1.0]], "shape (1, 1) for 2 texts"),
        (lambda texts: [["x"]] * len(texts), "no matrix of numbers"),
        (lambda texts: [[float("nan")]] * len(texts), "not finite for text 0"),
    ],
)
def test_functions_that_give_no_embeddings(function, message):
    with pytest.raises(MuteError) as caught:
        load_encoder(function)(["a", "b"])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "max"}, "pooling must be mean or cls, not 'max'"),
        ({"max_tokens": 0}, "max_tokens must be None or a whole number of at least 1"),
        ({"max_tokens": 2}, "leaves no room for words"),
        ({"max_tokens": LONGEST + 1}, f"takes at most {LONGEST} tokens"),
    ],
)
def test_settings_that_do_not_fit(folder, settings, message):
    with pytest.raises(MuteError, match=message):
        load_encoder(folder, **settings)
    with pytest.raises(MuteError, match="leave out pooling"):
        load_encoder(len, pooling="cls")
    with pytest.raises(MuteError, match="batch_size"):
        load_encoder(folder)(["a"], 0)


def damage(place: Path, what: str) -> None:
    config = json.loads((place / "config.json").read_text())
    match what:
        case "cut weights":
            whole = (place / "model.safetensors").read_bytes()
            (place / "model.safetensors").write_bytes(whole[: len(whole) // 2])
        case "no layer":
            weights = weights_of("bert")
            del weights["encoder.layer.1.output.dense.bias"]
            write_encoder(place, "bert", weights=weights)
        case "tokenizer":
            (place / "tokenizer.json").write_text("{}")
        case "larger vocabulary":
            weights = weights_of("bert")
            weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"][:5]
            write_encoder(place, "bert", weights=weights)
            config["vocab_size"] = 5
        case "json":
            (place / "config.json").write_text("{")
            return
        case "heads":
            config["num_attention_heads"] = 3
        case "width":
            config["hidden_size"] = 32
        case "text for a number":
            config["num_hidden_layers"] = "two"
    (place / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("cut weights", "model.safetensors is damaged or not the weights of a bert encoder"),
        ("no layer", "no tensor 'encoder.layer.1.output.dense.bias'"),
        ("tokenizer", "tokenizer.json cannot be read"),
        ("larger vocabulary", "the weights have only 5"),
        ("json", "config.json cannot be read"),
        ("heads", "cannot be shared among 3"),
        ("width", r"has shape \(20, 16\), its config.json asks for \(20, 32\)"),
        ("text for a number", "num_hidden_layers must be a whole number from 1, not 'two'"),
    ],
)
def test_damaged_folders(tmp_path, what, message):
    write_encoder(tmp_path, "bert")
    damage(tmp_path, what)
    with pytest.raises(MuteError, match=message) as caught:
        load_encoder(tmp_path)(["she is a doctor"])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "roberta"}, "a model of kind 'roberta'"),
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
        ("Dense", "a step 'Dense'"),
        ("tokenizer.json", "lacks tokenizer.json"),
        ("name", "there is no encoder and no folder"),
    ],
)
def test_what_sentence_transformers_must_run(tmp_path, monkeypatch, change, reason):
    place: Path | str = write_encoder(tmp_path / "model", "bert")
    match change:
        case dict():
            (place / "config.json").write_text(json.dumps(config_of("bert") | change))
        case "Dense":
            (place / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]')
        case "tokenizer.json":
            (place / "tokenizer.json").unlink()
        case "name":
            place = "some/name"
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MuteError, match="or install sentence-transformers") as caught:
        load_encoder(place)
    assert reason in str(caught.value)

    class Stub:
        max_seq_length = 128

        def __init__(self, spec):
            if spec == "some/name":
                raise OSError("not found\nat all")
            self.spec = spec

        def encode(self, texts, **settings):
            return np.array([[3.0 * len(text), 4.0 * len(text)] for text in texts])

        def state_dict(self):
            return {}

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Stub))
    if change == "name":
        with pytest.raises(MuteError, match=r"cannot load it either \(not found\)"):
            load_encoder(place)
        return
    encoder = load_encoder(place, max_tokens=5, normalise=True)
    np.testing.assert_allclose(encoder(["ab", "abc"]), [[0.6, 0.8]] * 2, atol=1e-7)
    assert encoder._model.max_seq_length == 5 and encoder.dimension == 2 and encoder.fingerprint
    with pytest.raises(MuteError, match="leave pooling out"):
        load_encoder(place, pooling="cls")


def test_tokens_of_sentence_transformers(monkeypatch):
    torch = pytest.importorskip("torch")

    class Stub:
        max_seq_length = 4

        def __init__(self, spec):
            pass

        def encode(self, texts, output_value="sentence_embedding", **settings):
            if output_value == "sentence_embedding":
                return np.zeros((len(texts), 2))
            return [torch.full((min(len(text.split()) + 2, 4), 2), float(len(text))) for text in texts]

        def tokenizer(self, texts, truncation, max_length, return_special_tokens_mask):
            inside = [min(len(text.split()), max_length - 2) for text in texts]
            return {"special_tokens_mask": [[1, *[0] * n, 1] for n in inside]}

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Stub))
    encoder = load_encoder("some/name")
    assert [one.tolist() for one in encoder.tokens(["", "a", "a b c"])] == [[], [[1, 1]], [[5, 5], [5, 5]]]
    del Stub.tokenizer
    with pytest.raises(MuteError, match="some/name does not show its tokens"):
        encoder.tokens(["a"])


def test_no_torch_is_needed(folder):
    code = f"""
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
from mute.text import load_encoder
assert not {{"onnx", "onnxruntime", "tokenizers", "safetensors"}} & set(sys.modules)
print(load_encoder({str(folder)!r})(["she is a nurse"]).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"(1, {WIDTH})", done.stderr
