"""A Hugging Face BERT folder becomes the GGUF that an independent writer makes of it."""

import json
import re
import struct

import gguf
import numpy as np
import pytest
import tiny_models
from safetensors.numpy import save_file

from corral.errors import ModelError, PoolingError
from corral.gguf_header import read_header
from corral.models.convert import ModelCard, convert


def hugging_face_name(name):
    block, stem, part = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(\w+)", name).groups()
    layer = f"encoder.layer.{block}." if block else ""
    return f"{layer}{tiny_models.BERT_NAMES[stem]}.{part}"


class Folder:
    """A Hugging Face folder of a tiny BERT, to be changed before it is converted."""

    def __init__(self, path, model):
        self.path = path
        self.model = model
        self.tensors = {hugging_face_name(n): w.copy() for n, w in model.weights.items()}
        shape, vocabulary = model.shape, model.vocabulary
        self.config = {
            "model_type": "bert",
            "architectures": ["BertModel"],
            "vocab_size": shape.n_vocab,
            "max_position_embeddings": shape.n_ctx_train,
            "hidden_size": shape.n_embd,
            "intermediate_size": shape.n_ff,
            "num_hidden_layers": shape.n_layer,
            "num_attention_heads": shape.n_head,
            "type_vocab_size": 2,
            "layer_norm_eps": model.eps,
            "hidden_act": "gelu",
        }
        self.tokens = list(vocabulary.tokens)
        self.control = [i for i, t in enumerate(vocabulary.types) if t == gguf.TokenType.CONTROL]
        self.json("modules.json", modules("Transformer", "Pooling", "Normalize"))
        self.json("1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
        self.use_tokenizer_json()

    def json(self, name, value):
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))

    def use_tokenizer_json(self, *, kind="WordPiece", added=(), **normalizer):
        added = [{"id": i, "content": self.tokens[i], "special": True} for i in self.control] + [
            {"id": i, "content": token, "special": False} for i, token in added
        ]
        self.json(
            "tokenizer.json",
            {
                "model": {"type": kind, "vocab": {t: i for i, t in enumerate(self.tokens)}},
                "normalizer": {"type": "BertNormalizer", "lowercase": True, **normalizer},
                "added_tokens": added,
            },
        )

    def use_vocab_txt(self, line_end="\n", **config):
        (self.path / "tokenizer.json").unlink()
        text = "".join(token + line_end for token in self.tokens)
        (self.path / "vocab.txt").write_bytes(text.encode())
        self.json("tokenizer_config.json", config)

    def save(self):
        self.json("config.json", self.config)
        save_file(self.tensors, self.path / "model.safetensors")

    def convert(self, **options):
        self.save()
        target = self.path / "made" / "model.gguf"
        convert(self.path, target, **options)
        return target


def modules(*kinds):
    return [
        {"type": f"sentence_transformers.models.{kind}", "path": f"{i}_{kind}" if i else ""}
        for i, kind in enumerate(kinds)
    ]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny-bert").mkdir()
    return Folder(tmp_path / "tiny-bert", tiny_models.bert(pooling="mean"))


def weights_of(path):
    return {t.name: np.array(t.data).copy() for t in gguf.GGUFReader(path).tensors}


def assert_same_weights(path, expected):
    found = weights_of(path)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight, err_msg=name)


# What is written


def test_the_weights_are_those_of_an_independent_writer(folder):
    assert_same_weights(folder.convert(), folder.model.weights)


def test_the_metadata_is_that_of_an_independent_writer(folder):
    reference = dict(read_header(folder.model.path).metadata)
    n_tokens = reference["tokenizer.ggml.token_type"].index(gguf.TokenType.UNUSED)
    del folder.tokens[n_tokens:]
    folder.use_tokenizer_json()

    made = dict(read_header(folder.convert()).metadata)

    for metadata in (made, reference):
        metadata["tokenizer.ggml.tokens"] = metadata["tokenizer.ggml.tokens"][:n_tokens]
    shared = {key for key in reference if not key.startswith("general.")}
    assert len(shared) > 15
    assert {key: made.get(key) for key in shared} == {key: reference[key] for key in shared}


