"""Matrices and labels in files, read and written block by block, so that matrices need not fit in memory."""

from mute.rows.matrix import Matrix
from mute.tables.labels import read_labels
from mute.tables.opening import open_matrix
from mute.tables.specs import split_spec
from mute.tables.writers import MatrixWriter, open_writer

__all__ = ["Matrix", "MatrixWriter", "open_matrix", "open_writer", "read_labels", "split_spec"]
