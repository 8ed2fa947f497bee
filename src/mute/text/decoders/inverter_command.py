"""The command that a folder of training belongs to: the same one goes on, another one is refused."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from mute.errors import MuteError
from mute.storage.files import write_atomically

__all__ = ["Command", "claim", "digest"]

_FILE = "training.json"


@dataclass(frozen=True)
class Command:
    """All that decides what comes out; one folder belongs to one of them."""

    texts: str
    encoder: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    max_tokens: int
    minutes: float | None
    epochs: int
    rounds: int
    pairs: int
    batch_size: int
    learning_rate: float
    random_state: int


def _check(command: Command) -> None:
    names = ("width", "layers", "heads", "max_tokens", "epochs", "rounds", "pairs", "batch_size")
    for name, least in (("vocabulary", 300), *((name, 1) for name in names), ("random_state", 0)):
        value = getattr(command, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise MuteError(f"{name} must be a whole number from {least}, not {value!r}")
    if command.width % command.heads:
        raise MuteError(f"width must be a multiple of heads; {command.width} is none of {command.heads}")
    for name, number in (("minutes", command.minutes), ("learning_rate", command.learning_rate)):
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
            raise MuteError(f"{name} must be a number above 0, not {number!r}")


def claim(home: Path, command: Command) -> bool:
    """Check the command, and make its folder or find it there; whether its training is done already."""
    _check(command)
    path = home / _FILE
    mine = asdict(command)
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            if any(home.iterdir()):
                raise MuteError(f"{home} holds other files: give a new or empty folder to train in")
            with write_atomically(path) as file:
                file.write(json.dumps(mine, indent=1).encode())
        theirs = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MuteError(f"cannot train in {home}: {error.strerror}, so choose another folder") from error
    except ValueError as error:
        if isinstance(error, MuteError):
            raise
        raise MuteError(f"{path} is damaged ({error}): remove {home} and train again") from error
    if theirs != mine:
        other = [name for name in mine if not isinstance(theirs, dict) or theirs.get(name) != mine[name]]
        raise MuteError(f"{home} holds a training with other {', '.join(other)}: give another folder, or remove it")
    return (home / "inverter.json").exists()


def digest(texts: list[str]) -> str:
    """A hash of the texts in their order."""
    state = hashlib.sha256()
    for text in texts:
        raw = text.encode()
        state.update(len(raw).to_bytes(8, "little") + raw)
    return state.hexdigest()
