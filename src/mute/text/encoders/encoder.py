"""Encoders of texts: BERT and MPNet (MiniLM among them) without torch, sentence-transformers, or any function."""

from __future__ import annotations

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mute.errors import MuteError, missing_extra
from mute.rows.threads import for_each, resolve_threads
from mute.rows.validation import check_whole_number
from mute.storage.cache import ENCODER_FILES, cached_folder
from mute.text.encoders.folders import Folder, hash_of, why_not
from mute.text.encoders.transformer import build_graph
from mute.text.encoders.weights import read_weights
from mute.typing import Foreign

__all__ = [
    "Encoder", "EncoderLike", "FunctionEncoder", "Stages", "TextsDone", "as_encoder", "check_texts", "counted",
    "first_line", "hash_texts", "load_encoder", "unit",
]  # fmt: skip

TextsDone = Callable[[int, int], object]
Stages = Callable[[str, float], None]
_Function = Callable[[list[str]], ArrayLike]
EncoderLike: TypeAlias = "Encoder | str | os.PathLike[str] | _Function"
_Keep = Callable[[NDArray[np.intp], NDArray[np.float32]], None]

# Encoders that `mute data prepare` fetches.
_PREPARED = ("minilm", "mpnet")

# More tokens in a batch than this do not fit the processor's cache, which makes each of them dearer.
_BATCH_TOKENS = 768

# Texts tokenised at a time: what the tokenizer says of a text takes far more memory than its ids.
_TOKENISED = 4096


def load_encoder(
    spec: str | os.PathLike[str] | _Function,
    *,
    pooling: str | None = None,
    max_tokens: int | None = None,
    normalise: bool | None = None,
    name: str | None = None,
) -> Encoder:
    """Load an encoder, which turns texts into embeddings.

    Parameters
    ----------
    spec : str, path or function
        - ``"minilm"`` or ``"mpnet"``: what ``mute data prepare`` has fetched;
        - a folder with the ``config.json``, ``model.safetensors`` and ``tokenizer.json`` of a BERT or MPNet encoder,
          which runs through onnxruntime;
        - any other folder or name that sentence-transformers knows, if that package is installed;
        - a function that takes a list of n texts and gives an array of shape (n, D).
    pooling : {"mean", "cls"}, optional
        The mean over the tokens of a text, or its first token. By default as the folder says, else the mean.
    max_tokens : int, optional
        Longer texts are cut. By default as the folder says, else the most that the encoder can take.
    normalise : bool, optional
        Whether embeddings get length 1. By default as the folder says, else no.
    name : str, optional
        A function needs a name for its embeddings to be cached: change the name when the function changes.

    Examples
    --------
    >>> encoder = load_encoder(lambda texts: [[len(text), text.count(" ")] for text in texts], name="lengths")
    >>> encoder(["she is a nurse", ""])
    array([[14.,  3.],
           [ 0.,  0.]], dtype=float32)
    """
    if pooling not in (None, "mean", "cls"):
        raise MuteError(f"pooling must be mean or cls, not {pooling!r}")
    check_whole_number("max_tokens", max_tokens, or_none=True)
    max_tokens = None if max_tokens is None else int(max_tokens)
    if callable(spec):
        if pooling is not None or max_tokens is not None:
            raise MuteError("a function pools and cuts texts as it likes: leave out pooling and max_tokens")
        return FunctionEncoder(spec, name, bool(normalise))
    if not isinstance(spec, str | os.PathLike):
        raise MuteError(f"an encoder is a name, a folder or a function, not {type(spec).__name__}")
    folder = cached_folder(str(spec), ENCODER_FILES) if spec in _PREPARED else Path(spec)
    reason = why_not(folder, pooling)
    if reason is None:
        return _OnnxEncoder(Folder(folder, pooling, max_tokens, normalise), name or str(spec))
    if pooling is not None:
        raise MuteError(
            f"{reason}, so only sentence-transformers could run it, with its own pooling: leave pooling out"
        )
    return _SentenceTransformer(os.fspath(spec), reason, max_tokens, bool(normalise), name)


