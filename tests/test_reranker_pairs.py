"""How queries and documents are laid out, with a tokenizer that can be read."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.engine.layout import SECOND_SEGMENT_KEY, choose_layout
from corral.engine.pairs import DEFAULT_INSTRUCTION, FamilyLayout, Limit, TemplateLayout
from corral.errors import GGUFError, InputTooLongError, UsageError
from corral.gguf_header import GGUFHeader, TensorInfo
from corral.models.convert import common

START, END = 1_000_001, 1_000_002
CONTROL = {"<|start|>": START, "<|end|>": END, "<|end|>er": END + 1}
TEMPLATE = "<|start|>Query: {query}\nText: {document}<|end|>\n"


@dataclass
class Letters:
    """A tokenizer whose ids are code points, and that counts what it reads."""

    kind: str = "wordpiece"
    head: tuple[int, ...] = (1,)
    tail: tuple[int, ...] = (2,)
    eos_id: int | None = None
    read: list[str] = field(default_factory=list)

    def encode(self, text):
        raise NotImplementedError

    def encode_batch(self, texts):
        self.read += texts
        return [np.array([ord(letter) for letter in text], dtype=np.int32) for text in texts]


def family(max_tokens=100, **rest):
    return FamilyLayout(tokenizer=Letters(), limit=Limit(max_tokens, "the test"), **rest)


def template(text=TEMPLATE, max_tokens=100, **rest):
    limit = Limit(max_tokens, "the test")
    return TemplateLayout(text, tokenizer=Letters(), control=CONTROL, limit=limit, **rest)


def shown(pair):
    """The pair with control tokens as their text."""
    names = {token_id: text for text, token_id in CONTROL.items()} | {1: "[CLS]", 2: "[SEP]"}
    return "".join(names.get(i) or chr(i) for i in pair.ids.tolist())


def test_a_family_pair_has_an_end_behind_both_texts():
    (pair,) = family().build("query", ["text"])
    assert shown(pair) == "[CLS]query[SEP]text[SEP]"
    assert not pair.truncated


def test_a_separator_stands_in_front_of_the_document():
    (pair,) = family(separator=(ord("|"),)).build("query", ["text"])
    assert shown(pair) == "[CLS]query[SEP]|text[SEP]"


def test_the_second_segment_is_the_document_and_its_end():
    (pair,) = family(second_offset=5000).build("q", ["d"])
    assert pair.ids.tolist() == [1, ord("q"), 2, 5000 + ord("d"), 5000 + 2]


def test_a_template_is_filled_and_its_control_tokens_parsed():
    (pair,) = template().build("who?", ["Anna."])
    assert pair.ids[0] == START
    assert shown(pair) == "<|start|>Query: who?\nText: Anna.<|end|>\n"
    assert (pair.ids == END).sum() == 1


def test_a_users_control_token_is_text():
    (pair,) = template().build("<|start|>", ["<|end|> {query} {document}"])
    assert (pair.ids == START).sum() == (pair.ids == END).sum() == 1
    assert shown(pair) == "<|start|>Query: <|start|>\nText: <|end|> {query} {document}<|end|>\n"


def test_the_longest_of_two_control_tokens_is_taken():
    (pair,) = template("<|end|>er {query} {document}").build("q", ["d"])
    assert pair.ids[0] == END + 1


def test_text_is_tokenised_together_with_the_template_it_stands_in():
    layout = template()
    layout.build("who?", ["Anna."])
    assert "Query: who?\nText: Anna." in layout._tokenizer.read


def test_a_query_may_stand_behind_the_document():
    (pair,) = template("{document}<|end|>asks {query}").build("who?", ["Anna."])
    assert shown(pair) == "Anna.<|end|>asks who?"


@pytest.mark.parametrize(
    ("given_instruction", "stands"),
    [(None, DEFAULT_INSTRUCTION), ("Find {query}s", "Find {query}s")],
)
def test_an_instruction_takes_its_place(given_instruction, stands):
    layout = template("{instruction}\n{query}\n{document}", 200, instruction=given_instruction)
    (pair,) = layout.build("q", ["d"])
    assert shown(pair) == f"{stands}\nq\nd"


def test_an_instruction_replaces_the_one_of_qwen3s_template():
    text = "<Instruct>: Find what answers\n<Query>: {query}\n<Document>: {document}"
    (kept,) = template(text).build("q", ["d"])
    assert shown(kept) == "<Instruct>: Find what answers\n<Query>: q\n<Document>: d"
    (told,) = template(text, instruction="Look").build("q", ["d"])
    assert shown(told) == "<Instruct>: Look\n<Query>: q\n<Document>: d"


def test_an_instruction_without_a_place_is_refused():
    with pytest.raises(UsageError, match="no place for one"):
        template(instruction="Look")


@pytest.mark.parametrize("text", ["{query}", "{document}", "none", "{query}{document}{document}"])
def test_a_template_without_its_places_is_refused(text):
    with pytest.raises(GGUFError, match="it needs query, and document once"):
        template(text)


@pytest.mark.parametrize("layout", [family(20), template(TEMPLATE, 40)], ids=["family", "template"])
def test_only_the_document_is_cut_and_says_so(layout):
    limit = (layout.limit if isinstance(layout, FamilyLayout) else layout._limit).max_tokens
    short, long = layout.build("who?", ["Anna.", "abcdefghij" * 10])
    assert not short.truncated
    assert long.truncated
    assert len(long.ids) == limit
    before, _, after = shown(short).partition("Anna.")
    assert shown(long).startswith(before + "abc")
    assert shown(long).endswith(after)


@pytest.mark.parametrize("build", [family, lambda n: template(TEMPLATE, n)])
def test_a_document_that_just_fits_is_whole(build):
    n_tokens = len(build(1000).build("who?", ["Anna."])[0].ids)
    (fits,) = build(n_tokens).build("who?", ["Anna."])
    assert not fits.truncated
    (cut,) = build(n_tokens - 1).build("who?", ["Anna."])
    assert cut.truncated
    assert len(cut.ids) == n_tokens - 1


@pytest.mark.parametrize("layout", [family(12), template(TEMPLATE, 30)], ids=["family", "template"])
def test_a_query_that_leaves_no_room_is_an_error_with_the_numbers(layout):
    with pytest.raises(InputTooLongError) as error:
        layout.build("a query of many letters", ["d"])
    limit = (layout.limit if isinstance(layout, FamilyLayout) else layout._limit).max_tokens
    assert f"reads {limit} (the test)" in str(error.value)


@pytest.mark.parametrize("build", [family, lambda n: template(TEMPLATE, n)])
def test_of_a_huge_document_only_a_beginning_is_read(build):
    layout = build(60)
    tokenizer = layout.tokenizer if isinstance(layout, FamilyLayout) else layout._tokenizer
    (pair,) = layout.build("who?", ["word " * 100_000])
    assert pair.truncated
    assert len(pair.ids) == 60
    assert max(map(len, tokenizer.read)) < 2_000


def test_a_huge_document_without_a_blank_is_read_whole():
    layout = family(60)
    (pair,) = layout.build("who?", ["x" * 10_000])
    assert pair.truncated
    assert max(map(len, layout.tokenizer.read)) == 10_000


class _Few(Letters):
    """Reads letters and no blanks."""

    def encode_batch(self, texts):
        return super().encode_batch([text.replace(" ", "") for text in texts])


def test_a_huge_document_of_few_tokens_is_not_cut():
    document = "a" + " " * 10_000 + "b"
    layout = FamilyLayout(tokenizer=_Few(), limit=Limit(20, "the test"))
    (pair,) = layout.build("q", [document])
    assert shown(pair) == "[CLS]q[SEP]ab[SEP]"
    assert not pair.truncated


@given(st.text(max_size=20), st.lists(st.text(max_size=200), min_size=1, max_size=4))
def test_pairs_of_a_query_begin_alike_and_fit(query, documents):
    for layout in (family(60, second_offset=5000), template(TEMPLATE, 60)):
        pairs = layout.build(query, documents)
        n_common = len(layout.build(query, [""])[0].ids) - (
            1 if layout.__class__ is FamilyLayout else 2
        )
        assert all(len(pair.ids) <= 60 for pair in pairs)
        beginnings = {pair.ids[:n_common].tobytes() for pair in pairs}
        assert len(beginnings) == 1


# Which layout


def header(metadata, tokens=10, types=None):
    base = {"general.architecture": "bert", "tokenizer.ggml.tokens": ["t"] * tokens}
    tensors = {"token_types.weight": TensorInfo((types, 4), "F32")} if types else {}
    return GGUFHeader(base | metadata, tensors, 0)


def chosen(metadata, tokenizer=None, *, causal=False, instruction=None, **rest):
    return choose_layout(
        header(metadata, **rest),
        tokenizer or Letters(),
        Limit(100, "the test"),
        causal=causal,
        instruction=instruction,
    )


def test_the_template_of_the_file_goes_first():
    found = chosen(
        {"tokenizer.chat_template.rerank": TEMPLATE, "tokenizer.ggml.token_type": [1] * 10}
    )
    assert isinstance(found, TemplateLayout)


def test_a_causal_model_without_a_template_is_refused():
    with pytest.raises(GGUFError, match="causal model without a rerank template"):
        chosen({}, causal=True)


def test_an_instruction_for_a_model_without_a_template_is_refused():
    with pytest.raises(UsageError, match="no rerank template"):
        chosen({}, instruction="Look")


@pytest.mark.parametrize(
    ("kind", "metadata", "separator"),
    [
        ("wordpiece", {"tokenizer.ggml.add_sep_token": True}, ()),
        ("unigram", {}, (2,)),
        ("unigram", {"tokenizer.ggml.seperator_token_id": 7}, (7,)),
        ("bpe", {"tokenizer.ggml.pre": "roberta-bpe"}, (2,)),
        ("bpe", {"tokenizer.ggml.pre": "modern-bert"}, ()),
        ("bpe", {"tokenizer.ggml.pre": "roberta-bpe", "tokenizer.ggml.add_sep_token": False}, ()),
        ("bpe", {"tokenizer.ggml.pre": "modern-bert", "tokenizer.ggml.add_sep_token": True}, (2,)),
    ],
)
def test_the_separator_is_the_familys_unless_the_file_says_otherwise(kind, metadata, separator):
    assert chosen(metadata, Letters(kind=kind)).separator == separator


def test_the_second_segments_rows_are_used_where_the_file_has_them():
    assert chosen({SECOND_SEGMENT_KEY: 5}, types=2).second_offset == 5


@pytest.mark.parametrize("offset", [0, 6])
def test_rows_that_cannot_be_there_are_refused(offset):
    with pytest.raises(GGUFError, match=f"is {offset}, and the GGUF has 10 tokens"):
        chosen({SECOND_SEGMENT_KEY: offset})


def test_a_second_segment_that_is_lost_is_warned_of():
    with pytest.warns(UserWarning, match="its scores differ from the reference's"):
        assert chosen({}, types=2).second_offset == 0


def test_a_model_of_one_segment_loses_none():
    assert chosen({}, types=1).second_offset == 0
    assert chosen({}, Letters(kind="unigram"), types=2).second_offset == 0


def test_the_converter_and_the_layout_mean_the_same_key():
    assert common.SECOND_SEGMENT_KEY == SECOND_SEGMENT_KEY
