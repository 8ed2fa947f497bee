"""A trained inverter: a small network that turns embeddings back into texts."""

from mute.text.inverter.model import Inverter
from mute.text.inverter.training import train_inverter

__all__ = ["Inverter", "train_inverter"]