def as_encoder(given: EncoderLike) -> Encoder:
    """An encoder as it is, or what `load_encoder` makes of anything else."""
    return given if isinstance(given, Encoder) else load_encoder(given)


class Encoder(ABC):
    """Turns texts into embeddings; made by `load_encoder`.

    Attributes
    ----------
    name : str
    dimension : int or None
        Columns of the embeddings; None for a function that has not been called yet.
    fingerprint : str or None
        A hash of what decides the embeddings (weights, pooling, length of texts, normalisation), the key under which
        they are cached; None for a function without a name.
    """

    name: str
    dimension: int | None

    @property
    @abstractmethod
    def fingerprint(self) -> str | None: ...

    def __call__(
        self, texts: Sequence[str], batch_size: int = 64, *, progress: TextsDone | None = None
    ) -> NDArray[np.float32]:
        """Encode texts, in their order, as an array of shape (n, D), float32.

        Parameters
        ----------
        texts : sequence of n str
            Empty texts are allowed.
        batch_size : int, default=64
            Most texts encoded at once. It changes memory and speed; embeddings stay the same up to rounding.
        progress : function (texts done, texts in all), optional
            Called now and then, from one thread at a time.
        """
        check_whole_number("batch_size", batch_size)
        given = check_texts(texts)
        if not given and self.dimension is not None:
            return np.empty((0, self.dimension), np.float32)
        if not given:
            raise MuteError(f"no texts were given, and {self.name} has not said yet how wide its embeddings are")
        out = self._encode(given, batch_size, progress or (lambda done, total: None))
        if not np.isfinite(out).all():
            row = int(np.flatnonzero(~np.isfinite(out).all(axis=1))[0])
            raise MuteError(f"{self.name} gave numbers that are not finite for text {row} (counting from 0)")
        return out

    def tokens(self, texts: Sequence[str], batch_size: int = 64) -> list[NDArray[np.float32]]:
        """Encode each token of texts; a function shows no tokens and is refused.

        Returns
        -------
        list of n ndarrays of shape (tokens of the text, D), float32
            The last layer, before pooling and normalisation, without the tokens that mark the start and the end of a
            text. An empty text has no tokens.
        """
        check_whole_number("batch_size", batch_size)
        given = check_texts(texts)
        return self._tokens(given, batch_size) if given else []

    @abstractmethod
    def _encode(self, texts: list[str], batch_size: int, progress: TextsDone) -> NDArray[np.float32]: ...

    def _tokens(self, texts: list[str], batch_size: int) -> list[NDArray[np.float32]]:
        raise MuteError(f"{self.name} gives one embedding for a text and none for its tokens: take another encoder")

    def __repr__(self) -> str:
        return f"<encoder {self.name}: {'?' if self.dimension is None else self.dimension} columns>"


