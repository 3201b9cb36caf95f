"""What the converter makes of odd folders: the right file, or a clear error."""

import base64
import json

import gguf
import numpy as np
import pytest
import tiny_folders
from safetensors.numpy import load_file, save_file

from corral.errors import ModelError, PoolingError
from corral.gguf_header import read_header
from corral.models.convert import convert


@pytest.fixture
def folder(tmp_path):
    """Write a folder of a kind."""
    return lambda name: tiny_folders.write(name, tmp_path)


def edit(path, change):
    """Change a JSON file in place."""
    content = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content), "utf-8")


def with_config(path, **values):
    """Set keys of config.json; None takes them out."""

    def change(config):
        config.update(values)
        for key, value in values.items():
            if value is None:
                del config[key]

    edit(path / "config.json", change)
    return path


def with_tensors(path, change):
    """Change the tensors of an unsharded folder."""
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    return path


def converted(path, **options):
    """Convert, and read what was written."""
    target = path.with_suffix(".gguf")
    convert(path, target, **options)
    return read_header(target)


def refused(path, says, error=ModelError, **options):
    """See a folder refused, and nothing written."""
    with pytest.raises(error, match=says):
        convert(path, path.with_suffix(".gguf"), **options)
    assert not path.with_suffix(".gguf").exists()


# Folders that are no model


def test_a_folder_that_is_not_there(tmp_path):
    refused(tmp_path / "nothing", "is no folder")


def test_a_folder_without_its_config(folder):
    path = folder("bert")
    (path / "config.json").unlink()
    refused(path, r"config\.json is missing; a Hugging Face model folder has one")


def test_a_config_that_is_not_json(folder):
    path = folder("bert")
    (path / "config.json").write_text("{")
    refused(path, r"config\.json is not JSON")


def test_a_type_that_is_not_known_names_those_that_are(folder):
    path = with_config(folder("bert"), model_type="gemma3")
    refused(path, "of type 'gemma3' .*bert, llama, qwen3, roberta, xlm-roberta")


def test_pickled_weights_are_refused_with_the_way_out(folder):
    path = folder("bert")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    refused(path, r"can run code and are not read: save .* safe_serialization=True")


def test_damaged_weights(folder):
    path = folder("bert")
    raw = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(raw[: len(raw) // 2])
    refused(path, "is not a whole safetensors file")


def test_a_missing_shard(folder):
    path = folder("qwen3")
    (path / "model-00002-of-00002.safetensors").unlink()
    refused(path, "cannot read .* from .*model-00002-of-00002")


def test_a_tensor_too_few(folder):
    path = with_tensors(folder("bert"), lambda t: t.pop("encoder.layer.1.output.dense.bias"))
    refused(path, r"lacks 1 of the 37 tensors .* first: encoder\.layer\.1\.output\.dense\.bias")


def test_a_tensor_too_many(folder):
    extra = {"encoder.layer.2.extra.weight": np.ones(3, dtype=np.float32)}
    path = with_tensors(folder("bert"), lambda tensors: tensors.update(extra))
    refused(path, r"a GGUF would lose, the first: encoder\.layer\.2\.extra\.weight")


def test_integers_are_no_weights(folder):
    name = "embeddings.LayerNorm.weight"
    path = with_tensors(folder("bert"), lambda t: t.update({name: np.ones(32, dtype=np.int32)}))
    refused(path, f"{name!r} is of type I32")


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_weights(folder, dtype):
    path = folder("llama")
    with_tensors(path, lambda t: t.update({k: v.astype(dtype) for k, v in t.items()}))
    assert converted(path).tensors["blk.0.attn_q.weight"].type == "F32"


def test_names_of_old_checkpoints_are_known(folder):
    def age(tensors):
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            old = old.replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[f"bert.{old}"] = tensors.pop(name)

    assert "blk.1.layer_output_norm.bias" in converted(with_tensors(folder("bert"), age)).tensors


# Heads and pooling


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("bert", "BertForTokenClassification"),
        ("xlm-roberta", "XLMRobertaForQuestionAnswering"),
        ("llama", "LlamaForSequenceClassification"),
        ("qwen3", "Qwen3ForTokenClassification"),
    ],
)
def test_a_head_that_would_be_lost_is_refused(folder, name, architecture):
    path = with_config(folder(name), architectures=[architecture])
    refused(path, f"holds a {architecture}")


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "llama"])
def test_a_model_without_a_head_cannot_rank(folder, name):
    refused(folder(name), "without a classification head", pooling="rank")


