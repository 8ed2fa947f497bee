"""How matrices and labels in files are named: ``PATH`` or ``PATH:SELECTOR``, a folder, a pattern, or a list."""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from urllib.parse import unquote

from mute.errors import MuteError

__all__ = ["LABELS", "MATRICES", "Found", "Spec", "find", "locate", "names_files", "split_spec"]

Spec = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

MATRICES = (".npy", ".npz", ".safetensors", ".parquet", ".csv", ".tsv")
LABELS = (*MATRICES, ".txt")
# Without text files: all their labels together decide whether the labels are numbers.
_MANY = (".parquet", ".npy", ".npz", ".safetensors")


@dataclass(frozen=True)
class Found:
    """The files that a spec names, at least one, in the order of their rows.

    `path` is what was given, for messages: a file, a folder, a pattern, or words for a list. `selector` names an array
    or columns in each file. `root` is the folder below which folders may be partitions (``gender=f``); None for a
    single file.
    """

    path: Path
    files: tuple[Path, ...]
    selector: str | None
    root: Path | None = None

    def partition(self, file: Path) -> dict[str, str]:
        """Names and values that the names of its folders give to all rows of a file.

        Examples
        --------
        >>> file = Path("data/gender=f/city=New%20York/0.parquet")
        >>> Found(Path("data"), (file,), None, Path("data")).partition(file)
        {'gender': 'f', 'city': 'New York'}
        """
        if self.root is None:
            return {}
        pairs = [folder.partition("=") for folder in file.parts[len(self.root.parts) : -1]]
        return {unquote(name): unquote(value) for name, equals, value in pairs if name and equals}


def split_spec(spec: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """Split ``PATH:SELECTOR``, where both may contain colons.

    The path is the longest beginning that exists; if none exists, the longest that ends in a known suffix.
    """
    text = os.fspath(spec)
    if not text:
        raise MuteError("a path is empty; give the name of a file")
    # os.path and not pathlib, which raises where a selector of many names makes too long a path.
    if os.path.exists(text):
        return Path(text), None
    # The colon of a Windows drive (C:\\data) separates nothing.
    drive = re.match(r"[A-Za-z]:[\\/]", text) is not None
    colons = [at for at, letter in enumerate(text) if letter == ":" and at > drive]
    splits = [(Path(text[:at]), text[at + 1 :]) for at in reversed(colons) if at > 0]
    for path, selector in splits:
        if os.path.exists(path):
            return path, selector
    if Path(text).suffix.lower() not in LABELS:
        for path, selector in splits:
            if path.suffix.lower() in LABELS:
                return path, selector
    return Path(text), None


def locate(spec: str | os.PathLike[str], suffixes: Collection[str]) -> tuple[Path, str | None]:
    """The one file that a spec names, of a known kind and readable, and the selector."""
    path, selector = split_spec(spec)
    if os.path.isdir(path):
        raise MuteError(f"{path} is a directory; give a file in it")
    _check_file(path, suffixes)
    _check_selector(path, selector)
    return path, selector


def find(spec: Spec, suffixes: Collection[str]) -> Found:
    """The files that a spec names: one file of a kind in `suffixes`, or those of a folder, a pattern or a list.

    Raises
    ------
    MuteError
        If there are none, or one of them is missing, not readable or of another kind than the others.
    """
    if isinstance(spec, str | os.PathLike):
        path, selector = split_spec(spec)
        if os.path.isdir(path):
            files, root = _files_of_folder(path), path
        elif _is_pattern(path):
            files, root = _files_of_pattern(path)
        else:
            path, selector = locate(spec, suffixes)
            return Found(path, (path,), selector)
    else:
        path, files, selector = _files_of_list(spec)
        root = Path()
    for file in files:
        if os.path.isdir(file):
            raise MuteError(f"{file} is a directory; give files, or one directory alone")
        _check_file(file, _MANY)
        if file.suffix.lower() != files[0].suffix.lower():
            raise MuteError(f"{file} and {files[0]} are of two kinds; give many files of one kind")
    _check_selector(files[0], selector)
    return Found(path, tuple(files), selector, root)


def names_files(spec: str) -> bool:
    """Whether a spec names a file, or many."""
    path = split_spec(spec)[0]
    return os.path.exists(path) or (_is_pattern(path) and bool(glob(str(path), recursive=True)))


def _files_of_folder(folder: Path) -> list[Path]:
    """All .parquet files in a folder and below, but none that begin with ``.`` or ``_``."""

    def refuse(error: OSError) -> None:
        raise MuteError(f"{error.filename} cannot be listed ({error.strerror}); change its permissions")

    files = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in folders:
            # A link could lead back to this folder; without an error, nobody would notice that its rows are left out.
            if os.path.islink(os.path.join(parent, name)):
                raise MuteError(f"{os.path.join(parent, name)} is a link to a directory; give a pattern of files")
        wanted = [name for name in names if name.lower().endswith(".parquet") and not name.startswith((".", "_"))]
        files += [os.path.join(parent, name) for name in wanted]
    if not files:
        raise MuteError(f"{folder} is a directory without .parquet files; give another one, or a file")
    return [Path(file) for file in sorted(files)]


def _is_pattern(path: Path) -> bool:
    return any(letter in str(path) for letter in "*?[") and not os.path.exists(path)


def _files_of_pattern(pattern: Path) -> tuple[list[Path], Path]:
    """The files that match, and the folder that the pattern begins with."""
    parts = pattern.parts
    fixed = next(at for at, part in enumerate(parts) if any(letter in part for letter in "*?["))
    root = Path(*parts[:fixed])
    files = [Path(file) for file in sorted(glob(str(pattern), recursive=True))]
    if not any(part.startswith("_") for part in parts[fixed:]):
        files = [file for file in files if not any(part.startswith("_") for part in file.relative_to(root).parts)]
    if not files:
        raise MuteError(f"{pattern} matches no file; check the pattern")
    return files, root


def _files_of_list(specs: Sequence[str | os.PathLike[str]]) -> tuple[Path, list[Path], str | None]:
    if not isinstance(specs, Iterable) or not all(isinstance(spec, str | os.PathLike) for spec in specs):
        raise MuteError(f"the spec is {specs!r:.80}; give a path or a list of paths")
    splits = [split_spec(spec) for spec in specs]
    if not splits:
        raise MuteError("the list of files is empty; give at least one path")
    first, selector = splits[0]
    for path, other in splits:
        if other != selector:
            raise MuteError(f"{path} has the selector {other!r} and {first} {selector!r}; give the same to all files")
    more = f" and {len(splits) - 1} more" if len(splits) > 1 else ""
    return Path(f"{first}{more}"), [path for path, _ in splits], selector


def _check_file(path: Path, suffixes: Collection[str]) -> None:
    if not os.path.exists(path):
        raise MuteError(f"{path} does not exist; check the path")
    if path.suffix.lower() not in suffixes:
        raise MuteError(f"{path} is of an unknown kind; give a file ending in {', '.join(suffixes)}")
    if not os.path.isfile(path):
        raise MuteError(f"{path} is not a regular file; give one, since it may be read more than once")
    if not os.access(path, os.R_OK):
        raise MuteError(f"{path} may not be read; change its permissions")
    if path.stat().st_size == 0:
        raise MuteError(f"{path} is empty (0 bytes); write it again or give another file")


def _check_selector(path: Path, selector: str | None) -> None:
    if selector == "":
        raise MuteError(f"{path}: ends in a colon; name what to read after the colon, or leave it out")
    if selector is not None and path.suffix.lower() in (".npy", ".txt"):
        raise MuteError(f"{path} has one thing only; leave out {':' + selector!r}")
