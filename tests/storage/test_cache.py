"""The folder of prepared data: where it is on each system, and what is said when something is missing."""

import sys
from pathlib import Path

import pytest

from mute.datasets import PREPARED
from mute.errors import MuteError
from mute.storage.cache import ENCODER_FILES, cached_folder, data_folder, is_cached


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"MUTE_DATA": "/data/mine"}, "/data/mine"),
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/mute"),
        ("linux", {}, "HOME/.cache/mute"),
        ("darwin", {}, "HOME/Library/Caches/mute"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/mute"),
        ("win32", {}, "HOME/AppData/Local/mute"),
    ],
)
def test_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, environment: dict[str, str], expected: str
) -> None:
    for name in ("MUTE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    assert data_folder() == Path(expected.replace("HOME", str(tmp_path)))


def test_a_name_is_there_when_all_its_files_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MUTE_DATA", str(tmp_path))
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a").touch()
    with pytest.raises(MuteError, match=r"words is not in .*; run: mute data prepare words"):
        cached_folder("words", ("a", "b"))
    assert not is_cached("words", ("a", "b"))
    (tmp_path / "words" / "b").touch()
    assert is_cached("words", ("a", "b"), tmp_path) and cached_folder("words", ("a", "b")) == tmp_path / "words"


@pytest.mark.parametrize("name", ["minilm", "mpnet"])
def test_encoders_have_the_files_that_are_prepared(name: str) -> None:
    assert PREPARED[name].files == ENCODER_FILES
