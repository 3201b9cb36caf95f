import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from texts import BLANK_TEXTS, TEXTS

from golden import MINILM_JSON, minilm, sha256

CLS, SEP = 101, 102


def test_the_golden_values_are_of_the_texts_as_they_are_now():
    entries = json.loads(MINILM_JSON.read_text("utf-8"))["texts"]
    assert {entry["name"]: entry["sha256"] for entry in entries} == {
        name: sha256(text) for name, text in {**TEXTS, **BLANK_TEXTS}.items()
    }


def test_every_text_has_its_own_vector_of_unit_length():
    vectors = np.stack([minilm().vectors[name] for name in TEXTS])
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_the_ids_are_whole_and_wrapped_once():
    golden = minilm()
    assert len(golden.ids["prose of 600 tokens"]) > 2 * golden.max_tokens
    for name, ids in golden.ids.items():
        assert (ids[0], ids[-1]) == (CLS, SEP), name
        assert not np.isin(ids[1:-1], (CLS, SEP)).any(), name


@pytest.mark.reference
def test_the_numpy_forward_passes_equal_transformers():
    pytest.importorskip("torch", reason="torch comes with the reference group")
    pytest.importorskip("transformers", reason="transformers comes with the reference group")
    here = Path(__file__).parent
    checked = subprocess.run(
        [sys.executable, here / "check_references.py"],
        env={**os.environ, "PYTHONPATH": str(here.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "llama" in checked.stdout
