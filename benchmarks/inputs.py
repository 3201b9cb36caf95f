"""What is embedded: Python's own documentation, and a causal model of random weights."""

import random
import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from numpy.typing import NDArray

from corral import GGUFEmbeddings
from corral.engine.batching import common_prefix
from corral.engine.pairs import PairLayout
from corral.engine.tokenizer import GGUFTokenizer

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import tiny_models

__all__ = [
    "causal_model",
    "chunks",
    "count",
    "large_causal_model",
    "letters",
    "pairs",
    "random_ids",
    "reranker_model",
    "short_texts",
]

QWEN3 = tiny_models.Shape(
    n_vocab=151_669, n_ctx_train=40_960, n_embd=1024, n_layer=28, n_head=16, n_head_kv=8,
    n_embd_head=128, n_ff=3072,
)  # fmt: skip
"""Of Qwen3-Reranker-0.6B and Qwen3-Embedding-0.6B, by their config.json."""


def chunks(embeddings: GGUFEmbeddings, n_texts: int, *, least: int, most: int) -> list[str]:
    """Cut English prose into chunks of `least` to `most` tokens, special tokens included."""
    prose = "\n".join(topics[name] for name in sorted(topics))
    prose = " ".join(word for word in prose.split() if len(word) < most)  # no rulers of "******"
    _, offsets = embeddings.tokenizer.encode(prose)
    n_special = len(embeddings.tokenizer.head) + len(embeddings.tokenizer.tail)
    draw, at, texts = random.Random(0), 0, []
    for _ in range(n_texts):
        n = draw.randint(least, most) - n_special
        texts.append(prose[offsets[at, 0] : offsets[at + n - 1, 1]])
        at = (at + n) % (len(offsets) - most)
    return texts


def short_texts(embeddings: GGUFEmbeddings, n_texts: int) -> list[str]:
    """Draw texts of one and two words that are one token each, all different."""
    prose = "\n".join(topics.values())
    words = sorted({word for word in prose.lower().split() if word.isalpha()})
    ids = embeddings.tokenizer.encode_batch(words)
    whole = [word for word, found in zip(words, ids, strict=True) if len(found) == 1]
    draw = random.Random(0)
    pairs = {f"{draw.choice(whole)} {draw.choice(whole)}" for _ in range(3 * n_texts)}
    texts = [*whole, *sorted(pairs)][:n_texts]
    draw.shuffle(texts)
    return texts


def count(embeddings: GGUFEmbeddings, texts: list[str]) -> int:
    """Count the tokens that the model reads for the texts."""
    return sum(text.n_tokens for text in embeddings.sequences("").build(texts))


def large_causal_model() -> tiny_models.TinyModel:
    """Write a Qwen3 embedding model of the shape of Qwen3-Embedding-0.6B (2.4 GB)."""
    return tiny_models.qwen3(shape=QWEN3)


def causal_model(*, n_layer: int = 8) -> tiny_models.TinyModel:
    """Write a Qwen3, 512 wide, with 32,000 tokens and random weights (170 MB with 8 layers)."""
    shape = tiny_models.Shape(
        n_vocab=32_000, n_ctx_train=32_768, n_embd=512, n_layer=n_layer, n_head=8, n_head_kv=4,
        n_embd_head=64, n_ff=1536,
    )  # fmt: skip
    return tiny_models.qwen3(shape=shape)


def random_ids(n: int, seed: int) -> NDArray[np.int32]:
    """Draw token ids of the causal model; (n,) int32."""
    return np.random.default_rng(seed).integers(1000, 31_000, n).astype(np.int32)


def reranker_model(*, real_size: bool) -> tiny_models.TinyModel:
    """Write a Qwen3 reranker of random weights: 2 layers, 64 wide, or as large as a real one."""
    shape = QWEN3 if real_size else tiny_models.Shape(n_ctx_train=2048)
    return tiny_models.qwen3(pooling="rank", shape=shape)


def pairs(
    layout: PairLayout,
    tokenizer: GGUFTokenizer,
    n_documents: int,
    *,
    n_prefix: int,
    n_document: int,
) -> tuple[str, list[str]]:
    """Draw a query and documents of random letters.

    The documents have `n_document` tokens, and so have `n_prefix` the template and the query that
    stand in front of them.
    """
    draw = random.Random(0)

    def text(n_tokens: int) -> str:
        return letters(tokenizer, draw, n_tokens)

    documents = [text(n_document) for _ in range(n_documents)]
    ids = [pair.ids for pair in layout.build(text(n_prefix), ["x", "?"])]
    n_template = common_prefix(ids, at_least=0) - n_prefix
    return text(n_prefix - n_template), documents


def letters(tokenizer: GGUFTokenizer, draw: random.Random, n_tokens: int) -> str:
    """Draw a text of random letters that has so many tokens."""
    text = " ".join(draw.choice("etaoinshrdlu") for _ in range(4 * n_tokens))
    return text[: int(tokenizer.encode(text)[1][n_tokens - 1, 1])]
