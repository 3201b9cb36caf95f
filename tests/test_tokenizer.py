"""What a GGUF's metadata makes of its tokenizer: kind, special tokens, and refusals."""

from __future__ import annotations

import logging
from itertools import pairwise

import numpy as np
import pytest
from golden import minilm
from hypothesis import given
from hypothesis import strategies as st
from texts import TEXTS
from trained_vocabularies import trained

from corral.engine.tokenizer import load_tokenizer
from corral.engine.tokenizer._aligned import align
from corral.engine.tokenizer._bpe import BYTES
from corral.errors import GGUFError
from corral.gguf_header import GGUFHeader, read_header

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

BYTE_LETTERS = sorted(BYTES, key=BYTES.__getitem__)


def load(model, tokens, types=None, llama_tokenize=None, **more):
    metadata = {
        "general.architecture": "any",
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types or [NORMAL] * len(tokens),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }
    return load_tokenizer(GGUFHeader(metadata, {}, 0), llama_tokenize)


def bert(tokens=("[CLS]", "[SEP]", "[UNK]", "▁a", "▁B", "▁b", "c"), **more):
    ids = {"bos_token_id": 0, "seperator_token_id": 1, "unknown_token_id": 2} | more
    return load("bert", list(tokens), [CONTROL] * 3 + [NORMAL] * (len(tokens) - 3), **ids)


def gpt2(*more_tokens, merges=(), types=(), **more):
    tokens = [*BYTE_LETTERS, *more_tokens]
    kinds = [NORMAL] * 256 + list(types or [NORMAL] * len(more_tokens))
    return load("gpt2", tokens, kinds, merges=list(merges), **({"pre": "gpt-2"} | more))


def llama(*more_tokens, scores=(), types=(), **more):
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *byte_tokens, *more_tokens]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *(types or [NORMAL] * len(more_tokens))]
    all_scores = [0.0] * 259 + list(scores or [-float(i) for i in range(len(more_tokens))])
    return load("llama", tokens, kinds, scores=all_scores, **more)


def t5(*pieces, types=(), **more):
    tokens = ["<pad>", "</s>", "<unk>", *pieces]
    kinds = [CONTROL, CONTROL, UNKNOWN, *(types or [NORMAL] * len(pieces))]
    scores = [0.0] * 3 + [-1.0 - i for i in range(len(pieces))]
    return load("t5", tokens, kinds, **({"scores": scores} | more))


def texts_of(tokenizer, text):
    return [text[start:end] for start, end in tokenizer.encode(text).offsets]


def ids_of(tokenizer, text):
    ids = tokenizer.encode(text).ids.tolist()
    assert tokenizer.encode_batch([text])[0].tolist() == ids
    return ids


def test_minilms_ids_are_sentence_transformers(minilm_path):
    tokenizer = load_tokenizer(read_header(minilm_path), None)
    found = tokenizer.encode_batch(TEXTS.values())
    different = [
        name
        for name, ids in zip(TEXTS, found, strict=True)
        if [*tokenizer.head, *ids, *tokenizer.tail] != minilm().ids[name].tolist()
    ]
    assert different == []


@pytest.mark.parametrize(
    ("load_one", "kind"),
    [(bert, "wordpiece"), (gpt2, "bpe"), (llama, "spm"), (lambda: t5("▁"), "unigram")],
)
def test_kind_is_the_models(load_one, kind):
    assert load_one().kind == kind


# Special tokens


def test_wordpiece_stands_between_cls_and_sep_whatever_the_flags_say():
    tokenizer = bert(add_bos_token=False, add_eos_token=False)
    assert (tokenizer.head, tokenizer.tail) == ((0,), (1,))


def test_wordpiece_without_bos_has_a_cls_id_and_without_separator_an_eos():
    tokens = ["[UNK]", "[CLS]", "[SEP]", "▁a"]
    tokenizer = load("bert", tokens, unknown_token_id=0, cls_token_id=1, eos_token_id=2)
    assert (tokenizer.head, tokenizer.tail) == ((1,), (2,))


def test_berts_own_ids_hold_where_the_file_names_none():
    tokenizer = load("bert", [f"▁{i}" for i in range(200)])
    assert (tokenizer.head, tokenizer.tail) == ((101,), (102,))
    assert (tokenizer.unk_id, tokenizer.pad_id) == (100, 0)


def test_wordpiece_without_special_tokens_is_refused():
    with pytest.raises(GGUFError, match=r"bos_token_id or tokenizer\.ggml\.cls_token_id"):
        load("bert", ["[UNK]", "▁a"], unknown_token_id=0)


