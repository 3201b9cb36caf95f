"""Tiny random models as Hugging Face folders, alike every time, to convert.

    folder = tiny_folders.write("bert-reranker", tmp_path)

tests/golden/make_folders.py has transformers run them; tests/golden/folders.json is what it gave.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tiny_vocabularies import Vocabulary, bpe, spm, unigram, wordpiece
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

__all__ = ["EMBEDDING", "KINDS", "PAIRS", "RERANKING", "TEXTS", "weights_sha256", "write"]

Array = NDArray[np.float32]

TEXTS: Final = (
    "the fish in the harbour",
    "a query of one document",
    "The FISHING and the fisher, at 9",
    "water",
    "the sea and to the fish of in " * 3,
)
PAIRS: Final = (
    ("what is a fish", "the fish of the harbour"),
    ("what is a fish", "an answer in a document, to the query"),
    ("what is a fish", ""),
    ("The Harbour?", "a fishing harbour, and the sea."),
    ("the", "fish"),
    ("what is a fish", "the fishing of the harbour and to in a document " * 40),
)

_HIDDEN, _LAYERS, _HEADS, _FF = 32, 2, 4, 64
_HEADS_KV, _HEAD_DIM = 2, 16
_POSITIONS, _CAUSAL_POSITIONS = 64, 1024
_QWEN2: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A folder to be written.

    Args:
        config: config.json.
        shapes: of the tensors by their names.
        tokenizer: makes tokenizer.json.
        special: what tokenizer_config.json says, the special tokens above all.
        pooling: of sentence-transformers' files; None for a model without them.
        files: further JSON files by name.
        shards: files that the weights are spread over.
        bfloat16: whether the weights are BF16.
    """

    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    tokenizer: Callable[[], Tokenizer]
    special: Mapping[str, Any]
    pooling: str | None = None
    files: Mapping[str, object] = field(default_factory=dict)
    shards: int = 1
    bfloat16: bool = False


# Tokenizers


def _ordinary(vocabulary: Vocabulary) -> list[str]:
    """The tokens of a vocabulary without its fillers and its special tokens."""
    return [vocabulary.tokens[i] for i in vocabulary.ordinary_ids]


def _wordpiece() -> Tokenizer:
    control = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*control, *_ordinary(wordpiece(400))]
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(control)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return tokenizer


def _unigram() -> Tokenizer:
    vocabulary = unigram(400)
    scored = [
        (token, score)
        for token, score, kind in zip(
            vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True
        )
        if kind != TokenType.UNUSED
    ]
    scored.append(("<mask>", 0.0))
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=vocabulary.special["unk"]))
    tokenizer.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B:0 </s>",
        special_tokens=[("<s>", vocabulary.special["bos"]), ("</s>", vocabulary.special["eos"])],
    )
    return tokenizer


def _bpe(
    before: tuple[str, ...], after: tuple[str, ...], *, ignore_merges: bool = False
) -> Tokenizer:
    """GPT-2's first merges, and those that make "yes" and "no"."""
    vocabulary = bpe(400, pre="default", control=(), special={})
    tokens = [*before, *_ordinary(vocabulary), "yes", "no", *after]
    merges = [tuple(merge.split(" ")) for merge in vocabulary.merges]
    merges += [("y", "es"), ("n", "o")]
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=ignore_merges))
    tokenizer.add_special_tokens([*before, *(t for t in after if "think" not in t)])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in after if "think" in t])
    return tokenizer