def test_the_file_says_what_it_is(folder):
    card = ModelCard(
        name="Tiny BERT", basename="tiny", organization="me", license="mit", source_url="https://x"
    )

    found = read_header(folder.convert(card=card)).metadata

    assert {k: v for k, v in found.items() if k.startswith("general.")} == {
        "general.architecture": "bert",
        "general.type": "model",
        "general.name": "Tiny BERT",
        "general.basename": "tiny",
        "general.organization": "me",
        "general.license": "mit",
        "general.source.url": "https://x",
        "general.file_type": 0,
    }
    assert found["bert.attention.causal"] is False


def test_without_a_card_the_folder_gives_the_name(folder):
    assert read_header(folder.convert()).metadata["general.name"] == "tiny-bert"


def test_two_conversions_give_the_same_bytes(folder):
    first = folder.convert().read_bytes()

    assert folder.convert().read_bytes() == first


def test_nothing_else_is_left_beside_the_file(folder):
    made = folder.convert()

    assert list(made.parent.iterdir()) == [made]


@pytest.mark.parametrize(
    ("prefix", "extra"),
    [
        ("bert.", {"cls.predictions.bias": (4,), "bert.pooler.dense.weight": (4, 4)}),
        ("", {"pooler.dense.bias": (4,)}),
    ],
)
def test_a_prefix_and_what_an_embedding_model_does_not_use_are_dropped(folder, prefix, extra):
    folder.config["architectures"] = ["BertForMaskedLM"]
    folder.tensors = {f"{prefix}{name}": weight for name, weight in folder.tensors.items()}
    folder.tensors |= {name: np.ones(shape, np.float32) for name, shape in extra.items()}
    folder.tensors[f"{prefix}embeddings.position_ids"] = np.arange(4)[None]

    assert_same_weights(folder.convert(), folder.model.weights)


def test_the_norms_old_names_are_known(folder):
    folder.tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): weight
        for name, weight in folder.tensors.items()
    }

    assert_same_weights(folder.convert(), folder.model.weights)


def test_half_precision_is_widened_exactly(folder):
    folder.tensors = {name: weight.astype(np.float16) for name, weight in folder.tensors.items()}

    expected = {n: w.astype(np.float16).astype(np.float32) for n, w in folder.model.weights.items()}
    assert_same_weights(folder.convert(), expected)


def test_bfloat16_is_widened_exactly(folder):
    folder.save()
    halves = {n: (w.view(np.uint32) >> 16).astype("<u2") for n, w in folder.tensors.items()}
    write_bfloat16(folder.path / "model.safetensors", halves)
    target = folder.path / "model.gguf"

    convert(folder.path, target)

    cut = {
        n: (w.view(np.uint32) & 0xFFFF0000).view(np.float32)
        for n, w in folder.model.weights.items()
    }
    assert_same_weights(target, cut)


def write_bfloat16(path, halves):
    """numpy has no bfloat16, so the file is put together by hand."""
    entries, at = {}, 0
    for name, half in halves.items():
        entries[name] = {
            "dtype": "BF16",
            "shape": half.shape,
            "data_offsets": [at, at + half.nbytes],
        }
        at += half.nbytes
    head = json.dumps(entries).encode()
    path.write_bytes(
        struct.pack("<Q", len(head)) + head + b"".join(h.tobytes() for h in halves.values())
    )


def test_weights_in_several_files_are_found_through_their_index(folder):
    folder.save()
    (folder.path / "model.safetensors").unlink()
    names = list(folder.tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: folder.tensors[name] for name in part}, folder.path / file)
    index = {name: file for file, part in parts.items() for name in part}
    folder.json("model.safetensors.index.json", {"weight_map": index})

    convert(folder.path, folder.path / "model.gguf")

    assert_same_weights(folder.path / "model.gguf", folder.model.weights)


