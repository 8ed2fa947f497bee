"""The studies of the paper: run, resumed, and set beside its figures. `mute paper` is their door."""

from mute.paper.page import write_page
from mute.paper.running import DEFAULT_STUDIES, STUDIES, Plan, Results, run

__all__ = ["DEFAULT_STUDIES", "STUDIES", "Plan", "Results", "run", "write_page"]