def _roberta() -> Tokenizer:
    tokenizer = _bpe(("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    return tokenizer


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _qwen3(*, ends: bool) -> Tokenizer:
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
    tokenizer = _bpe((), special)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _split(_QWEN2)
    steps = [processors.ByteLevel(trim_offsets=False)]
    if ends:
        end = ("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
        steps.append(processors.TemplateProcessing(single="$A <|endoftext|>", special_tokens=[end]))
    tokenizer.post_processor = processors.Sequence(steps)
    return tokenizer


def _llama() -> Tokenizer:
    special = ("<|begin_of_text|>", "<|end_of_text|>")
    tokenizer = _bpe((), special, ignore_merges=True)
    tokenizer.pre_tokenizer = _split(_LLAMA3)
    begin = ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[begin]
    )
    return tokenizer


def _llama2() -> Tokenizer:
    """SentencePiece's BPE with byte fallback as transformers has it, ending as e5-mistral's."""
    vocabulary = spm(400)
    tokens = [
        token
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if kind != TokenType.UNUSED
    ]
    ids = {token: i for i, token in enumerate(tokens)}
    cuts = ((token[:cut], token[cut:]) for token in tokens for cut in range(1, len(token)))
    merges = sorted(
        (pair for pair in cuts if ids.keys() >= set(pair)),
        key=lambda pair: (vocabulary.scores[ids["".join(pair)]], len(pair[0])),
        reverse=True,
    )
    tokenizer = Tokenizer(
        models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", ids["<s>"]), ("</s>", ids["</s>"])]
    )
    return tokenizer


# Shapes


def _encoder(prefix: str, *, positions: int, n_types: int, vocab: int) -> dict[str, Any]:
    n = _HIDDEN
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocab, n),
        "embeddings.position_embeddings.weight": (positions, n),
        "embeddings.token_type_embeddings.weight": (n_types, n),
        **_both("embeddings.LayerNorm", n),
    }
    for layer in (f"encoder.layer.{i}" for i in range(_LAYERS)):
        for name in ("query", "key", "value"):
            shapes |= _both(f"{layer}.attention.self.{name}", n, n)
        shapes |= _both(f"{layer}.attention.output.dense", n, n)
        shapes |= _both(f"{layer}.attention.output.LayerNorm", n)
        shapes |= _both(f"{layer}.intermediate.dense", _FF, n)
        shapes |= _both(f"{layer}.output.dense", n, _FF)
        shapes |= _both(f"{layer}.output.LayerNorm", n)
    return {f"{prefix}{name}": shape for name, shape in shapes.items()}


def _both(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _causal(prefix: str, *, vocab: int, head_norms: bool) -> dict[str, tuple[int, ...]]:
    n, width = _HIDDEN, _HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (vocab, n)}
    for layer in (f"layers.{i}" for i in range(_LAYERS)):
        shapes |= {
            f"{layer}.input_layernorm.weight": (n,),
            f"{layer}.self_attn.q_proj.weight": (_HEADS * width, n),
            f"{layer}.self_attn.k_proj.weight": (_HEADS_KV * width, n),
            f"{layer}.self_attn.v_proj.weight": (_HEADS_KV * width, n),
            f"{layer}.self_attn.o_proj.weight": (n, _HEADS * width),
            f"{layer}.post_attention_layernorm.weight": (n,),
            f"{layer}.mlp.gate_proj.weight": (_FF, n),
            f"{layer}.mlp.up_proj.weight": (_FF, n),
            f"{layer}.mlp.down_proj.weight": (n, _FF),
        }
        if head_norms:
            shapes |= {f"{layer}.self_attn.{k}_norm.weight": (width,) for k in "qk"}
    shapes["norm.weight"] = (n,)
    return {f"{prefix}{name}": shape for name, shape in shapes.items()}


# Kinds

_SIZES: Final = {
    "hidden_size": _HIDDEN,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "intermediate_size": _FF,
}
_BERT_SPECIAL: Final = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
_BERT_INPUTS: Final = ["input_ids", "token_type_ids", "attention_mask"]
_ROBERTA_SPECIAL: Final = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_QWEN3_SPECIAL: Final = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
_VOCAB: Final = 416  # more than any of the tokenizers has: the rest is filled up