# Pooling


@pytest.mark.parametrize(
    ("config", "number"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, 1),
        ({"pooling_mode_cls_token": True}, 2),
        ({"pooling_mode_lasttoken": True}, 3),
        ({"pooling_mode": "mean"}, 1),
        ({"pooling_mode": ["cls"]}, 2),
        ({"pooling_mode": "lasttoken"}, 3),
    ],
)
def test_the_pooling_is_the_folders(folder, config, number):
    folder.json("1_Pooling/config.json", config)

    assert read_header(folder.convert()).arch("pooling_type") == number


def test_the_pooling_can_be_given(folder):
    (folder.path / "modules.json").unlink()

    assert read_header(folder.convert(pooling="cls")).arch("pooling_type") == 2


def test_a_folder_that_does_not_say_its_pooling_is_refused(folder):
    (folder.path / "modules.json").unlink()

    with pytest.raises(PoolingError, match="no modules.json.*Give the pooling: mean, cls, last"):
        folder.convert()


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, r"mean\+cls"),
        ({}, ""),
    ],
)
def test_a_pooling_that_llama_cpp_has_not_is_refused(folder, config, mode):
    folder.json("1_Pooling/config.json", config)

    with pytest.raises(PoolingError, match=rf"1_Pooling/config\.json pools by '{mode}'"):
        folder.convert()


def test_a_module_that_the_gguf_would_lose_is_refused(folder):
    folder.json("modules.json", modules("Transformer", "Pooling", "Dense"))

    with pytest.raises(ModelError, match=r"modules\.json has the modules Dense"):
        folder.convert()


# Vocabulary


def vocabulary_of(path):
    metadata = read_header(path).metadata
    return {k: v for k, v in metadata.items() if k.startswith("tokenizer.")}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_vocab_txt_gives_the_same_vocabulary_as_tokenizer_json(folder, line_end):
    expected = vocabulary_of(folder.convert())

    folder.use_vocab_txt(line_end, do_lower_case=True)

    assert vocabulary_of(folder.convert()) == expected


@pytest.mark.parametrize("source", ["tokenizer.json", "vocab.txt"])
@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "stripped"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
def test_case_and_accents_are_the_tokenizers(folder, source, lowercase, strip_accents, stripped):
    if source == "vocab.txt":
        folder.use_vocab_txt(do_lower_case=lowercase, strip_accents=strip_accents)
    else:
        folder.use_tokenizer_json(lowercase=lowercase, strip_accents=strip_accents)

    found = vocabulary_of(folder.convert())

    assert found["tokenizer.ggml.normalizer.lowercase"] is lowercase
    assert found["tokenizer.ggml.normalizer.strip_accents"] is stripped


def test_words_that_were_added_are_marked(folder):
    at = len(folder.tokens) - 1
    folder.use_tokenizer_json(added=[(at, "<added>")])

    found = vocabulary_of(folder.convert())

    assert found["tokenizer.ggml.tokens"][at] == "\u2581<added>"
    assert found["tokenizer.ggml.token_type"][at] == gguf.TokenType.USER_DEFINED


def test_rows_without_a_token_are_filled_with_unused_ones(folder):
    del folder.tokens[-3:]
    folder.use_tokenizer_json()

    found = vocabulary_of(folder.convert())

    assert len(found["tokenizer.ggml.tokens"]) == folder.model.shape.n_vocab
    assert found["tokenizer.ggml.token_type"][-3:] == [gguf.TokenType.UNUSED] * 3


def test_two_hashes_alone_stay_a_word(folder):
    folder.tokens[-1] = "##"
    folder.use_tokenizer_json()

    assert vocabulary_of(folder.convert())["tokenizer.ggml.tokens"][-1] == "\u2581##"