def test_bpe_has_only_the_special_tokens_that_the_file_asks_for():
    plain = gpt2("<|a|>", types=[CONTROL], bos_token_id=256, eos_token_id=256)
    assert (plain.head, plain.tail) == ((), ())
    both = gpt2(
        *("<|a|>", "<|b|>"),
        types=[CONTROL] * 2,
        bos_token_id=256,
        eos_token_id=257,
        add_bos_token=True,
        add_eos_token=True,
    )
    assert (both.head, both.tail) == ((256,), (257,))


@pytest.mark.parametrize(
    ("pre", "head", "tail"),
    [
        ("llama-bpe", (256,), ()),
        ("roberta-bpe", (256,), (257,)),
        ("modern-bert", (256,), (257,)),
        ("qwen2", (), ()),
    ],
)
def test_bpe_families_add_what_they_always_add_where_the_file_is_silent(pre, head, tail):
    more = {"bos_token_id": 256, "eos_token_id": 257, "pre": pre}
    tokenizer = gpt2("<s>", "</s>", types=[CONTROL] * 2, **more)
    assert (tokenizer.head, tokenizer.tail) == (head, tail)


def test_sentencepiece_bpe_starts_with_bos_and_unigram_ends_with_eos():
    assert (llama().head, llama().tail) == ((1,), ())
    assert (t5("▁").head, t5("▁").tail) == ((), (1,))


def test_asking_for_a_special_token_that_is_not_there_is_refused():
    with pytest.raises(GGUFError, match=r"wants BOS .*bos_token_id"):
        t5("▁", add_bos_token=True)
    with pytest.raises(GGUFError, match=r"wants EOS .*eos_token_id"):
        load("rwkv", ["a"], [NORMAL], add_eos_token=True)


def test_eos_is_added_once():
    tokenizer = gpt2("<|endoftext|>", types=[CONTROL], eos_token_id=256)
    assert tokenizer.tail == ()
    assert tokenizer.with_eos().tail == (256,)
    assert tokenizer.with_eos().with_eos().tail == (256,)


@pytest.mark.parametrize("end_of_turn", ["<|im_end|>", "<|eot_id|>", "<end_of_turn>"])
@pytest.mark.parametrize("end_of_text", ["<|endoftext|>", "<|end_of_text|>", "<eos>"])
def test_eos_is_the_end_of_the_text_and_not_of_a_chats_turn(end_of_turn, end_of_text):
    tokens = (end_of_turn, end_of_text)
    tokenizer = gpt2(*tokens, types=[CONTROL] * 2, eos_token_id=256, add_eos_token=True)
    assert tokenizer.eos_id == 257
    assert tokenizer.tail == (257,)


def test_a_lone_end_of_turn_is_the_eos():
    assert gpt2("<|im_end|>", types=[CONTROL], eos_token_id=256).with_eos().tail == (256,)


def test_eos_that_the_vocabulary_has_not_is_refused():
    with pytest.raises(GGUFError, match="names no end-of-sequence token"):
        bert().with_eos()


# Control tokens, fillers, and a user's own words


def test_a_named_special_token_is_text_whatever_its_type():
    tokenizer = t5("<s>", "▁", "<", "s", ">", bos_token_id=3)
    assert ids_of(tokenizer, "<s>") == [4, 5, 6, 7]


def test_an_end_token_that_is_called_user_defined_is_text():
    tokenizer = gpt2("</s>", types=[USER_DEFINED])
    assert ids_of(tokenizer, "</s>") == list(b"</s>")


@pytest.mark.parametrize("token", ["<think>", "  "])
def test_user_defined_tokens_are_taken_whole(token):
    tokenizer = gpt2(token, types=[USER_DEFINED])
    assert ids_of(tokenizer, f"a{token}b") == [97, 256, 98]
    assert texts_of(tokenizer, f"a{token}b") == ["a", token, "b"]


def test_the_longest_user_defined_token_wins():
    tokenizer = gpt2("<a", "<ab", "<abc", types=[USER_DEFINED] * 3)
    assert ids_of(tokenizer, "<abcd<ab<a") == [258, 100, 257, 256]


def test_user_defined_tokens_of_sentencepiece_are_taken_whole():
    tokenizer = llama("<br>", "▁", types=[USER_DEFINED, NORMAL], add_space_prefix=False)
    assert ids_of(tokenizer, "<br> ") == [259, 260]
    tokenizer = t5("<br>", "▁", "x", types=[USER_DEFINED, NORMAL, NORMAL])
    assert ids_of(tokenizer, "x<br>") == [4, 5, 3]


def test_user_defined_runs_of_blanks_are_merged_first():
    runs = [" " * n for n in range(2, 5)]
    tokenizer = llama(
        *("▁", "x", "▁x", *runs),
        types=[NORMAL] * 3 + [USER_DEFINED] * 3,
        scores=[-1.0, -2.0, -3.0, -1000.0, -1000.0, -1000.0],
        add_space_prefix=False,
    )
    assert ids_of(tokenizer, "x    x") == [260, 264, 260]


