"""Compare the numpy forward passes of tests/reference_models.py with transformers.

    python -m venv refvenv
    refvenv/bin/pip install "torch==2.13.*" "transformers==5.*" gguf
    PYTHONPATH=tests refvenv/bin/python tests/golden/check_references.py

It prints one line a model and exits with 1 when a cosine is under 0.99999.
"""

import sys

import numpy as np
import reference_models
import tiny_models
import torch
import transformers
from numpy.typing import NDArray
from tiny_models import BERT_NAMES, Shape, TinyModel

LEAST_COSINE = 0.99999
N_TOKENS = 48
BERT = {**BERT_NAMES, "cls": "pooler.dense", "cls.output": "classifier"}
CAUSAL = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def reference_name(model: TinyModel, name: str) -> str:
    """Give a tensor of a GGUF the name that transformers has for it."""
    bert = model.architecture == "bert"
    stem, kind = name.rsplit(".", 1)
    layer = ""
    if stem.startswith("blk."):
        _, number, stem = stem.split(".", 2)
        layer = f"encoder.layer.{number}." if bert else f"layers.{number}."
    inside = "bert." if bert and model.labels and stem != "cls.output" else ""
    return f"{inside}{layer}{(BERT if bert else CAUSAL)[stem]}.{kind}"


def reference_tensor(model: TinyModel, name: str) -> torch.Tensor:
    """Undo the order of rows that llama's GGUFs have for the sake of their rotary positions."""
    tensor = model.weights[name]
    if model.architecture == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
        width = model.shape.n_embd_head
        pairs = tensor.reshape(-1, width // 2, 2, tensor.shape[-1])
        tensor = pairs.swapaxes(1, 2).reshape(tensor.shape)
    return torch.from_numpy(np.ascontiguousarray(tensor))


def load(model: TinyModel) -> torch.nn.Module:
    """Make transformers' model of the same weights; every one of them must find its place."""
    reference = blank(model)
    state = {
        reference_name(model, name): reference_tensor(model, name)
        for name in model.weights
        if (model.architecture, name) != ("qwen3", "cls.output.weight")  # rows of its lm_head
    }
    reference.load_state_dict(state, strict=True)
    return reference.eval()


def blank(model: TinyModel) -> torch.nn.Module:
    """Make transformers' model with weights of its own."""
    shape = model.shape
    common = {
        "vocab_size": shape.n_vocab,
        "hidden_size": shape.n_embd,
        "num_hidden_layers": shape.n_layer,
        "num_attention_heads": shape.n_head,
        "intermediate_size": shape.n_ff,
        "max_position_embeddings": shape.n_ctx_train,
    }
    if model.architecture == "bert":
        config = transformers.BertConfig(
            **common, layer_norm_eps=model.eps, num_labels=max(len(model.labels), 1)
        )
        if model.labels:
            return transformers.BertForSequenceClassification(config)
        return transformers.BertModel(config, add_pooling_layer=False)
    causal = common | {
        "num_key_value_heads": shape.n_head_kv,
        "head_dim": shape.n_embd_head,
        "rms_norm_eps": model.eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_freq_base},
    }
    if model.architecture == "qwen3":
        return transformers.Qwen3Model(transformers.Qwen3Config(**causal))
    return transformers.LlamaModel(transformers.LlamaConfig(**causal))


def cosines(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compare row by row."""
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.asarray((a * b).sum(axis=-1) / lengths)


def compare(model: TinyModel) -> float:
    """Give the lowest cosine of a token, or for rank one minus the largest error of a score."""
    ids = model.random_ids(N_TOKENS)
    types = (np.arange(N_TOKENS) > N_TOKENS // 2).astype(np.int32)
    batch = {"input_ids": torch.from_numpy(ids.astype(np.int64))[None]}
    if model.architecture == "bert":
        batch["token_type_ids"] = torch.from_numpy(types.astype(np.int64))[None]
    with torch.no_grad():
        output = load(model)(**batch)
    ours = reference_models.hidden_states(model, ids, token_types=types)
    if model.pooling != "rank":
        return float(cosines(ours, output.last_hidden_state[0].double().numpy()).min())
    if model.architecture == "bert":
        scores = output.logits[0]
    else:
        rows = torch.from_numpy(model.weights["cls.output.weight"])
        scores = torch.softmax(rows @ output.last_hidden_state[0, -1], dim=0)
    return 1 - float(np.abs(reference_models.score(model, ours) - scores.double().numpy()).max())


def main() -> None:
    """Compare every kind of model."""
    large = Shape(n_embd=128, n_layer=4, n_head=8, n_head_kv=2, n_embd_head=16, n_ff=320)
    models = {
        "bert": tiny_models.bert(),
        "bert, larger": tiny_models.bert(shape=large, seed=1),
        "bert rank, one label": tiny_models.bert(pooling="rank", labels=("score",), pooler=True),
        "bert rank, three labels": tiny_models.bert(
            pooling="rank", labels=("no", "maybe", "yes"), pooler=True
        ),
        "qwen3": tiny_models.qwen3(),
        "qwen3, larger": tiny_models.qwen3(shape=large, seed=1),
        "qwen3 rank": tiny_models.qwen3(pooling="rank"),
        "llama": tiny_models.llama(),
        "llama, larger": tiny_models.llama(shape=large, seed=1),
    }
    lowest = {name: compare(model) for name, model in models.items()}
    for name, value in lowest.items():
        sys.stdout.write(f"{name:24} {value:.9f}\n")
    sys.exit(int(min(lowest.values()) < LEAST_COSINE))


if __name__ == "__main__":
    main()
