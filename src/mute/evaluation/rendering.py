"""Numbers, tables, Markdown and HTML: how every report and page of the package turns values into text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import numpy as np

from mute.errors import missing_extra, visible
from mute.storage.files import write_atomically
from mute.typing import JsonValue

__all__ = [
    "Table", "bullets", "cell", "deliver", "escaped", "markdown_table", "number", "percent", "plain", "render",
]  # fmt: skip

# What Markdown reads as more than text: code, links, tags, columns, emphasis (an underscore only beside a word's end).
_MARKED = re.compile(r"[\\`*\[\]|]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def number(value: float | None) -> str:
    """Three decimals, or a power of ten for what they would round to zero."""
    if value is None:
        return "-"
    return f"{value:.3f}" if abs(value) >= 1e-3 or value == 0 else f"{value:.1e}"


def percent(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None else f"{value * 100:.1f} %"


def cell(value: JsonValue) -> str:
    """A value of a table: text as it is, a number, or an estimate with its interval."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return number(value)
    interval = "" if value["low"] is None else f" ({number(value['low'])} to {number(value['high'])})"
    return number(value["value"]) + interval


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[JsonValue]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line: labels and file names may have any characters."""
    line = visible(text.replace("\n", " ").replace("\t", " "))
    return _MARKED.sub(r"\\\g<0>", line).replace("&", "&amp;").replace("<", "&lt;")


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown of lines of text."""
    return "\n".join(f"- {escaped(line)}" for line in lines)


@dataclass(frozen=True)
class Table:
    """A titled table with notes; its first `names` columns are words."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[JsonValue]]
    notes: Sequence[str] = ()
    names: int = 1

    def to_markdown(self) -> str:
        """A section of a Markdown page."""
        rows = [[escaped(cell(value)) for value in row] for row in self.rows]
        notes = ["\n".join(map(escaped, self.notes))] if self.notes else []
        return "\n\n".join([f"## {self.title}", markdown_table(self.head, rows), *notes])


def plain(value: object) -> JsonValue:
    """Dataclasses, arrays and tuples as what JSON knows; what is not a finite number becomes None."""
    if is_dataclass(value) and not isinstance(value, type):
        # The answers to every test row serve the permutation test. No reader needs them.
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.name != "guesses"}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def deliver(text: str, path: str | Path | None) -> str:
    """The text, also written to `path` where given."""
    if path is not None:
        with write_atomically(path) as file:
            file.write(text.encode())
    return text


def render(
    package: str, template: str, filters: dict[str, Callable[..., str]] | None = None, /, **values: object
) -> str:
    """A page from a jinja2 template in the folder ``templates`` of a package of this library."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise missing_extra("jinja2", "report", "a page from a template") from None

    environment = Environment(
        loader=PackageLoader(package), autoescape=lambda name: name is not None and ".html" in name,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters.update({"number": number, "cell": cell, **(filters or {})})
    return environment.get_template(template).render(**values)