@pytest.mark.parametrize("kind", [USER_DEFINED, UNUSED, NORMAL])
def test_fillers_of_a_vocabulary_never_come_out_of_a_text(kind):
    tokenizer = gpt2("[PAD256]", types=[kind])
    assert ids_of(tokenizer, "[PAD256]") == list(b"[PAD256]")


def test_tokens_that_are_not_utf_8_are_left_out():
    tokenizer = llama("\udcff", "a", add_space_prefix=False)
    assert ids_of(tokenizer, "a") == [260]


# WordPiece


def test_case_follows_the_flag():
    words = ("[CLS]", "[SEP]", "[UNK]", "▁straße", "▁Straße", "▁strasse")
    assert ids_of(bert(words, **{"normalizer.lowercase": True}), "Straße") == [3]
    assert ids_of(bert(words, **{"normalizer.lowercase": False}), "Straße") == [4]


def test_accents_follow_their_own_flag():
    words = ("[CLS]", "[SEP]", "[UNK]", "▁cafe", "▁café")
    both = {"normalizer.lowercase": True, "normalizer.strip_accents": False}
    assert ids_of(bert(words, **both), "CAFÉ") == [4]
    assert ids_of(bert(words), "CAFÉ") == [3]


def test_a_vocabulary_with_capitals_is_cased_where_the_file_is_silent():
    assert ids_of(bert(), "B b") == [4, 5]
    assert ids_of(bert(("[CLS]", "[SEP]", "[UNK]", "▁b", "▁é", "▁d")), "B b") == [3, 3]


def test_wordpiece_without_an_unknown_token_is_refused():
    with pytest.raises(GGUFError, match="without an unknown token"):
        load("bert", ["▁a"])


# BPE


def test_ids_in_merge_order_and_ids_in_any_order_give_the_same_tokens():
    original = trained("bpe, qwen2")
    tokens, merges = original.tokens, original.merges
    ordered = load("gpt2", tokens, original.types, merges=merges, pre="qwen2")
    order = np.random.default_rng(1).permutation(len(tokens))
    shuffled = load(
        "gpt2",
        [tokens[i] for i in order],
        [original.types[i] for i in order],
        merges=merges,
        pre="qwen2",
    )
    # Only the first can be read by tiktoken.
    assert type(ordered.encoder) is not type(shuffled.encoder)
    for text in TEXTS.values():
        found, expected = shuffled.encode(text), ordered.encode(text)
        assert order[found.ids].tolist() == expected.ids.tolist()
        assert found.offsets.tolist() == expected.offsets.tolist()


@pytest.mark.parametrize(
    ("tokens", "merges"),
    [
        (("ab", "abc"), ("a b",)),  # no merge makes "abc"
        (("abc", "ab"), ("a b", "ab c")),  # made in another order
        (("ab",), ("a b", "a c")),  # what the second makes is no token
        (("ab", "a c"), ("a b",)),  # not byte-level
    ],
)
def test_merges_decide_where_ids_do_not_follow_them(tokens, merges):
    tokenizer = gpt2(*tokens, merges=merges)
    expected = {
        ("ab", "abc"): [256, 99],
        ("abc", "ab"): [256],
        ("ab",): [256, 99],
        ("ab", "a c"): [256, 99],
    }
    assert ids_of(tokenizer, "abc") == expected[tokens]


def test_a_word_that_is_a_token_is_that_token_where_merges_are_ignored():
    more = {"merges": ("a b",), "bos_token_id": 0}
    assert ids_of(gpt2("ab", "abc", pre="llama-bpe", **more), "abc") == [257]


def test_an_alphabet_with_a_byte_missing_is_read_all_the_same():
    tokens = [letter for letter in BYTE_LETTERS if letter != "z"]
    tokenizer = load("gpt2", tokens, merges=[], pre="gpt-2")
    assert texts_of(tokenizer, "ay") == ["a", "y"]


def test_qwens_text_is_composed_first_and_offsets_count_the_original():
    tokenizer = gpt2("Ã©", merges=("Ã ©",), pre="qwen2")
    assert ids_of(tokenizer, "xe\u0301y") == ids_of(tokenizer, "xéy") == [120, 256, 121]
    assert texts_of(tokenizer, "xe\u0301y") == ["x", "e\u0301", "y"]


# SentencePiece


def test_sentencepiece_starts_with_a_blank_unless_the_file_says_no():
    assert ids_of(llama("▁", "a", "▁a"), "a") == [261]
    assert ids_of(llama("▁", "a", "▁a", add_space_prefix=False), "a") == [260]
    assert ids_of(t5("▁", "a", "▁a", add_space_prefix=False), "a") == [4]


