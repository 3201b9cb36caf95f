"""Tiny random GGUFs of every kind that the engine knows, made in a moment and alike every time.

    model = bert(pooling="mean")
    model = qwen3(pooling="last", shape=Shape(n_ctx_train=2048), add_eos=False)

A model is written once a test session for each set of arguments. Source of the layouts:
llama.cpp's src/models/{bert,qwen3,llama}.cpp and src/llama-vocab.cpp.
"""

import atexit
import itertools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import gguf
import numpy as np
from gguf import GGUFWriter, PoolingType
from numpy.typing import NDArray
from tiny_vocabularies import Vocabulary, bpe, spm, unigram, wordpiece

__all__ = [
    "BERT_NAMES",
    "RERANK_TEMPLATE",
    "Pooling",
    "Shape",
    "TinyModel",
    "bert",
    "duplicate_token",
    "gemma_embedding",
    "llama",
    "no_layers",
    "nomic_bert",
    "qwen3",
    "rank_without_head",
    "truncated",
    "variant",
    "vocabulary_only",
]

Pooling = Literal["none", "mean", "cls", "last", "rank"]
Array = NDArray[np.float32]

BERT_NAMES: Final = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
"""Hugging Face's names of a BERT's tensors, by GGUF's, without their layer."""

RERANK_TEMPLATE: Final = "<|im_start|>Judge <Query>: {query}\n<Document>: {document}<|im_end|>\n"
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a model is.

    Args:
        n_vocab: tokens; what the tokenizer has no use for is padding.
        n_ctx_train: positions.
        n_embd: width of the hidden states.
        n_layer: blocks.
        n_head: attention heads.
        n_head_kv: heads of keys and values; not for bert.
        n_embd_head: width of a head of a causal model; a bert's is n_embd / n_head.
        n_ff: width of the feed-forward layer.
    """

    n_vocab: int = 400
    n_ctx_train: int = 512
    n_embd: int = 64
    n_layer: int = 2
    n_head: int = 4
    n_head_kv: int = 2
    n_embd_head: int = 32
    n_ff: int = 96


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TinyModel:
    """A GGUF and all that is in it.

    Args:
        path: of the file.
        architecture: llama.cpp's name of it.
        shape: of the weights.
        weights: by the tensor's name in the GGUF, with PyTorch's shapes (out, in), float32.
        vocabulary: of the tokenizer.
        pooling: what the GGUF says; None where it says nothing.
        causal: what the GGUF says of attention.
        labels: of the rank head.
        eps: of the norms.
        rope_freq_base: of the rotary positions of a causal model.
        chat_template: one, or several with their names.
        name: general.name; None for "tiny" and the architecture.
        numbers: further metadata of the architecture, by the keys' ends.
    """

    path: Path
    architecture: str
    shape: Shape
    weights: Mapping[str, Array]
    vocabulary: Vocabulary
    pooling: Pooling | None
    causal: bool
    labels: tuple[str, ...] = ()
    eps: float = 1e-6
    rope_freq_base: float = 10_000.0
    chat_template: str | Sequence[Mapping[str, str]] | None = None
    name: str | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)

    def random_ids(self, n: int, seed: int = 0) -> NDArray[np.int32]:
        """Draw ids that text can give; (n,) int32, the same for the same seed."""
        return np.random.default_rng(seed).choice(self.vocabulary.ordinary_ids, n)


# Weights


class _Weights:
    """Draws tensors large enough that every part of a model shows in its result."""

    def __init__(self, seed: int) -> None:
        self.tensors: dict[str, Array] = {}
        self._rng = np.random.default_rng(seed)

    def matrix(self, name: str, n_out: int, n_in: int) -> None:
        self._put(name, self._rng.standard_normal((n_out, n_in)) / np.sqrt(n_in))

    def linear(self, name: str, n_out: int, n_in: int) -> None:
        self.matrix(f"{name}.weight", n_out, n_in)
        self._put(f"{name}.bias", 0.2 * self._rng.standard_normal(n_out))

    def scale(self, name: str, n: int) -> None:
        self._put(f"{name}.weight", 1 + 0.2 * self._rng.standard_normal(n))

    def norm(self, name: str, n: int) -> None:
        self.scale(name, n)
        self._put(f"{name}.bias", 0.2 * self._rng.standard_normal(n))

    def table(self, name: str, n_rows: int, n: int) -> None:
        self._put(f"{name}.weight", self._rng.standard_normal((n_rows, n)))

    def _put(self, name: str, values: NDArray[np.float64]) -> None:
        self.tensors[name] = values.astype(np.float32)


def _bert_weights(shape: Shape, seed: int, n_labels: int, *, pooler: bool) -> dict[str, Array]:
    weights, n = _Weights(seed), shape.n_embd
    weights.table("token_embd", shape.n_vocab, n)
    weights.table("position_embd", shape.n_ctx_train, n)
    weights.table("token_types", 2, n)
    weights.norm("token_embd_norm", n)
    for block in (f"blk.{i}" for i in range(shape.n_layer)):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights.linear(f"{block}.{name}", n, n)
        weights.norm(f"{block}.attn_output_norm", n)
        weights.linear(f"{block}.ffn_up", shape.n_ff, n)
        weights.linear(f"{block}.ffn_down", n, shape.n_ff)
        weights.norm(f"{block}.layer_output_norm", n)
    if pooler:
        weights.linear("cls", n, n)
    if n_labels:
        weights.linear("cls.output", n_labels, n)
    return weights.tensors


def _causal_weights(
    shape: Shape, seed: int, n_labels: int, *, head_norms: bool
) -> dict[str, Array]:
    weights, n, width = _Weights(seed), shape.n_embd, shape.n_embd_head
    weights.table("token_embd", shape.n_vocab, n)
    weights.scale("output_norm", n)
    for block in (f"blk.{i}" for i in range(shape.n_layer)):
        weights.scale(f"{block}.attn_norm", n)
        weights.matrix(f"{block}.attn_q.weight", shape.n_head * width, n)
        weights.matrix(f"{block}.attn_k.weight", shape.n_head_kv * width, n)
        weights.matrix(f"{block}.attn_v.weight", shape.n_head_kv * width, n)
        weights.matrix(f"{block}.attn_output.weight", n, shape.n_head * width)
        if head_norms:
            weights.scale(f"{block}.attn_q_norm", width)
            weights.scale(f"{block}.attn_k_norm", width)
        weights.scale(f"{block}.ffn_norm", n)
        weights.matrix(f"{block}.ffn_gate.weight", shape.n_ff, n)
        weights.matrix(f"{block}.ffn_up.weight", shape.n_ff, n)
        weights.matrix(f"{block}.ffn_down.weight", n, shape.n_ff)
    if n_labels:
        weights.matrix("cls.output.weight", n_labels, n)
    return weights.tensors


# Files


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="tiny-models-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


_numbers: Final = itertools.count()


def _new_path(name: str) -> Path:
    return _folder() / f"{name}-{next(_numbers)}.gguf"


def _write(model: TinyModel) -> TinyModel:
    writer = GGUFWriter(model.path, model.architecture)
    writer.add_name(model.name or f"tiny {model.architecture}")
    for key, number in model.numbers.items():
        writer.add_uint32(f"{model.architecture}.{key}", number)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_shape(writer, model)
    _add_vocabulary(writer, model.vocabulary)
    if model.pooling is not None:
        writer.add_pooling_type(PoolingType[model.pooling.upper()])
    if model.labels:
        writer.add_classifier_output_labels(model.labels)
    if model.chat_template is not None:
        writer.add_chat_template(model.chat_template)
    for name, tensor in model.weights.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _add_shape(writer: GGUFWriter, model: TinyModel) -> None:
    shape = model.shape
    writer.add_vocab_size(shape.n_vocab)
    writer.add_context_length(shape.n_ctx_train)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_causal_attention(model.causal)
    if model.architecture.endswith("bert"):
        writer.add_layer_norm_eps(model.eps)
        return
    writer.add_layer_norm_rms_eps(model.eps)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.n_embd_head)
    writer.add_value_length(shape.n_embd_head)
    writer.add_rope_dimension_count(shape.n_embd_head)
    writer.add_rope_freq_base(model.rope_freq_base)


def _phantom_space(token: str) -> str:
    """Spell a WordPiece token as a GGUF does."""
    if token.startswith("[") and token.endswith("]") and len(token) > len("[]"):
        return token
    return token[2:] if token.startswith("##") else f"\u2581{token}"


def _add_vocabulary(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    wordpiece = vocabulary.model == "bert"
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list([_phantom_space(t) if wordpiece else t for t in vocabulary.tokens])
    writer.add_token_types(vocabulary.types)
    if vocabulary.model in {"bert", "t5"}:  # those of bert models, whose loader asks for it
        writer.add_token_type_count(2)
    if vocabulary.merges:
        writer.add_token_merges(vocabulary.merges)
    if vocabulary.scores:
        writer.add_token_scores(vocabulary.scores)
        writer.add_add_space_prefix(vocabulary.add_space_prefix)
    for name, token_id in vocabulary.special.items():
        # "seperator" and "unknown" are how the format spells them.
        key = {"sep": "seperator", "unk": "unknown", "pad": "padding"}.get(name, name)
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", token_id)
    for name in ("bos", "eos", "sep"):
        value = getattr(vocabulary, f"add_{name}")
        if value is not None:
            writer.add_bool(f"tokenizer.ggml.add_{name}_token", value)


# Models


@cache
def bert(
    *,
    pooling: Pooling | None = "mean",
    labels: tuple[str, ...] = (),
    pooler: bool = False,
    tokenizer: Literal["wordpiece", "unigram"] = "wordpiece",
    shape: Shape = Shape(),
    seed: int = 0,
) -> TinyModel:
    """Make an encoder.

    Args:
        pooling: None for a GGUF that says nothing, which llama.cpp reads as NONE.
        labels: of a rank head, one row each.
        pooler: whether a dense layer with tanh stands before the rank head.
        tokenizer: BERT's, or XLM-RoBERTa's.
        shape: of the weights; n_embd a multiple of n_head.
        seed: of the weights.
    """
    shape = replace(shape, n_head_kv=shape.n_head, n_embd_head=shape.n_embd // shape.n_head)
    return _write(
        TinyModel(
            path=_new_path(f"bert-{pooling}"),
            architecture="bert",
            shape=shape,
            weights=_bert_weights(shape, seed, len(labels), pooler=pooler),
            vocabulary=(unigram if tokenizer == "unigram" else wordpiece)(shape.n_vocab),
            pooling=pooling,
            causal=False,
            labels=labels,
            eps=1e-12,
        )
    )


@cache
def qwen3(
    *,
    pooling: Pooling | None = "last",
    causal: bool = True,
    eos: str = "<|endoftext|>",
    add_eos: bool | None = True,
    chat: bool = False,
    shape: Shape = Shape(),
    seed: int = 0,
) -> TinyModel:
    """Make a causal model with GPT-2's BPE; pooling "rank" brings its head and its template.

    Args:
        pooling: None for a GGUF that says nothing, as a chat model's.
        causal: what the GGUF says of attention.
        eos: "<|endoftext|>", or "<|im_end|>", the end of a turn.
        add_eos: None leaves the key out.
        chat: whether there is a chat template.
        shape: of the weights.
        seed: of the weights.
    """
    labels = ("yes", "no") if pooling == "rank" else ()
    vocabulary = bpe(
        shape.n_vocab,
        pre="qwen2",
        control=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        special={"eos": eos, "pad": "<|endoftext|>"},
    )
    rerank = [{"name": "rerank", "template": RERANK_TEMPLATE}] if labels else None
    return _write(
        TinyModel(
            path=_new_path(f"qwen3-{pooling}"),
            architecture="qwen3",
            shape=shape,
            weights=_causal_weights(shape, seed, len(labels), head_norms=True),
            vocabulary=replace(vocabulary, add_bos=False, add_eos=add_eos),
            pooling=pooling,
            causal=causal,
            labels=labels,
            rope_freq_base=1_000_000.0,
            chat_template=CHAT_TEMPLATE if chat else rerank,
        )
    )


@cache
def llama(
    *,
    pooling: Pooling | None = "last",
    tokenizer: Literal["bpe", "spm"] = "bpe",
    causal: bool = True,
    add_bos: bool | None = True,
    add_eos: bool | None = True,
    shape: Shape = Shape(),
    seed: int = 0,
) -> TinyModel:
    """Make a causal model whose rotary positions turn pairs of neighbours.

    Args:
        pooling: None for a GGUF that says nothing, as a chat model's.
        tokenizer: Llama 3's or Llama 2's.
        causal: what the GGUF says of attention.
        add_bos: None leaves the key out.
        add_eos: None leaves the key out.
        shape: of the weights.
        seed: of the weights.
    """
    vocabulary = (
        spm(shape.n_vocab)
        if tokenizer == "spm"
        else bpe(
            shape.n_vocab,
            pre="llama-bpe",
            control=("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
            special={"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>"},
        )
    )
    return _write(
        TinyModel(
            path=_new_path(f"llama-{pooling}"),
            architecture="llama",
            shape=shape,
            weights=_causal_weights(shape, seed, 0, head_norms=False),
            vocabulary=replace(vocabulary, add_bos=add_bos, add_eos=add_eos),
            pooling=pooling,
            causal=causal,
            eps=1e-5,
            rope_freq_base=500_000.0,
        )
    )


@cache
def nomic_bert(*, name: str | None = None, shape: Shape = Shape()) -> TinyModel:
    """Make an encoder with rotary positions and gates, as nomic-embed-text's; pooling MEAN.

    Args:
        name: general.name.
        shape: of the weights; n_embd a multiple of n_head.
    """
    shape = replace(shape, n_head_kv=shape.n_head, n_embd_head=shape.n_embd // shape.n_head)
    weights = _bert_weights(shape, 0, 0, pooler=False)
    del weights["position_embd.weight"]
    gates = _Weights(1)
    for i in range(shape.n_layer):
        gates.matrix(f"blk.{i}.ffn_gate.weight", shape.n_ff, shape.n_embd)
    return _write(
        TinyModel(
            path=_new_path("nomic-bert"),
            architecture="nomic-bert",
            shape=shape,
            weights=weights | gates.tensors,
            vocabulary=wordpiece(shape.n_vocab),
            pooling="mean",
            causal=False,
            eps=1e-12,
            name=name,
        )
    )


@cache
def gemma_embedding(*, name: str | None = None, dense: bool = True) -> TinyModel:
    """Make an encoder as EmbeddingGemma: pooling MEAN, then two dense layers without bias.

    Args:
        name: general.name.
        dense: whether the dense layers are in the file.
    """
    shape = Shape(n_layer=6)  # llama.cpp aborts unless the sixth is there, which sees all tokens
    weights = _causal_weights(shape, 0, 0, head_norms=True)
    extra, inner = _Weights(1), 2 * shape.n_embd
    for i in range(shape.n_layer):
        extra.scale(f"blk.{i}.post_attention_norm", shape.n_embd)
        extra.scale(f"blk.{i}.post_ffw_norm", shape.n_embd)
    features = {}
    if dense:
        extra.matrix("dense_2.weight", inner, shape.n_embd)
        extra.matrix("dense_3.weight", shape.n_embd, inner)
        features = {
            "dense_2_feat_in": shape.n_embd,
            "dense_2_feat_out": inner,
            "dense_3_feat_in": inner,
            "dense_3_feat_out": shape.n_embd,
        }
    return _write(
        TinyModel(
            path=_new_path("gemma-embedding"),
            architecture="gemma-embedding",
            shape=shape,
            weights=weights | extra.tensors,
            vocabulary=replace(spm(shape.n_vocab), add_bos=True, add_eos=True),
            pooling="mean",
            causal=False,
            name=name,
            numbers={"attention.sliding_window": 512, **features},
        )
    )


def variant(model: TinyModel, **changes: Any) -> TinyModel:
    """Write a model with some of its fields changed."""
    return _write(replace(model, path=_new_path("variant"), **changes))


# Files that must be refused


@cache
def vocabulary_only(model: TinyModel) -> Path:
    """Write the model's header and vocabulary, and no tensor."""
    return _write(replace(model, path=_new_path("vocabulary-only"), weights={})).path


