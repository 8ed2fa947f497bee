"""The paper: layers of one shared rotation and class-conditional marginals, how they are fitted and who routes rows."""

from mute.flow.flow import Flow

__all__ = ["Flow"]
