"""Embed one document of N tokens with a causal GGUF, and print the peak memory in MB."""

import resource
import sys
from pathlib import Path

import inputs
import peers

from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType

gguf, n_tokens = Path(sys.argv[1]), int(sys.argv[2])
options = EngineOptions(pooling_type=PoolingType.LAST, n_threads=peers.N_CORES)
with Engine(gguf, options) as engine:
    engine.run([inputs.random_ids(n_tokens, seed=0)])
status = Path("/proc/self/status")
if status.exists():  # the rusage of a child of a large parent begins at the parent's size
    peak = int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
print(peak / 1e6)