def check_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list; anything else than whole texts is an error."""
    if isinstance(texts, str | bytes):
        raise MuteError("one text was given where a list of texts is needed: put it into a list")
    try:
        given = list(texts)
    except TypeError:
        raise MuteError(f"texts must be a list of texts, not {type(texts).__name__}") from None
    for row, text in enumerate(given):
        if not isinstance(text, str):
            raise MuteError(f"text {row} (counting from 0) is {text!r:.80}, not a text: fill it or drop the row")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise MuteError(f"text {row} (counting from 0) holds half of a surrogate pair: mend it") from None
    # numpy's strings are a subclass, which the tokenizer does not take.
    return [str(text) for text in given]


class _OnnxEncoder(Encoder):
    """BERT or MPNet, run by onnxruntime."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name, self.dimension = name, folder.arch.width
        self._folder = folder
        self._tokenizer = folder.tokenizer()
        self._session = _session(folder)

    @cached_property
    def fingerprint(self) -> str:
        return self._folder.fingerprint()

    def _encode(self, texts: list[str], batch_size: int, progress: TextsDone) -> NDArray[np.float32]:
        out = np.empty((len(texts), self._folder.arch.width), np.float32)

        def keep(rows: NDArray[np.intp], found: NDArray[np.float32]) -> None:
            out[rows] = found

        self._run("embeddings", self._tokenised(texts)[0], batch_size, keep, progress)
        return out

    def _tokens(self, texts: list[str], batch_size: int) -> list[NDArray[np.float32]]:
        ids, marks = self._tokenised(texts)
        out = [np.empty((0, self._folder.arch.width), np.float32)] * len(texts)

        def keep(rows: NDArray[np.intp], found: NDArray[np.float32]) -> None:
            for row, states in zip(rows, found, strict=True):
                out[row] = states[: len(ids[row])][~marks[row]]

        self._run("tokens", ids, batch_size, keep, lambda done, total: None)
        return out

    def _run(
        self, output: str, ids: list[NDArray[np.int32]], batch_size: int, keep: _Keep, progress: TextsDone
    ) -> None:
        """Run all texts in batches; `keep` gets the rows of each batch and what came out."""
        lengths = np.array([max(len(row), 1) for row in ids])
        # Neighbours in this order have nearly one length, which leaves little to pad. Long texts come first, so that
        # threads do not wait for one of them in the end.
        order = np.argsort(-lengths, kind="stable")
        lock, done = threading.Lock(), 0

        def work(part: slice) -> None:
            nonlocal done
            rows = order[part]
            tokens = np.full((len(rows), lengths[rows[0]]), self._folder.arch.padding, np.int64)
            mask = np.zeros(tokens.shape, np.float32)
            for at, row in enumerate(rows):
                tokens[at, : len(ids[row])] = ids[row]
                mask[at, : len(ids[row])] = 1.0
            keep(rows, self._session.run([output], {"ids": tokens, "mask": mask})[0])
            with lock:
                done += len(rows)
                progress(done, len(ids))

        for_each(work, _batches(lengths[order], batch_size), _threads())

    def _tokenised(self, texts: list[str]) -> tuple[list[NDArray[np.int32]], list[NDArray[np.bool_]]]:
        """The ids of each text, and which of them only mark its start and end."""
        if self._folder.lower:
            texts = [text.lower() for text in texts]
        ids, marks = [], []
        for start in range(0, len(texts), _TOKENISED):
            for one in self._tokenizer.encode_batch(texts[start : start + _TOKENISED]):
                ids.append(np.array(one.ids, np.int32))
                marks.append(np.array(one.special_tokens_mask, bool))
        most = max((int(row.max(initial=0)) for row in ids), default=0)
        if most >= self._folder.arch.vocabulary:
            raise MuteError(
                f"{self._folder.path}: tokenizer.json knows token {most}, the weights have only "
                f"{self._folder.arch.vocabulary}: take both from the same model"
            )
        return ids, marks