def test_more_tokens_than_rows_are_refused(folder):
    folder.tokens.append("one-more")
    folder.use_tokenizer_json()

    with pytest.raises(ModelError, match=r"has 401 tokens, and the model has rows for 400"):
        folder.convert()


def test_tokens_that_would_be_one_are_refused(folder):
    folder.tokens[-2:] = ["##\u2581twice", "twice"]
    folder.use_tokenizer_json()

    with pytest.raises(ModelError, match="a token twice.*\u2581twice"):
        folder.convert()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.use_tokenizer_json(kind="Unigram"), "of the kind Unigram with the normalizer"),
        (lambda f: f.use_tokenizer_json(type="NFKC"), "the normalizer NFKC"),
        (lambda f: (f.path / "tokenizer.json").unlink(), "neither tokenizer.json nor vocab.txt"),
        (lambda f: f.use_tokenizer_json(added=[(900, "far")]), "has ids without a token"),
    ],
)
def test_another_tokenizer_is_refused(folder, change, message):
    change(folder)

    with pytest.raises(ModelError, match=message):
        folder.convert()


def test_a_vocabulary_without_its_special_tokens_is_refused(folder):
    folder.tokens[folder.tokens.index("[CLS]")] = "cls"
    folder.use_vocab_txt()

    with pytest.raises(ModelError, match=r"vocab\.txt lacks \[CLS\]"):
        folder.convert()


# What cannot be converted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "t5"}, r"a model of type 't5' \(config\.json\); only bert"),
        (
            {"architectures": ["BertForSequenceClassification"]},
            r"lacks 4 of the 41 tensors.*the first: pooler\.dense\.weight",
        ),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
        ({"hidden_size": None}, "hidden_size must be a positive whole number, got None"),
        ({"hidden_size": True}, "hidden_size must be a positive whole number, got True"),
        ({"num_hidden_layers": 3}, r"lacks 16 of the 53 tensors.*encoder\.layer\.2"),
        (
            {"num_hidden_layers": 1},
            r"has 16 tensors .* that a GGUF would lose, the first: encoder\.layer\.1",
        ),
    ],
)
def test_a_model_that_is_no_such_bert_is_refused(folder, changes, message):
    folder.config |= changes

    with pytest.raises(ModelError, match=message):
        folder.convert()


def test_a_refused_model_leaves_an_older_file_as_it_was(folder):
    target = folder.path / "model.gguf"
    target.write_bytes(b"older")
    name = next(iter(folder.tensors))
    folder.tensors[name] = folder.tensors[name].astype(np.int64)
    folder.save()

    with pytest.raises(ModelError, match="is of type I64; F64, F32, F16 and BF16"):
        convert(folder.path, target)

    assert target.read_bytes() == b"older"
    assert not list(folder.path.glob(".*"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", r"config\.json is not JSON"),
        ("config.json", b"\xff", r"config\.json is not JSON"),
        ("config.json", b"[]", r"config\.json is not a JSON object"),
        ("config.json", None, r"config\.json is missing"),
        ("model.safetensors", None, "Pickled weights"),
        ("model.safetensors", b"nonsense", "not a whole safetensors file"),
    ],
)
def test_a_damaged_folder_is_refused(folder, name, content, message):
    folder.save()
    (folder.path / name).unlink()
    if content is not None:
        (folder.path / name).write_bytes(content)

    with pytest.raises(ModelError, match=message):
        convert(folder.path, folder.path / "model.gguf")


def test_a_part_that_is_missing_is_named(folder):
    folder.save()
    index = dict.fromkeys(folder.tensors, "gone.safetensors")
    folder.json("model.safetensors.index.json", {"weight_map": index})

    with pytest.raises(ModelError, match=r"cannot read .* from .*gone\.safetensors"):
        convert(folder.path, folder.path / "model.gguf")
