"""What kind of file stands at a place, by its first bytes: nothing of another kind is written over by mistake."""

import re
from pathlib import Path

from mute.storage.container import Header

__all__ = ["is_kind"]

_BEGINNINGS = {
    ".npy": b"\x93NUMPY", ".npz": b"PK", ".parquet": b"PAR1", ".pt2": b"PK", ".png": b"\x89PNG", ".pdf": b"%PDF",
}  # fmt: skip
# What the reports of this package begin with.
_REPORT = re.compile(
    rb"\A# (Audit of|Certificate of|Comparison|Frontier)|<title>(Audit of|Comparison|Frontier)|"
    rb"\A\{\s*\"(version|reports|frontier)\""
)
_GALLERY = b"<!-- A gallery of mute. -->"
_HEAD = 4096


def is_kind(path: Path, content: str) -> bool:
    """Whether a file may be what a command writes there: "a model", "a report", "a gallery", or data by its ending."""
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        if not head:
            return True
        if content == "a report":
            return _REPORT.search(head) is not None
        if content == "a gallery":
            return _GALLERY in head
        if path.suffix.lower() == ".safetensors":
            file.seek(0)
            try:
                metadata = Header.read(file).metadata
            except ValueError:
                return False
            return ("mute" in metadata) == (content == "a model")
    # Text files have no mark, but no null bytes either.
    return head.startswith(_BEGINNINGS.get(path.suffix.lower(), b"")) and (
        path.suffix.lower() in (*_BEGINNINGS, ".onnx") or b"\0" not in head
    )
