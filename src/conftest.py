"""Doctests of the package leave nothing behind in the temporary folder."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def temporary_folder_stays_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each doctest a temporary folder of its own, and see that the folder is empty at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # torch keeps a cache there, which is not the doctest's
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path.parent / "torchinductor"))
    yield
    left = sorted(path.name for path in tmp_path.iterdir())
    assert not left, f"the doctest left {left} behind; use tempfile.TemporaryDirectory()"