@cache
def truncated(model: TinyModel, *, keep: float = 0.5) -> Path:
    """Write the first part of the model's file: half of it cuts through the weights."""
    path = _new_path("truncated")
    whole = model.path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    return path


@cache
def duplicate_token(model: TinyModel) -> Path:
    """Write the model with its last token spelt as the one before: llama.cpp aborts on it."""
    tokens = model.vocabulary.tokens
    vocabulary = replace(model.vocabulary, tokens=(*tokens[:-1], tokens[-2]))
    return _write(replace(model, path=_new_path("duplicate"), vocabulary=vocabulary)).path


@cache
def no_layers(model: TinyModel) -> Path:
    """Write the model without its blocks: llama.cpp aborts on it."""
    shape = replace(model.shape, n_layer=0)
    weights = {name: w for name, w in model.weights.items() if not name.startswith("blk.")}
    return _write(replace(model, path=_new_path("no-layers"), shape=shape, weights=weights)).path


@cache
def rank_without_head(model: TinyModel) -> Path:
    """Write the model with pooling RANK and no head: llama.cpp gives other tensors' values."""
    weights = {name: w for name, w in model.weights.items() if not name.startswith("cls")}
    path = _new_path("no-head")
    return _write(replace(model, path=path, pooling="rank", weights=weights)).path
