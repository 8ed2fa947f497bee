"""The oldest releases that pyproject.toml admits are those that `make test-floor` installs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_floor_is_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", line).groups() for line in project["dependencies"])  # type: ignore[union-attr]
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "floor.txt").read_text(), re.MULTILINE))
    assert asked.keys() == pinned.keys()
    for name, version in asked.items():
        assert f"{pinned[name]}.".startswith(f"{version}."), f"{name}: {version} is asked for, {pinned[name]} is tested"