@pytest.mark.parametrize("name", ["bert-reranker", "xlm-roberta-reranker", "qwen3-seq-cls"])
def test_a_classifier_does_nothing_but_rank(folder, name):
    refused(folder(name), "its pooling is rank, not mean", pooling="mean")


def test_a_pooling_that_is_not_known(folder):
    refused(folder("bert"), "pooling 'max' is unknown; it is one of mean, cls", pooling="max")


@pytest.mark.parametrize("name", ["bert", "qwen3", "llama"])
def test_without_sentence_transformers_files_the_pooling_must_be_said(folder, name):
    path = folder(name)
    (path / "modules.json").unlink()
    refused(path, "does not say how the model pools", PoolingError)
    assert converted(path, pooling="cls").arch("pooling_type") == 2


def test_a_qwen3_language_model_ranks_when_told_to(folder):
    path = folder("qwen3")
    assert converted(path).arch("pooling_type") == 3
    assert converted(path, pooling="rank").arch("pooling_type") == 4


@pytest.mark.parametrize("mark", ["README.md", "_name_or_path"])
def test_qwen3_reranker_is_known_by_its_card_or_its_name(folder, mark):
    path = folder("qwen3-reranker").rename(folder("bert").parent / "model")
    refused(path, "does not say how the model pools", PoolingError)
    if mark == "README.md":
        (path / mark).write_text("---\n---\n# Qwen3-Reranker-0.6B\n", "utf-8")
    else:
        with_config(path, _name_or_path="Qwen/Qwen3-Reranker-4B")
    assert converted(path).arch("pooling_type") == 4


def with_logit_score(path, **ids):
    module = {"type": "sentence_transformers.cross_encoder.modules.LogitScore", "path": "1_Logit"}
    (path / "modules.json").write_text(json.dumps([module]), "utf-8")
    (path / "1_Logit").mkdir()
    (path / "1_Logit" / "config.json").write_text(json.dumps(ids), "utf-8")
    return path


def test_sentence_transformers_answers_are_taken(folder):
    path = with_logit_score(folder("qwen3-reranker"), true_token_id=5, false_token_id=7)
    words = load_file(path / "model.safetensors")["model.embed_tokens.weight"]
    convert(path, path.with_suffix(".gguf"))
    reader = gguf.GGUFReader(path.with_suffix(".gguf"))
    (head,) = (t.data for t in reader.tensors if t.name == "cls.output.weight")
    np.testing.assert_array_equal(head, words[[5, 7]])


def test_an_answer_that_is_no_token_is_refused(folder):
    path = with_logit_score(folder("qwen3-reranker"), true_token_id=5, false_token_id=None)
    refused(path, r"token ids \[5, None\] for true and false")


def test_modules_behind_the_pooling_are_not_lost_in_silence(folder):
    path = folder("bert")
    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    edit(path / "modules.json", lambda modules: modules.append(dense))
    refused(path, "has the modules Dense, which the GGUF would lose")


def test_a_pooling_that_llama_cpp_has_not(folder):
    path = folder("bert")
    edit(path / "1_Pooling" / "config.json", lambda c: c.update(pooling_mode_max_tokens=True))
    refused(path, r"pools by 'mean\+max'", PoolingError)


def test_a_reranker_without_yes_and_no_is_refused(folder):
    path = folder("qwen3-reranker")

    def rename(fast):
        vocabulary = fast["model"]["vocab"]
        vocabulary["yep"] = vocabulary.pop("yes")

    edit(path / "tokenizer.json", rename)
    refused(path, "has no token 'yes'")