def _labels(n: int) -> dict[str, Any]:
    names = ["LABEL_0"] if n == 1 else ["bad", "fair", "good"]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def _bert_kind(architecture: str, n_labels: int = 0, **rest: Any) -> _Kind:
    prefix = "bert." if n_labels else ""
    shapes = _encoder(prefix, positions=_POSITIONS, n_types=2, vocab=_VOCAB)
    shapes |= _both(f"{prefix}pooler.dense", _HIDDEN, _HIDDEN)
    if n_labels:
        shapes |= _both("classifier", n_labels, _HIDDEN)
    config = {
        "model_type": "bert",
        "architectures": [architecture],
        **_SIZES,
        "vocab_size": _VOCAB,
        "hidden_act": "gelu",
        "max_position_embeddings": _POSITIONS,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        **(_labels(n_labels) if n_labels else {}),
    }
    special = {**_BERT_SPECIAL, "model_input_names": _BERT_INPUTS}
    return _Kind(config=config, shapes=shapes, tokenizer=_wordpiece, special=special, **rest)


def _roberta_kind(
    model_type: str, architecture: str, tokenizer: Callable[[], Tokenizer], **rest: Any
) -> _Kind:
    ranks = architecture.endswith("SequenceClassification")
    positions = _POSITIONS + 2
    shapes = _encoder("roberta." if ranks else "", positions=positions, n_types=1, vocab=_VOCAB)
    if ranks:
        shapes |= _both("classifier.dense", _HIDDEN, _HIDDEN)
        shapes |= _both("classifier.out_proj", 1, _HIDDEN)
    config = {
        "model_type": model_type,
        "architectures": [architecture],
        **_SIZES,
        "vocab_size": _VOCAB,
        "hidden_act": "gelu",
        "max_position_embeddings": positions,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
        **(_labels(1) if ranks else {}),
    }
    return _Kind(
        config=config, shapes=shapes, tokenizer=tokenizer, special=_ROBERTA_SPECIAL, **rest
    )


def _causal_config(model_type: str, architecture: str, rope: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "architectures": [architecture],
        **_SIZES,
        "num_key_value_heads": _HEADS_KV,
        "head_dim": _HEAD_DIM,
        "vocab_size": _VOCAB,
        "hidden_act": "silu",
        "max_position_embeddings": _CAUSAL_POSITIONS,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **rope,
    }


