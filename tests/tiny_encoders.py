"""Tiny BERT and MPNet encoders with random weights, in folders like those of real ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

WORDS = [
    "he",
    "she",
    "is",
    "was",
    "a",
    "the",
    "nurse",
    "doctor",
    "and",
    "not",
    "of",
    "in",
    "home",
    "work",
    "went",
    "to",
]
MARKS = {"bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "mpnet": ["<s>", "<pad>", "</s>", "[UNK]"]}
WIDTH, INNER, HEADS, LAYERS, BUCKETS = 16, 24, 4, 2, 8
# Far enough apart for MPNet to use every bucket of distances; its table of positions has two rows more.
LONGEST = 160
ATTENTION = {
    "bert": ["self.query", "self.key", "self.value", "output.dense", "output.LayerNorm"],
    "mpnet": ["attn.q", "attn.k", "attn.v", "attn.o", "LayerNorm"],
}


def config_of(kind: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": kind,
        "hidden_act": "gelu",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "layer_norm_eps": 1e-5,
        "vocab_size": len(MARKS[kind]) + len(WORDS),
        "max_position_embeddings": LONGEST + 2 * (kind == "mpnet"),
        "pad_token_id": MARKS[kind].index("[PAD]" if kind == "bert" else "<pad>"),
    }
    return config | ({"type_vocab_size": 2} if kind == "bert" else {"relative_attention_num_buckets": BUCKETS})


def weights_of(kind: str, seed: int = 0) -> dict[str, np.ndarray]:
    config, rng = config_of(kind), np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], WIDTH),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], WIDTH),
    }
    if kind == "bert":
        shapes["embeddings.token_type_embeddings.weight"] = (2, WIDTH)
    else:
        shapes["encoder.relative_attention_bias.weight"] = (BUCKETS, HEADS)
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        *dense, norm = [at + "attention." + name for name in ATTENTION[kind]]
        norms += [norm, at + "output.LayerNorm"]
        for name, shape in {
            **dict.fromkeys(dense, (WIDTH, WIDTH)),
            at + "intermediate.dense": (INNER, WIDTH),
            at + "output.dense": (WIDTH, INNER),
        }.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    weights = {name: 0.5 * rng.normal(size=shape) for name, shape in shapes.items()}
    for name in norms:
        weights |= {f"{name}.weight": rng.uniform(0.5, 1.5, WIDTH), f"{name}.bias": rng.normal(size=WIDTH)}
    return {name: values.astype(np.float32) for name, values in weights.items()}


def write_encoder(folder: Path, kind: str, prefix: str = "", weights: dict[str, np.ndarray] | None = None) -> Path:
    """Write config.json, model.safetensors and tokenizer.json."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(kind)))
    named = {prefix + name: values for name, values in (weights or weights_of(kind)).items()}
    save_file(named | {"pooler.dense.bias": np.zeros(WIDTH, np.float32)}, folder / "model.safetensors")
    vocabulary = {word: at for at, word in enumerate(MARKS[kind] + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    first, last = ("[CLS]", "[SEP]") if kind == "bert" else ("<s>", "</s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])]
    )
    # As real files do, and to be ignored: every text cut and padded to one length.
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=6)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def tokens_of(kind: str, text: str, longest: int = LONGEST) -> list[int]:
    vocabulary = {word: at for at, word in enumerate(MARKS[kind] + WORDS)}
    words = [vocabulary.get(word, vocabulary["[UNK]"]) for word in text.lower().split()]
    first, last = ("[CLS]", "[SEP]") if kind == "bert" else ("<s>", "</s>")
    return [vocabulary[first], *words[: longest - 2], vocabulary[last]]


def sentences(n: int, seed: int = 0, longest: int = 40) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice([*WORDS, "wibble"], size=rng.integers(0, longest))) for _ in range(n)]
