"""Encode many texts in blocks that are kept as they are done, so that an interrupted run goes on where it was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.storage.files import write_atomically
from mute.text.encoders.encoder import Encoder, EncoderLike, TextsDone, as_encoder, check_texts, hash_texts

__all__ = ["encode", "forget"]

# Texts in a block: the most work that an interruption can cost.
_BLOCK = 1024


def encode(
    texts: Sequence[str],
    encoder: EncoderLike,
    *,
    batch_size: int = 64,
    cache: str | os.PathLike[str] | None = None,
    progress: TextsDone | None = None,
) -> NDArray[np.float32]:
    """Encode texts, with a cache if wanted.

    Parameters
    ----------
    texts : sequence of n str
        Empty ones are allowed.
    encoder : Encoder, str, path or function
        From `load_encoder`, or an argument of it.
    batch_size : int, default=64
        Most texts encoded at once.
    cache : path, optional
        A folder, made if need be. Finished blocks of 1,024 texts are kept there; in the end they become one file, from
        which the same texts and encoder are read the next time. Damaged files are made anew.
    progress : function (texts done, texts in all), optional
        Called now and then, from one thread at a time.

    Returns
    -------
    ndarray of shape (n, D), float32
        In the order of the texts. With a cache, its file mapped into memory, read-only.

    Notes
    -----
    *Limits.* The key of the cache is the encoder's `fingerprint` with all texts in their order: other texts share
    nothing with it. A function needs a name to be cached.

    Examples
    --------
    >>> import tempfile
    >>> from mute.text import load_encoder
    >>> lengths = load_encoder(lambda texts: [[len(text)] for text in texts], name="lengths")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = encode(["a", "bcd"], lengths, cache=folder).tolist()
    ...     again = encode(["a", "bcd"], lengths, cache=folder).tolist()
    >>> first == again == [[1.0], [3.0]]
    True
    """
    encoder, given, tell = as_encoder(encoder), check_texts(texts), progress or (lambda done, total: None)
    if cache is None or not given:
        return encoder(given, batch_size, progress=tell)
    if encoder.fingerprint is None:
        raise MuteError(
            f"embeddings of the function {encoder.name} cannot be cached without a name to know it by: use "
            "load_encoder(function, name=...), or leave the cache out"
        )
    # The one file of these texts, and the folder of its blocks.
    key = hash_texts(given, encoder.fingerprint)[:32]
    whole, parts = Path(cache) / f"{key}.npy", Path(cache) / f"{key}.parts"
    stored = _read(whole, len(given), encoder.dimension)
    if stored is None:
        _encode_blocks(given, encoder, batch_size, parts, tell)
        _join(whole, parts, len(given))
        stored = _read(whole, len(given), encoder.dimension)
        if stored is None:
            raise MuteError(f"{whole} was written but cannot be read: is the disk at fault?")
    tell(len(given), len(given))
    return stored


def forget(cache: str | os.PathLike[str]) -> None:
    """Remove what `encode` has put into a cache, and the folder if nothing else is in it."""
    folder = Path(cache)
    for whole in folder.glob("*.npy"):
        if _is_key(whole.stem):
            whole.unlink(missing_ok=True)
    for parts in folder.glob("*.parts"):
        if _is_key(parts.stem):
            _remove(parts)
    with suppress(OSError):
        folder.rmdir()


def _is_key(stem: str) -> bool:
    return len(stem) == 32 and not set(stem) - set("0123456789abcdef")


def _block_file(parts: Path, start: int) -> Path:
    return parts / f"{start // _BLOCK:06d}.npy"


def _encode_blocks(texts: list[str], encoder: Encoder, batch_size: int, parts: Path, tell: TextsDone) -> None:
    for start in range(0, len(texts), _BLOCK):
        block, file = texts[start : start + _BLOCK], _block_file(parts, start)
        if _read(file, len(block), encoder.dimension) is not None:
            continue
        tell(start, len(texts))

        def later(done: int, _: int, start: int = start) -> None:
            tell(start + done, len(texts))

        rows = encoder(block, batch_size, progress=later)
        try:
            parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MuteError(f"cannot keep embeddings in {parts}: {error.strerror}, so choose another cache") from error
        with write_atomically(file) as target:
            np.save(target, rows)


def _read(file: Path, n_rows: int, n_columns: int | None) -> NDArray[np.float32] | None:
    """The embeddings of a file, mapped into memory; None where it is absent, damaged or of another shape."""
    try:
        rows = np.lib.format.open_memmap(file, mode="r")
    except Exception:
        # Broad on purpose: on headers that are no headers numpy raises any of a dozen types.
        return None
    if rows.dtype != np.float32 or rows.ndim != 2 or rows.shape != (n_rows, n_columns or rows.shape[1]):
        return None
    return rows


def _join(whole: Path, parts: Path, n_rows: int) -> None:
    """Put the blocks together, then remove them."""
    width = None
    with write_atomically(whole) as target:
        for start in range(0, n_rows, _BLOCK):
            rows = _read(_block_file(parts, start), min(_BLOCK, n_rows - start), width)
            if rows is None:
                raise MuteError(f"{_block_file(parts, start)} is gone or is of another width: run it again")
            if width is None:
                width = rows.shape[1]
                header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, width)}
                np.lib.format.write_array_header_1_0(target, header)
            target.write(np.ascontiguousarray(rows, "<f4").tobytes())
    _remove(parts)


def _remove(parts: Path) -> None:
    for file in parts.glob("[0-9]*.npy"):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        parts.rmdir()