_QWEN3_ROPE: Final = {"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}}
_LLAMA3_ROPE: Final = {
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


def _qwen3_kind(architecture: str, *, ends: bool = False, tied: bool = True, **rest: Any) -> _Kind:
    classifies = architecture == "Qwen3ForSequenceClassification"
    outer = "model." if architecture != "Qwen3Model" else ""
    shapes = _causal(outer, vocab=_VOCAB, head_norms=True)
    if classifies:
        shapes["score.weight"] = (1, _HIDDEN)
    elif not tied:
        shapes["lm_head.weight"] = (_VOCAB, _HIDDEN)
    config = _causal_config("qwen3", architecture, _QWEN3_ROPE)
    config |= {"tie_word_embeddings": tied, **(_labels(1) if classifies else {})}
    return _Kind(
        config=config,
        shapes=shapes,
        tokenizer=lambda: _qwen3(ends=ends),
        special=_QWEN3_SPECIAL,
        **rest,
    )


KINDS: Final[Mapping[str, _Kind]] = {
    "bert": _bert_kind(
        "BertModel",
        pooling="mean",
        files={"sentence_bert_config.json": {"max_seq_length": 32, "do_lower_case": False}},
    ),
    "bert-reranker": _bert_kind("BertForSequenceClassification", 1),
    "bert-classifier": _bert_kind("BertForSequenceClassification", 3),
    "xlm-roberta": _roberta_kind("xlm-roberta", "XLMRobertaModel", _unigram, pooling="cls"),
    "xlm-roberta-reranker": _roberta_kind(
        "xlm-roberta", "XLMRobertaForSequenceClassification", _unigram, shards=2
    ),
    "roberta-reranker": _roberta_kind("roberta", "RobertaForSequenceClassification", _roberta),
    "qwen3": _qwen3_kind("Qwen3ForCausalLM", ends=True, pooling="lasttoken", shards=2),
    "qwen3-reranker": _qwen3_kind("Qwen3ForCausalLM"),
    "qwen3-reranker-untied": _qwen3_kind("Qwen3ForCausalLM", tied=False),
    "qwen3-seq-cls": _qwen3_kind("Qwen3ForSequenceClassification", bfloat16=True),
    "llama": _Kind(
        config=_causal_config("llama", "LlamaModel", _LLAMA3_ROPE),
        shapes=_causal("", vocab=_VOCAB, head_norms=False),
        tokenizer=_llama,
        special={"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"},
        pooling="mean",
    ),
    "llama-2": _Kind(
        config=_causal_config("llama", "LlamaForCausalLM", _QWEN3_ROPE),
        shapes=_causal("model.", vocab=_VOCAB, head_norms=False)
        | {"lm_head.weight": (_VOCAB, _HIDDEN)},
        tokenizer=_llama2,
        special={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        pooling="lasttoken",
    ),
}
EMBEDDING: Final = tuple(name for name, kind in KINDS.items() if kind.pooling)
RERANKING: Final = tuple(name for name, kind in KINDS.items() if not kind.pooling)


# Files


def _draw(kind: _Kind) -> dict[str, Array]:
    """Draw tensors large enough that every part of a model shows in its result."""
    rng = np.random.default_rng(0)
    tensors = {}
    for name, shape in kind.shapes.items():
        values = rng.standard_normal(shape)
        if name.endswith("bias"):
            values *= 0.2
        elif len(shape) == 1:
            values = 1 + 0.2 * values
        elif "embed" not in name:
            values /= np.sqrt(shape[-1])
        tensors[name] = values.astype(np.float32)
    return tensors


def _save_bfloat16(tensors: Mapping[str, Array], target: Path) -> None:
    """Write the upper halves of the numbers, which numpy has no type for."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        half = (tensor.view(np.uint32) >> 16).astype("<u2").tobytes()
        offsets = [len(data), len(data) + len(half)]
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": offsets}
        data += half
    raw = json.dumps(header).encode()
    target.write_bytes(len(raw).to_bytes(8, "little") + raw + data)


def _save_weights(kind: _Kind, folder: Path) -> None:
    tensors = _draw(kind)
    if kind.bfloat16:
        _save_bfloat16(tensors, folder / "model.safetensors")
        return
    if kind.shards == 1:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names = list(tensors)
    places = {}
    for i in range(kind.shards):
        file = f"model-{i + 1:05}-of-{kind.shards:05}.safetensors"
        part = {name: tensors[name] for name in names[i :: kind.shards]}
        save_file(part, folder / file, {"format": "pt"})
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")


def write(name: str, parent: Path) -> Path:
    """Write a folder.

    Args:
        name: of one of KINDS; it is the folder's name too.
        parent: where.
    """
    kind = KINDS[name]
    folder = parent / name
    files: dict[str, object] = {
        "config.json": kind.config,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **kind.special},
        **kind.files,
    }
    if kind.pooling:
        files["modules.json"] = [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {
                "idx": 1,
                "name": "1",
                "path": "1_Pooling",
                "type": "sentence_transformers.models.Pooling",
            },
        ]
        mode = {"mean": "mean_tokens", "cls": "cls_token", "lasttoken": "lasttoken"}[kind.pooling]
        files["1_Pooling/config.json"] = {
            "word_embedding_dimension": _HIDDEN,
            f"pooling_mode_{mode}": True,
        }
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content), "utf-8")
    kind.tokenizer().save(str(folder / "tokenizer.json"))
    _save_weights(kind, folder)
    return folder


def weights_sha256(name: str) -> str:
    """Tell whether the weights are still the ones that golden values were made of."""
    digest = hashlib.sha256()
    for tensor in _draw(KINDS[name]).values():
        digest.update(tensor.tobytes())
    return digest.hexdigest()
