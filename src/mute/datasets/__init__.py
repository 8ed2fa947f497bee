"""Real data to try the erasers on: one small set that ships with the package, all in one shape."""

from mute.datasets.dataset import Dataset
from mute.datasets.glove import load_glove_gender

__all__ = ["Dataset", "load_glove_gender"]
