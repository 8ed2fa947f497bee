"""Where else the work is done: torch, on any device; dask, on many machines. The engine itself is numpy and numba."""
