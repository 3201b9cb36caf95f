"""Run the folders of tests/tiny_folders.py through transformers.

    python -m venv refvenv
    refvenv/bin/pip install "torch==2.13.*" "transformers==5.*" gguf
    PYTHONPATH=tests refvenv/bin/python tests/golden/make_folders.py

It writes folders.json: of every pair or text the token ids, and what the model gave.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import tiny_folders
import torch
import transformers
from tiny_folders import EMBEDDING, PAIRS, RERANKING, TEXTS

TARGET = Path(__file__).with_name("folders.json")
DIGITS = 6

# https://huggingface.co/Qwen/Qwen3-Reranker-0.6B
QWEN3_PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
QWEN3_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
QWEN3_TASK = "Given a web search query, retrieve relevant passages that answer the query"


def qwen3_ids(tokenizer: Any, query: str, document: str, max_length: int) -> list[int]:
    """Lay a pair out as the model card's code does."""
    prefix = tokenizer.encode(QWEN3_PREFIX, add_special_tokens=False)
    suffix = tokenizer.encode(QWEN3_SUFFIX, add_special_tokens=False)
    text = f"<Instruct>: {QWEN3_TASK}\n<Query>: {query}\n<Document>: {document}"
    room = max_length - len(prefix) - len(suffix)
    inner = tokenizer(text, add_special_tokens=False, truncation=True, max_length=room)
    return [*prefix, *inner["input_ids"], *suffix]


def run(model: Any, inputs: dict[str, Any]) -> Any:
    """Run a model over one sequence."""
    with torch.no_grad():
        return model(**{name: torch.tensor([values]) for name, values in inputs.items()})


def rounded(values: Any) -> list[float]:
    """Give numbers for JSON."""
    return [round(float(value), DIGITS) for value in values]


def rerank(folder: Path, config: Any, tokenizer: Any) -> list[dict[str, object]]:
    """Score PAIRS: logits; of a language model the logit of "yes" minus that of "no"."""
    causal = config.architectures[0].endswith("ForCausalLM")
    auto = (
        transformers.AutoModelForCausalLM
        if causal
        else transformers.AutoModelForSequenceClassification
    )
    model = auto.from_pretrained(folder, dtype=torch.float32).eval()
    limit = config.max_position_embeddings - (2 if "roberta" in config.model_type else 0)
    found = []
    for query, document in PAIRS:
        if config.model_type == "qwen3":
            inputs = {"input_ids": qwen3_ids(tokenizer, query, document, limit)}
        else:
            # As lists: an empty text alone would count as no second text at all.
            batch = tokenizer([query], [document], truncation="only_second", max_length=limit)
            inputs = {key: values[0] for key, values in batch.items()}
        logits = run(model, inputs).logits[0]
        if causal:
            yes, no = (tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))
            logits = (logits[-1, yes] - logits[-1, no])[None]
        found.append({"ids": inputs["input_ids"], "logits": rounded(logits)})
    return found


def embed(folder: Path, tokenizer: Any, pooling: str) -> list[dict[str, object]]:
    """Pool TEXTS, without a norm."""
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    settings = folder / "sentence_bert_config.json"
    limit = json.loads(settings.read_text())["max_seq_length"] if settings.exists() else None
    found = []
    for text in TEXTS:
        inputs = dict(tokenizer(text, truncation=limit is not None, max_length=limit))
        states = run(model, inputs).last_hidden_state[0]
        row = {"mean": states.mean(dim=0), "cls": states[0], "lasttoken": states[-1]}[pooling]
        found.append({"ids": inputs["input_ids"], "row": rounded(row)})
    return found


def main() -> None:
    """Write folders.json beside this file."""
    entries = {}
    with tempfile.TemporaryDirectory() as parent:
        for name in (*EMBEDDING, *RERANKING):
            folder = tiny_folders.write(name, Path(parent))
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            config = transformers.AutoConfig.from_pretrained(folder)
            pooling = tiny_folders.KINDS[name].pooling
            values = (
                embed(folder, tokenizer, pooling) if pooling else rerank(folder, config, tokenizer)
            )
            entries[name] = {"weights": tiny_folders.weights_sha256(name), "values": values}
    record = {
        "made_by": "tests/golden/make_folders.py",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "folders": entries,
    }
    TARGET.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
