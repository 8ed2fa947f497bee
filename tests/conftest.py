"""Settings for the whole suite."""

import os

# Tests run side by side, one process for each core; threads inside them that spin while they wait would only take
# the other's core. The engine's own threads are not affected.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