def test_a_classifier_without_its_row_is_refused(folder):
    path = folder("qwen3-reranker")
    with_config(path, architectures=["Qwen3ForSequenceClassification"])
    refused(path, r"lacks the tensor score\.weight")


def test_several_rows_of_a_qwen3_classifier_keep_their_labels(folder):
    path = folder("qwen3-reranker")
    with_config(
        path,
        architectures=["Qwen3ForSequenceClassification"],
        id2label={"0": "bad", "1": "fair", "2": "good"},
    )
    three = {"score.weight": np.ones((3, 32), dtype=np.float32)}
    header = converted(with_tensors(path, lambda tensors: tensors.update(three)))
    assert header.arch("classifier.output_labels") == ["bad", "fair", "good"]
    assert header.tensors["cls.output.weight"].shape == (3, 32)


def test_labels_without_names_are_numbered(folder):
    path = with_config(folder("bert-classifier"), id2label=None, num_labels=3)
    labels = converted(path).arch("classifier.output_labels")
    assert labels == ["LABEL_0", "LABEL_1", "LABEL_2"]


# Variants


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("xlm-roberta", {"hidden_act": "relu"}, "hidden_act 'relu'"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window True"),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn"}}, "rotary positions by 'yarn'"),
        ("qwen3", {"rope_parameters": {"rope_type": "llama3"}}, "rotary positions by 'llama3'"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2}}, "positions by 'linear'"),
        ("bert", {"hidden_size": 0}, "hidden_size must be a positive whole number, got 0"),
        ("bert", {"vocab_size": None}, "vocab_size must be a positive whole number, got None"),
    ],
)
def test_a_variant_that_would_give_other_values_is_refused(folder, name, values, says):
    path = folder(name)
    refused(with_config(path, **values), says)


def test_sizes_that_a_config_leaves_out_have_their_defaults(folder):
    path = folder("llama")
    heads = {
        "head_dim": None,
        "num_key_value_heads": None,
        "rope_scaling": None,
        "rope_theta": None,
    }
    with_config(path, **heads)

    def widen(tensors):
        for name, tensor in tensors.items():
            if any(part in name for part in ("q_proj", "k_proj", "v_proj")):
                tensors[name] = np.ones((32, 32), dtype=np.float32)
            elif "o_proj" in name:
                tensors[name] = tensor[:, :32].copy()

    header = converted(with_tensors(path, widen))
    assert header.arch("attention.head_count_kv") == 4
    assert header.arch("attention.key_length") == 8
    assert header.arch("rope.freq_base") == 10_000.0
    assert "rope_freqs.weight" not in header.tensors


# Tokenizers


@pytest.mark.parametrize("name", ["qwen3", "xlm-roberta", "roberta-reranker"])
def test_a_missing_tokenizer_is_said_with_the_way_out(folder, name):
    path = folder(name)
    (path / "tokenizer.json").unlink()
    refused(path, r"tokenizer\.json.* is missing.*AutoTokenizer\.from_pretrained")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("qwen3", "of the kind WordPiece; the model takes BPE"),
        ("xlm-roberta", "of the kind WordPiece"),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(folder, name, says):
    path = folder(name)
    edit(path / "tokenizer.json", lambda fast: fast["model"].update(type="WordPiece"))
    refused(path, says)


