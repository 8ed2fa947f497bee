"""Type checkers and editors see the classes behind names that are imported when first used."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mute.distill
import mute.rivals
import mute.steering
from mute.export import to_onnx

pytest.importorskip("mypy")

ROOMS = {"rivals": mute.rivals.__all__, "steering": mute.steering.__all__, "distill": mute.distill.__all__}


def test_type_checkers_see_every_class(tmp_path: Path) -> None:
    imports = [f"from mute.{room} import {name}" for room, names in ROOMS.items() for name in names]
    reveals = [f"reveal_type({name}())" for names in ROOMS.values() for name in names]
    (tmp_path / "snippet.py").write_text(
        "\n".join([*imports, "import mute", *reveals, "reveal_type(mute.rivals.LEACE())", "reveal_type(mute.MUtE())"])
    )
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nmypy_path = {Path(mute.__file__).parents[1]}\n"
        "[mypy-sklearn.*,torch.*,numba.*]\nfollow_imports = skip\nignore_missing_imports = True\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--config-file", "mypy.ini", "snippet.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    seen = re.findall(r'Revealed type is "([^"]*)"', done.stdout)
    expected = [
        f"{getattr(getattr(mute, room), name).__module__}.{name}" for room, names in ROOMS.items() for name in names
    ]
    expected += ["mute.rivals.leace.LEACE", "mute.eraser.MUtE"]
    assert seen == expected, done.stdout + done.stderr


def test_names_at_run_time() -> None:
    assert callable(to_onnx)
    for room, names in ROOMS.items():
        module = getattr(mute, room)
        assert set(names) <= set(dir(module))
        with pytest.raises(AttributeError, match=f"module 'mute.{room}' has no attribute 'Nobody'"):
            _ = module.Nobody


def test_any_stands_alone_only_with_its_reason() -> None:
    """A bare `Any` says nothing: it is one of the names of `mute.typing`, or its line says why."""
    package = Path(mute.__file__).parent
    unexplained = []
    for path in sorted(package.rglob("*.py")):
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            kind = getattr(node, "returns" if isinstance(node, ast.FunctionDef) else "annotation", None)
            if isinstance(kind, ast.Name) and kind.id == "Any" and "# Any: " not in lines[kind.lineno - 1]:
                unexplained.append(f"{path.relative_to(package)}:{kind.lineno}")
    assert not unexplained, "\n".join(unexplained)
