"""Which columns of a table are the embedding: recognised by one rule, or named; never guessed in silence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from mute.errors import MuteError, listed

__all__ = ["Embedding", "Kind", "choose_embedding", "match_names"]

# Of the columns of a table; "list" is a column whose cells are lists of numbers.
Kind = Literal["list", "float", "integer", "other"]

# A second group of numbered columns counts from this share of the largest on.
_SECOND = 0.1


@dataclass(frozen=True)
class Embedding:
    """The columns of a table that are the embedding, in its order, and those that are not, in the table's.

    Examples
    --------
    >>> print(Embedding(("e0", "e1", "e2"), False, ("person_id", "job")))
    3 columns e0 … e2
    """

    names: tuple[str, ...]
    is_list: bool
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        if self.is_list:
            return f"the list column {self.names[0]}"
        first, *rest = self.names
        return f"{len(self.names)} columns {first} … {rest[-1]}" if rest else f"1 column {first}"


def choose_embedding(
    table: str,
    kinds: Mapping[str, Kind],
    selector: str | None = None,
    exclude: Collection[str] = (),
    advice: str | None = None,
) -> Embedding:
    """The embedding of a table.

    With a `selector` (names or patterns separated by commas, such as ``emb_*``), the columns that it names. Otherwise
    the one list column. Otherwise the largest group of float columns with a common stem and running numbers (``e0 …
    e383``), in the order of their numbers. Columns in `exclude`, such as labels, are never part of the embedding.
    `advice` says how to name columns where they are not those of a file.

    Raises
    ------
    MuteError
        If nothing qualifies, or two things do; the message lists the candidates.

    Examples
    --------
    >>> kinds = {"id": "integer", "e1": "float", "e0": "float", "job": "other", "score": "float"}
    >>> choose_embedding("people.csv", kinds)
    Embedding(names=('e0', 'e1'), is_list=False, left_out=('id', 'job', 'score'))
    """
    if selector is None:
        names = _recognised(table, {name: kind for name, kind in kinds.items() if name not in exclude}, advice)
    else:
        names = _selected(table, selector, kinds, exclude)
    return _checked(table, names, kinds)


def match_names(table: str, kinds: Mapping[str, Kind], wanted: Sequence[str]) -> Embedding | None:
    """The columns that a model was fitted on, by name and in any order.

    None if the table has a list column and none of these columns: the numbers of a list have no names.
    """
    missing = [name for name in wanted if name not in kinds]
    if len(missing) == len(wanted) and "list" in kinds.values():
        return None
    if missing:
        more = f" (and {len(missing) - 1} more: {listed(missing[1:], 5)})" if len(missing) > 1 else ""
        raise MuteError(
            f"{table} has no column {missing[0]!r}, which the model was fitted on{more}; give a table with the columns "
            f"{listed(wanted, 3)}"
        )
    return _checked(table, list(wanted), kinds)


def _checked(table: str, names: Sequence[str], kinds: Mapping[str, Kind]) -> Embedding:
    lists = [name for name in names if kinds[name] == "list"]
    if lists and len(names) > 1:
        raise MuteError(f"{table}: {lists[0]!r} is a list column, selected with others; select it alone")
    for name in names:
        if kinds[name] == "other":
            raise MuteError(f"{table}: column {name!r} is not numeric; select numeric columns")
    return Embedding(tuple(names), bool(lists), tuple(name for name in kinds if name not in set(names)))


def _selected(table: str, selector: str, kinds: Mapping[str, Kind], exclude: Collection[str]) -> list[str]:
    if selector in kinds and selector not in exclude:
        return [selector]
    names: list[str] = []
    for part in map(str.strip, selector.split(",")):
        if part in exclude:
            raise MuteError(f"{table}: column {part!r} has labels of this call; leave it out of the embedding")
        found = [part] if part in kinds else [n for n in kinds if n not in exclude and fnmatchcase(n, part)]
        if not found:
            close = difflib.get_close_matches(part, kinds, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise MuteError(f"{table} has no column {part!r}; {hint}it has {listed(list(kinds))}")
        names += found
    for name in names:
        if names.count(name) > 1:
            raise MuteError(f"{table}: column {name!r} appears {names.count(name)} times in the selection; keep one")
    return names


def _recognised(table: str, kinds: Mapping[str, Kind], advice: str | None) -> list[str]:
    lists = [name for name, kind in kinds.items() if kind == "list"]
    if len(lists) == 1:
        return lists
    groups = _numbered(kinds)
    largest = max(map(len, groups.values()), default=0)
    rivals = {stem: names for stem, names in groups.items() if len(names) >= _SECOND * largest}
    if not lists and len(rivals) == 1:
        return next(iter(rivals.values()))
    raise _not_recognised(table, kinds, lists, rivals, advice)


def _numbered(kinds: Mapping[str, Kind]) -> dict[str, list[str]]:
    """Columns with a common stem and running numbers, most of them floats, by their stem."""
    groups: dict[str, dict[int, str]] = {}
    for name, kind in kinds.items():
        if kind in ("float", "integer") and (match := re.fullmatch(r"(.*?)(\d+)", name, re.DOTALL)):
            groups.setdefault(match[1], {}).setdefault(int(match[2]), name)
    return {
        stem: [names[number] for number in sorted(names)]
        for stem, names in groups.items()
        if len(names) > 1
        and max(names) - min(names) == len(names) - 1
        and 2 * sum(kinds[name] == "float" for name in names.values()) >= len(names)
    }


def _not_recognised(
    table: str, kinds: Mapping[str, Kind], lists: Sequence[str], groups: Mapping[str, Sequence[str]], advice: str | None
) -> MuteError:
    candidates = [f"the list column {name}" for name in lists]
    candidates += [f"{len(names)} columns {names[0]} … {names[-1]}" for names in groups.values()]
    if candidates:
        what = "has several candidates for the embedding"
    else:
        what = "has no column that is recognised as an embedding (one list column, or floats numbered like e0 … e383)"
        numbers = [name for name, kind in kinds.items() if kind in ("float", "integer")]
        candidates = [f"the numeric columns {listed(numbers)}"] if numbers else [f"none among {listed(list(kinds))}"]
    example = lists[0] if lists else f"{next(iter(groups))}*" if groups else "a,b,c"
    by_file = f"name its columns as {table}:{example} (on the command line also --columns '{example}')"
    return MuteError(f"{table} {what}: {'; '.join(candidates)}; {advice or by_file}")