@pytest.mark.parametrize(
    "change",
    [
        lambda fast: fast["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex=r"\w+"),
        lambda fast: fast.update(normalizer={"type": "NFKC"}),
        lambda fast: fast.update(pre_tokenizer=None),
        lambda fast: fast["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True),
        lambda fast: fast["model"].update(ignore_merges=True),
    ],
)
def test_another_way_to_cut_text_is_refused(folder, change):
    path = folder("qwen3")
    edit(path / "tokenizer.json", change)
    refused(path, "cuts texts in a way .* none of those that can be converted: qwen2, llama-bpe")


def test_gpt2s_way_to_cut_keeps_its_name_where_it_is_not_roberta(folder):
    path = folder("roberta-reranker")
    assert converted(path).metadata["tokenizer.ggml.pre"] == "roberta-bpe"
    edit(path / "tokenizer.json", lambda fast: fast.update(post_processor=None))
    header = converted(path)
    assert header.metadata["tokenizer.ggml.pre"] == "gpt-2"
    assert header.metadata["tokenizer.ggml.add_bos_token"] is False


def test_merges_may_be_written_in_one_text_each(folder):
    path = folder("qwen3")
    pairs = converted(path).metadata["tokenizer.ggml.merges"]
    edit(
        path / "tokenizer.json",
        lambda fast: fast["model"].update(merges=[" ".join(m) for m in fast["model"]["merges"]]),
    )
    assert converted(path).metadata["tokenizer.ggml.merges"] == pairs


@pytest.mark.parametrize(
    "change",
    [
        lambda fast: fast.update(normalizer={"type": "NFKC"}),
        lambda fast: fast.update(pre_tokenizer={"type": "Whitespace"}),
    ],
)
def test_another_unigram_than_xlm_robertas_is_refused(folder, change):
    path = folder("xlm-roberta")
    edit(path / "tokenizer.json", change)
    refused(path, "XLM-RoBERTa's kind is converted alone")


def test_sentencepieces_table_of_characters_is_kept(folder):
    path = folder("xlm-roberta")
    table = b"\x00\x01\xfe\xff"
    normalizer = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}
    edit(path / "tokenizer.json", lambda fast: fast.update(normalizer=normalizer))
    metadata = converted(path).metadata
    assert metadata["tokenizer.ggml.precompiled_charsmap"] == list(table)


def test_a_unigram_that_keeps_its_blanks_says_so(folder):
    path = folder("xlm-roberta")

    def bare(fast):
        fast["normalizer"] = None
        fast["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}

    edit(path / "tokenizer.json", bare)
    metadata = converted(path).metadata
    assert metadata["tokenizer.ggml.remove_extra_whitespaces"] is False
    assert metadata["tokenizer.ggml.add_space_prefix"] is False


def test_more_tokens_than_rows(folder):
    path = with_config(folder("qwen3"), vocab_size=100)
    refused(path, r"ids up to \d+, and the model has rows for 100")


def test_rows_without_a_token_are_filled_up(folder):
    metadata = converted(folder("qwen3")).metadata
    assert metadata["tokenizer.ggml.tokens"][-1] == "[PAD415]"
    assert metadata["tokenizer.ggml.token_type"][-1] == 5


def test_words_that_were_added_are_user_defined(folder):
    metadata = converted(folder("qwen3")).metadata
    kinds = dict(
        zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True)
    )
    assert (kinds["<think>"], kinds["<|im_end|>"], kinds["yes"]) == (4, 3, 1)


_SPECIAL = {"SpecialToken": {"id": "<s>"}}
_BERT = {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}


@pytest.mark.parametrize(
    ("processor", "says"),
    [
        ({"type": "Fancy"}, "post-processor of the kind Fancy"),
        (
            {
                "type": "TemplateProcessing",
                "single": [_SPECIAL, _SPECIAL, {"Sequence": {"id": "A"}}],
            },
            "a GGUF can have one token on each side",
        ),
        ({"type": "Sequence", "processors": [_BERT, _BERT]}, "adds special tokens twice"),
    ],
)
def test_special_tokens_that_a_gguf_cannot_say_are_refused(folder, processor, says):
    path = folder("roberta-reranker")
    edit(path / "tokenizer.json", lambda fast: fast.update(post_processor=processor))
    refused(path, says)


def test_special_tokens_may_be_written_as_objects(folder):
    path = folder("llama")
    edit(
        path / "tokenizer_config.json",
        lambda config: config.update(pad_token={"content": "<|end_of_text|>", "special": True}),
    )
    metadata = converted(path).metadata
    assert metadata["tokenizer.ggml.padding_token_id"] == metadata["tokenizer.ggml.eos_token_id"]


# WordPiece without tokenizer.json


def with_vocab_txt(path, lines=None):
    """Put vocab.txt in the place of tokenizer.json."""
    fast = json.loads((path / "tokenizer.json").read_text("utf-8"))
    (path / "tokenizer.json").unlink()
    (path / "vocab.txt").write_text("\n".join(lines or fast["model"]["vocab"]) + "\n", "utf-8")
    return path


def test_a_vocabulary_may_be_a_text_file(folder):
    expected = converted(folder("bert")).metadata
    found = converted(with_vocab_txt(folder("bert"))).metadata
    assert found == expected


def test_no_vocabulary_at_all(folder):
    path = folder("bert")
    (path / "tokenizer.json").unlink()
    refused(path, "neither tokenizer.json nor vocab.txt")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["[PAD]", "[UNK]", "[CLS]", "the"], r"lacks \[SEP\]"),
        (["[UNK]", "[CLS]", "[SEP]", "", "the"], "has ids without a token"),
        (["[UNK]", "[CLS]", "[SEP]", "the", "the"], "has a token twice"),
        (["[UNK]", "[CLS]", "[SEP]", *map(str, range(500))], "503 tokens, and .* rows for 416"),
    ],
)
def test_a_text_file_that_is_no_vocabulary_of_the_model(folder, lines, says):
    refused(with_vocab_txt(folder("bert"), lines), says)


