"""Texts with labels in files: CSV with one row for each text, so that any program can read them."""

import csv
import io
import os
from collections.abc import Mapping, Sequence

from mute.errors import MuteError
from mute.storage.files import write_atomically

__all__ = ["read_corpus", "write_corpus"]


def write_corpus(columns: Mapping[str, Sequence[str]], path: str | os.PathLike[str]) -> None:
    r"""Write columns of n texts each to a CSV file (RFC 4180, UTF-8, names in the first row), whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> columns = {"text": ['"Yes", she said', "No.\nNever."], "gender": ["female", "male"]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_corpus(columns, folder + "/corpus.csv")
    ...     read_corpus(folder + "/corpus.csv")
    {'text': ['"Yes", she said', 'No.\nNever.'], 'gender': ['female', 'male']}
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    with write_atomically(path) as file:
        file.write(out.getvalue().encode())


def read_corpus(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read what `write_corpus` wrote: the columns, in the order of the file."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            columns: dict[str, list[str]] = {name: [] for name in next(reader, [])}
            for row in reader:
                for column, cell in zip(columns.values(), row, strict=True):
                    column.append(cell)
    except OSError as error:
        raise MuteError(f"{path} cannot be read: {error.strerror or error}") from error
    except (csv.Error, ValueError) as error:
        raise MuteError(f"{path} is damaged: {error}; remove it and prepare it again") from error
    if not columns:
        raise MuteError(f"{path} is damaged: it is empty; remove it and prepare it again")
    return columns
