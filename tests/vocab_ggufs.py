"""Real vocabularies: the vocabulary-only GGUFs with test vectors that llama-cpp-python's sdist has.

llama.cpp keeps them in `models/`: `ggml-vocab-NAME.gguf`, and beside it texts (`.inp`) and the ids
that the vocabulary's own tokenizer gave for them (`.out`).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import llama_cpp.llama_cpp as llama
import numpy as np

from corral.engine import _llama as engine_llama

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LlamaVocabulary", "VocabGGUFsMissingError", "vectors", "vocab_ggufs"]

_VERSION = "0.3.36"
_SEPARATOR = "\n__ggml_vocab_test__\n"


class VocabGGUFsMissingError(Exception):
    """The sdist is not in the cache and cannot be fetched."""


def vocab_ggufs() -> Path:
    """Return the folder of vocabularies, fetched once (half a minute) and then kept.

    It lies in `$CORRAL_TEST_CACHE`, or in `.cache` of the checkout.
    """
    default = Path(__file__).parents[1] / ".cache"
    cache = Path(os.environ.get("CORRAL_TEST_CACHE", default)).absolute()
    folder = cache / f"vocab-ggufs-{_VERSION}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        sdist = _download(Path(temporary))
        unpacked = Path(temporary) / "unpacked"
        unpacked.mkdir()
        with tarfile.open(sdist) as archive:
            for member in archive:
                name = Path(member.name).name
                if name.startswith("ggml-vocab-") and member.isfile():
                    source = archive.extractfile(member)
                    assert source is not None
                    (unpacked / name).write_bytes(source.read())
        try:
            unpacked.rename(folder)
        except OSError:  # another run was faster
            if not folder.is_dir():
                raise
    return folder


def _download(folder: Path) -> Path:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder)),
        f"llama-cpp-python=={_VERSION}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(folder.glob("llama_cpp_python-*.tar.gz"))
    if not found:
        raise VocabGGUFsMissingError(f"{' '.join(command)} failed: {done.stderr[-500:]}")
    return found[0]


def vectors(path: Path) -> list[tuple[str, list[int]]]:
    """Return the texts of a vocabulary's .inp with the ids of its .out, if it has them."""
    if not path.with_name(f"{path.name}.inp").is_file():
        return []
    texts = path.with_name(f"{path.name}.inp").read_bytes().decode().split(_SEPARATOR)
    lines = path.with_name(f"{path.name}.out").read_text().split("\n")
    # The last text may be empty, as the rest behind the last line feed is.
    ids = [[int(i) for i in line.split()] for line in lines[: len(texts)]]
    return list(zip(texts, ids, strict=True))


class LlamaVocabulary:
    """llama.cpp's own tokenizer of a GGUF, without the model."""

    def __init__(self, path: Path) -> None:
        engine_llama._start()  # the log goes where the engine's goes
        params = llama.llama_model_default_params()
        params.vocab_only = True
        self._model = llama.llama_model_load_from_file(os.fsencode(path), params)
        assert self._model
        self._vocab = llama.llama_model_get_vocab(self._model)

    def tokenize(self, text: str) -> NDArray[np.int32]:
        """Return ids without special tokens; what looks like one is text."""
        raw = text.encode("utf-8", "replace")
        ids = (ctypes.c_int32 * (8 * len(raw) + 8))()
        n = llama.llama_tokenize(self._vocab, raw, len(raw), ids, len(ids), False, False)  # noqa: FBT003 - C
        assert n >= 0
        return np.array(ids[:n], np.int32)

    def close(self) -> None:
        llama.llama_model_free(self._model)