def test_words_that_were_added_to_a_wordpiece_are_user_defined(folder):
    path = folder("bert")
    word = {"id": 300, "content": "corral", "special": False}
    edit(path / "tokenizer.json", lambda fast: fast["added_tokens"].append(word))

    def dense(fast):
        vocabulary = fast["model"]["vocab"]
        vocabulary.update({f"w{i}": i for i in range(len(vocabulary), 300)})

    edit(path / "tokenizer.json", dense)
    assert converted(path).metadata["tokenizer.ggml.token_type"][300] == 4


def test_a_wordpiece_with_another_normalizer_is_refused(folder):
    path = folder("bert")
    edit(path / "tokenizer.json", lambda fast: fast.update(normalizer={"type": "NFKC"}))
    refused(path, "with the normalizer NFKC; .* WordPiece and BertNormalizer only")


# SentencePiece's BPE


BLANKS = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "prefixed"),
    [
        ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, BLANKS]}, None,
         True),
        (BLANKS, None, False),
        (None, METASPACE, True),
        (None, METASPACE | {"prepend_scheme": "never"}, False),
    ],
)  # fmt: skip
def test_llama_2s_blank_in_front_is_kept(folder, normalizer, pre_tokenizer, prefixed):
    path = folder("llama-2")
    edit(
        path / "tokenizer.json",
        lambda fast: fast.update(normalizer=normalizer, pre_tokenizer=pre_tokenizer),
    )
    assert converted(path).metadata["tokenizer.ggml.add_space_prefix"] is prefixed


@pytest.mark.parametrize(
    "change",
    [
        lambda fast: fast.update(normalizer={"type": "NFKC"}),
        lambda fast: fast.update(normalizer=None, pre_tokenizer={"type": "Whitespace"}),
        lambda fast: fast.update(normalizer=None, pre_tokenizer=METASPACE | {"split": True}),
    ],
)
def test_another_treatment_of_blanks_than_llama_2s_is_refused(folder, change):
    path = folder("llama-2")
    edit(path / "tokenizer.json", change)
    refused(path, "treats blanks in a way")


def test_llama_2s_vocabulary_without_an_unknown_token_is_refused(folder):
    path = folder("llama-2")
    edit(path / "tokenizer.json", lambda fast: fast["model"].update(unk_token=None))
    refused(path, "no token for what is unknown")


def test_bytes_of_llama_2_are_bytes(folder):
    metadata = converted(folder("llama-2")).metadata
    kinds = dict(
        zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True)
    )
    assert kinds["<0x0A>"] == 6
    assert kinds["<unk>"] == 2
    assert kinds["<s>"] == 3
