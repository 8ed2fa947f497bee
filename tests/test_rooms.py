"""The rooms of the package and who may import whom: the order of docs/ARCHITECTURE.md, lower rooms first."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mute"

# A module may import from rooms before its own, and from its own. The root's modules count as rooms.
ORDER = [
    ["errors", "typing"],
    ["rows"],
    ["storage"],
    ["tables"],
    ["flow"],
    ["estimators"],
    ["adversaries"],
    ["budget"],
    ["eraser", "rbig"],
    ["distill"],
    ["steering"],
    ["rivals"],
    ["torch", "export"],
    ["evaluation"],
    ["text"],
    ["datasets"],
    ["paper"],
    ["cli"],
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Line, module and names of every import of the package, also inside functions; not those for type checkers."""
    tree = ast.parse(path.read_text())
    checked_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in node.body
        for inner in ast.walk(child)
    }
    for node in ast.walk(tree):
        if id(node) in checked_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mute":
            yield node.lineno, node.module or "", [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "mute":
                    yield node.lineno, alias.name, []


def test_every_room_has_its_place() -> None:
    found = {room_of(path) for path in MODULES} - {"__init__"}
    assert found == set(LEVEL)


def test_the_root_is_small() -> None:
    assert sorted(path.name for path in SOURCE.glob("*.py")) == [
        "__init__.py",
        "eraser.py",
        "errors.py",
        "rbig.py",
        "typing.py",
    ]


@pytest.mark.parametrize("room", LEVEL)
def test_rooms_import_from_lower_rooms_only(room: str) -> None:
    wrong = []
    for path in MODULES:
        if room_of(path) != room:
            continue
        for line, module, names in imports(path):
            rooms = [module.split(".")[1]] if "." in module else [n for n in names if n in LEVEL]
            wrong += [
                f"{path.relative_to(SOURCE)}:{line} imports {other}"
                for other in rooms
                if other != room and LEVEL[other] >= LEVEL[room]
            ]
    assert not wrong, "\n".join(wrong)


def test_no_private_name_crosses_modules() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {name} from {module}"
        for path in MODULES
        for line, module, names in imports(path)
        for name in names
        if re.match(r"_[a-z]", name, re.IGNORECASE) and not name.startswith("__")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_page_names_every_room() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    missing = [room for room in LEVEL if f"`{room}`" not in page and f"`{room}/`" not in page]
    assert not missing
