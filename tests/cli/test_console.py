"""Labels, columns and file names are printed as text: they drive no terminal and are no markup."""

import numpy as np
import pytest

from mute import MUtE
from mute.cli import console
from mute.errors import shown, visible

HOSTILE = "a\x1b[2J[bold]:cat:\x07\u202eb"
SAFE = "a\\x1b[2J[bold]:cat:\\x07\\u202eb"


def test_what_is_visible() -> None:
    assert visible(HOSTILE + "\n\tc é ن\u200cن") == SAFE + "\n\tc é ن\u200cن"
    assert visible("\udc80") == "\\udc80", "a file name that is no text can be printed"
    assert shown("a\nb") == "a\\nb"
    assert len(shown("x" * 10_000)) == 60 and shown("x" * 10_000).endswith("…")


def test_every_door_of_the_console(capsys) -> None:
    from rich.text import Text

    out = console.output()
    out.print(HOSTILE)
    out.print(Text(HOSTILE))
    out.rule(HOSTILE)
    console.print_table(out, [HOSTILE], [[HOSTILE]])
    with pytest.raises(SystemExit):
        console.fail(f"no column\n{HOSTILE}")
    printed, failed = capsys.readouterr()
    # rich itself leaves out the bell.
    assert printed.count("\\x1b[2J[bold]:cat:") == 5
    assert failed.startswith("mute: no column a\\x1b[2J[bold]:cat:") and failed.count("\n") == 1
    assert "\x1b" not in printed + failed and "\u202e" not in printed + failed


def test_hostile_labels_and_names_in_commands(cli, tmp_path) -> None:
    rng = np.random.default_rng(0)
    z = np.repeat([HOSTILE, "x" * 10_000], 200)
    X = rng.normal(size=(400, 3)) + 4 * (z == HOSTILE)[:, None]
    np.save(tmp_path / "X[red].npy", X[::2])
    np.save(tmp_path / "z.npy", z[::2])
    MUtE(2, router="logistic", diagnostics=False, random_state=0).fit(X[1::2], z[1::2]).save(tmp_path / "m.safetensors")
    printed = []
    for words in (
        ("inspect", tmp_path / "m.safetensors"),
        ("fit", tmp_path / "X[red].npy", "--concept", tmp_path / "z.npy", "--dry-run",
         "-o", tmp_path / "n.safetensors"),
        ("audit", tmp_path / "m.safetensors", tmp_path / "X[red].npy", "--concept", tmp_path / "z.npy",
         "-o", tmp_path / "a.md", "--adversaries", "logistic"),
        ("counterfactual", tmp_path / "m.safetensors", tmp_path / "X[red].npy", "--to", "\x1b[2J",
         "-o", tmp_path / "b.npy"),
    ):  # fmt: skip
        _, out, err = cli(*words)
        printed += [out, err]
    text = "".join(printed)
    assert "\x1b" not in text and "\\x1b[2J[bold]:cat:" in text
    assert "X[red].npy" in text
    assert "x" * 100 not in text
    page = (tmp_path / "a.md").read_text()
    assert "\x1b" not in page and "x" * 100 not in page
