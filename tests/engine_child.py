"""Runs models in a process of its own, which llama.cpp may abort without taking the tests along.

    python engine_child.py rows REQUEST.json RESULT.npz
    python engine_child.py load MODEL.gguf
    python engine_child.py tokenize MODEL.gguf TEXT

REQUEST.json is a list of `{"path", "sequences", "options": {...}}`; the result holds the row of
sequence j of request i under "i-j".
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine import _llama
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType


def _run(request: dict[str, Any]) -> list[NDArray[np.float32]]:
    options = request["options"]
    options["pooling_type"] = PoolingType.parse(options["pooling_type"])
    sequences = [np.array(ids, dtype=np.int32) for ids in request["sequences"]]
    with Engine(Path(request["path"]), EngineOptions(**options)) as engine:
        result = engine.run(sequences)
    if result.defects:
        sys.exit(f"{request['path']}: {result.defects}")
    return result.rows


def _rows(request: Path, result: Path) -> None:
    requests = json.loads(request.read_text("utf-8"))
    rows = {f"{i}-{j}": row for i, item in enumerate(requests) for j, row in enumerate(_run(item))}
    np.savez(result, allow_pickle=False, **rows)


def main(command: str, path: str, *rest: str) -> None:
    """Do as the command line says."""
    if command == "rows":
        _rows(Path(path), Path(rest[0]))
        return
    model = _llama.Model(Path(path))
    if command == "tokenize":
        sys.stdout.write(json.dumps(model.tokenize(rest[0]).tolist()))
    model.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
