"""RoBERTa and XLM-RoBERTa: BGE-M3, multilingual E5, and the rerankers of their kind.

Source: llama.cpp's src/models/bert.cpp and conversion/bert.py; transformers'
RobertaClassificationHead, which is a dense layer, tanh and a projection over the first token.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from corral.errors import ModelError
from corral.models.convert import bpe, unigram
from corral.models.convert.bert import check, encoder_metadata, encoder_names, plain_name
from corral.models.convert.common import embedding_metadata, limit_metadata, rank_metadata
from corral.models.convert.tensors import changed, take
from corral.models.convert.writer import Conversion

if TYPE_CHECKING:
    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["describe"]

_UNUSED: Final = re.compile(r"(pooler\.|lm_head\.|embeddings\.(position|token_type)_ids$)")
_CLASSIFIERS: Final = ("RobertaForSequenceClassification", "XLMRobertaForSequenceClassification")
_EMBEDDING_MODELS: Final = (
    "RobertaModel",
    "RobertaForMaskedLM",
    "XLMRobertaModel",
    "XLMRobertaForMaskedLM",
)
_HEAD: Final = {
    "classifier.dense.weight": "cls.weight",
    "classifier.dense.bias": "cls.bias",
    "classifier.out_proj.weight": "cls.output.weight",
    "classifier.out_proj.bias": "cls.output.bias",
}
_DEFAULT_PAD_ID: Final = 1


def describe(checkpoint: Checkpoint, pooling: str | None) -> Conversion:
    """Return a RoBERTa or XLM-RoBERTa embedding model or cross-encoder in GGUF's terms.

    Args:
        checkpoint: The model's folder.
        pooling: "mean", "cls" or "last"; None: as the folder says.

    Raises:
        ModelError: Another kind of head, a variant that llama.cpp's BERT is not, or tensors that
            lack.
        PoolingError: Nothing says how the model pools.
    """
    check(checkpoint, (*_EMBEDDING_MODELS, *_CLASSIFIERS))
    ranks = checkpoint.architecture in _CLASSIFIERS
    n_skipped = _first_position(checkpoint)
    context_length = checkpoint.size("max_position_embeddings") - n_skipped
    tensors = take(
        checkpoint,
        encoder_names(checkpoint) | (_HEAD if ranks else {}),
        unused=_UNUSED,
        plain=partial(plain_name, prefix="roberta."),
    )
    tensors["position_embd.weight"] = changed(
        tensors["position_embd.weight"], lambda rows: rows[n_skipped:], n_rows=context_length
    )
    return Conversion(
        architecture="bert",
        metadata={
            "bert.vocab_size": checkpoint.size("vocab_size"),
            **encoder_metadata(checkpoint, context_length),
            **(
                rank_metadata(checkpoint, "bert", pooling, checkpoint.labels)
                if ranks
                else embedding_metadata(checkpoint, "bert", pooling)
            ),
            "tokenizer.ggml.token_type_count": checkpoint.size("type_vocab_size"),
            **limit_metadata(checkpoint),
            **_tokenizer(checkpoint),
        },
        tensors=tensors,
    )


def _first_position(checkpoint: Checkpoint) -> int:
    """Return the row of the first position: RoBERTa counts on from the padding's id."""
    pad_id = checkpoint.config.get("pad_token_id")
    return 1 + (pad_id if isinstance(pad_id, int) else _DEFAULT_PAD_ID)


def _tokenizer(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the pairs of RoBERTa's byte-level BPE or of XLM-RoBERTa's Unigram."""
    fast = checkpoint.json("tokenizer.json")
    kinds = {"BPE": bpe.metadata, "Unigram": unigram.metadata}
    kind = str(fast["model"].get("type")) if fast else ""
    if kind not in kinds:
        state = f"is of the kind {kind}" if kind else "is missing"
        raise ModelError(
            f"{checkpoint.folder / 'tokenizer.json'} {state}; "
            "RoBERTa's is BPE, XLM-RoBERTa's is Unigram. Write it with transformers: "
            'AutoTokenizer.from_pretrained("MODEL").save_pretrained("DIR")'
        )
    return kinds[kind](checkpoint)