def _session(folder: Folder) -> Foreign:
    try:
        import onnxruntime
    except ImportError:
        raise missing_extra("onnxruntime", "text", "encoding texts") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # warnings about the machine are not ours to print
    # Batches run side by side, one on each core, which keeps cores busier than sharing each product among them.
    options.intra_op_num_threads = 1
    weights = read_weights(folder.path / "model.safetensors", folder.arch)
    content, tensors = build_graph(folder.arch, weights, folder.pooling, folder.normalise)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(tensor) for tensor in tensors.values()]
    options.add_external_initializers(list(tensors), values)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _batches(lengths: NDArray[np.int64], batch_size: int) -> list[slice]:
    """Cut texts in order of their length, longest first, into batches of few enough texts and tokens."""
    parts, start = [], 0
    while start < len(lengths):
        stop = start + min(batch_size, max(1, _BATCH_TOKENS // int(lengths[start])))
        parts.append(slice(start, min(stop, len(lengths))))
        start = stop
    return parts


def _threads() -> int:
    """As many threads as ``OMP_NUM_THREADS`` says, else all cores this process may run on."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return resolve_threads(int(asked) if asked.isdecimal() and int(asked) > 0 else None)


class FunctionEncoder(Encoder):
    """A function of the user's."""

    def __init__(self, function: _Function, name: str | None, normalise: bool) -> None:
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.dimension: int | None = None
        self._function, self._named, self._normalise = function, name is not None, normalise

    @property
    def fingerprint(self) -> str | None:
        return hash_of(["function", self.name, self._normalise]) if self._named else None

    def _encode(self, texts: list[str], batch_size: int, progress: TextsDone) -> NDArray[np.float32]:
        parts = []
        for start in range(0, len(texts), batch_size):
            batch = texts[start : start + batch_size]
            try:
                rows = np.asarray(self._function(batch), dtype=np.float32)
            except (TypeError, ValueError) as error:
                if isinstance(error, MuteError):
                    raise
                raise MuteError(f"{self.name} gave no matrix of numbers: {error}") from error
            if rows.ndim != 2 or len(rows) != len(batch) or rows.shape[1] != (self.dimension or rows.shape[1]):
                wanted = f"({len(batch)}, {self.dimension or 'D'})"
                raise MuteError(f"{self.name} gave an array of shape {rows.shape} for {len(batch)} texts, not {wanted}")
            self.dimension = rows.shape[1]
            parts.append(unit(rows) if self._normalise else rows)
            progress(start + len(batch), len(texts))
        return np.concatenate(parts)


class _SentenceTransformer(Encoder):
    """A model of the sentence-transformers package, which runs on torch."""

    def __init__(self, spec: str, reason: str, max_tokens: int | None, normalise: bool, name: str | None) -> None:
        try:
            package = import_module("sentence_transformers")
        except ImportError:
            raise MuteError(
                f"{reason}; give {', '.join(_PREPARED)}, a folder with config.json, model.safetensors and "
                "tokenizer.json of a BERT or MPNet encoder, or install sentence-transformers, which knows other kinds"
            ) from None
        try:
            self._model = package.SentenceTransformer(spec)
        except Exception as error:
            # Broad on purpose: files, network and remote repositories each raise their own types.
            raise MuteError(
                f"{reason}, and sentence-transformers cannot load it either ({first_line(error)})"
            ) from error
        if max_tokens is not None:
            self._model.max_seq_length = max_tokens
        self.name, self._spec, self._normalise = name or spec, spec, normalise
        self.dimension = self._model.encode([""]).shape[1]

    @cached_property
    def fingerprint(self) -> str:
        state = hashlib.sha256()
        for name, tensor in self._model.state_dict().items():
            state.update(name.encode())
            state.update(tensor.detach().cpu().float().numpy().tobytes())
        return hash_of(["sentence-transformers", self._spec, str(self._model), state.hexdigest(), self._normalise])

    def _encode(self, texts: list[str], batch_size: int, progress: TextsDone) -> NDArray[np.float32]:
        rows = self._model.encode(texts, batch_size=batch_size, show_progress_bar=False)
        progress(len(texts), len(texts))
        rows = np.asarray(rows, np.float32)
        return unit(rows) if self._normalise else rows

    def _tokens(self, texts: list[str], batch_size: int) -> list[NDArray[np.float32]]:
        try:
            shown = {"show_progress_bar": False, "output_value": "token_embeddings"}
            found = self._model.encode(texts, batch_size=batch_size, **shown)
            longest = self._model.max_seq_length
            cut = self._model.tokenizer(texts, truncation=True, max_length=longest, return_special_tokens_mask=True)
            rows = [np.asarray(states.detach().cpu().float().numpy(), np.float32) for states in found]
            marks = [np.array(mask, bool) for mask in cut["special_tokens_mask"]]
            return [states[~mask] for states, mask in zip(rows, marks, strict=True)]
        except Exception as error:
            # Broad on purpose: models without a transformer inside fail each in its own way.
            raise MuteError(
                f"{self.name} does not show its tokens ({first_line(error)}): take another encoder"
            ) from error


def counted(stages: Stages, stage: str) -> TextsDone:
    """Counts of texts, reported as shares of a stage."""
    return lambda done, total: stages(stage, done / max(total, 1))


def hash_texts(texts: list[str], key: str = "") -> str:
    """A hash of the key and of the texts in their order, each with its length so that no two lists look alike."""
    digest = hashlib.sha256(key.encode())
    for text in texts:
        raw = text.encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def first_line(error: Exception) -> str:
    """The beginning of what an error of another package says."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def unit(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    """Rows at length 1; those of zeros stay."""
    lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
    return (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