def test_pieces_of_characters_that_are_bytes_are_found():
    tokenizer = llama("\t\t", add_space_prefix=False)
    assert ids_of(tokenizer, "\t\t") == [259]


def test_unigram_keeps_blanks_where_the_file_says_so():
    pieces = ("▁", "a", "▁a")
    assert ids_of(t5(*pieces), "a  a") == [5, 5]
    assert ids_of(t5(*pieces, remove_extra_whitespaces=False), "a  a") == [5, 3, 5]


def test_unigram_falls_back_on_bytes():
    tokenizer = t5("▁", "<0x41>", types=[NORMAL, BYTE])
    assert ids_of(tokenizer, "A") == [3, 4]


@pytest.mark.parametrize("scores", [None, [0.0]])
def test_missing_scores_are_refused(scores):
    with pytest.raises(GGUFError, match=r"tokenizer\.ggml\.scores for its 4 tokens"):
        t5("▁", scores=scores)


def test_sentencepiece_without_an_unknown_token_is_refused():
    with pytest.raises(GGUFError, match="'t5' without an unknown token"):
        load("t5", ["▁", "a"], scores=[0.0, 0.0])


# No vocabulary, or one that is not known


@pytest.mark.parametrize("tokens", [None, []])
def test_a_file_without_vocabulary_is_refused(tokens):
    metadata = {"general.architecture": "any", "tokenizer.ggml.tokens": tokens}
    with pytest.raises(GGUFError, match="holds no vocabulary"):
        load_tokenizer(GGUFHeader(metadata, {}, 0), None)


def test_too_few_token_types_are_refused():
    with pytest.raises(GGUFError, match="does not fit its 2 tokens"):
        load("t5", ["a", "b"], [NORMAL])


@pytest.mark.parametrize(
    ("model", "pre"), [("gpt2", "default"), ("gpt2", "no such"), ("rwkv", ""), ("", "")]
)
def test_an_unknown_tokenizer_is_left_to_llama_cpp_with_a_warning(caplog, model, pre):
    with caplog.at_level(logging.WARNING):
        tokenizer = load(
            *(model, ["a", "b"]), llama_tokenize=lambda _: np.array([1, 0], np.int32), pre=pre
        )
    assert tokenizer.kind == "llama"
    assert "token ids come from llama.cpp" in caplog.text
    assert repr(pre) in caplog.text
    assert ids_of(tokenizer, "ba") == [1, 0]
    assert texts_of(tokenizer, "ba") == ["b", "a"]


def test_known_tokenizers_load_without_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        bert(), gpt2(), llama(), t5("▁")
    assert caplog.text == ""


def test_fallback_knows_how_sentencepiece_writes_blanks_and_bytes():
    tokenizer = load(
        *("rwkv", ["▁a", "<0xC3>", "<0xA9>"], [NORMAL, BYTE, BYTE]),
        llama_tokenize=lambda _: np.array([0, 1, 2], np.int32),
    )
    assert texts_of(tokenizer, "aé") == ["a", "é", "é"]


# Alignment


@pytest.mark.parametrize(
    ("text", "pieces", "spans"),
    [
        (b"ab", [b"a", b"b"], [(0, 1), (1, 2)]),
        (b"a", [b" a"], [(0, 1)]),  # a blank in front of the text
        (b"a", [b" ", b"a"], [(0, 0), (0, 1)]),
        (b"a-b", [b"a", b"b"], [(0, 1), (1, 3)]),  # dropped
        (b"a--", [b"a"], [(0, 3)]),
        (b"aXb", [b"a", b"x", b"b"], [(0, 1), (1, 2), (2, 3)]),  # rewritten
        (b"aXYb", [b"a", b"x", b"y", b"b"], [(0, 1), (1, 3), (1, 3), (3, 4)]),
        (b"aXY", [b"a", b"x", b"y"], [(0, 1), (1, 3), (1, 3)]),
        (b"X  Y", [b"x", b" ", b"y"], [(0, 4)] * 3),
        (b"", [], []),
    ],
)
def test_pieces_are_found_where_they_stand(text, pieces, spans):
    starts, ends = align(text, pieces)
    assert list(zip(starts, ends, strict=True)) == spans


@given(st.binary(max_size=30), st.lists(st.binary(max_size=4), min_size=1, max_size=20))
def test_any_pieces_ascend_and_cover_any_text(text, pieces):
    starts, ends = align(text, pieces)
    assert len(starts) == len(ends) == len(pieces)
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    assert starts[0] == 0
    assert ends[-1] == len(text)
    assert all(after <= end for end, (_, after) in zip(ends, pairwise(starts), strict=False))
    assert all(start <= end for start, end in zip(starts, ends, strict=True))
