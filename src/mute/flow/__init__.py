"""The paper's flow: shared rotations, class-conditional marginals, how they are fitted, and the router."""

from mute.flow.flow import Flow

__all__ = ["Flow"]
