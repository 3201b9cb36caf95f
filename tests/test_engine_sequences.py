"""What the model reads for a text: prefix and special tokens whole, the rest cut where it must."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.engine.sequences import OverLength, SequenceBuilder
from corral.errors import InputTooLongError, UsageError

CLS, SEP, EOS = 1001, 1002, 1003


@dataclass(frozen=True)
class Letters:
    """A token a character."""

    head: tuple[int, ...] = (CLS,)
    tail: tuple[int, ...] = (SEP,)
    eos_id: int | None = EOS

    def encode(self, text):
        starts = np.arange(len(text))
        return self.encode_batch([text])[0], np.stack([starts, starts + 1], axis=1)

    def encode_batch(self, texts):
        return [np.array([ord(letter) for letter in text], dtype=np.int32) for text in texts]


def builder(over_length="truncate", *, prefix="", max_tokens=10, tokenizer=None):
    return SequenceBuilder(
        tokenizer=tokenizer or Letters(),
        prefix=prefix,
        max_tokens=max_tokens,
        limit_source="test.context_length",
        over_length=OverLength.parse(over_length),
    )


def read(piece) -> str:
    names = {CLS: "^", SEP: "$", EOS: "!"}
    return "".join(names.get(number) or chr(number) for number in piece.ids.tolist())


def test_a_text_that_fits_is_wrapped_once():
    (built,) = builder(prefix="q:").build(["abcd"])
    assert [read(piece) for piece in built.pieces] == ["^q:abcd$"]
    assert (built.n_tokens, built.truncated) == (8, False)


@pytest.mark.parametrize(("n", "truncated"), [(7, False), (8, False), (9, True)])
def test_the_limit_counts_special_tokens_and_is_itself_allowed(n, truncated):
    (built,) = builder().build(["x" * n])
    assert built.truncated is truncated
    assert len(built.pieces[0].ids) == min(n + 2, 10)
    assert built.n_tokens == n + 2


def test_truncation_cuts_the_text_alone():
    (built,) = builder(prefix="query: ").build(["abcdef"])
    assert read(built.pieces[0]) == "^query: a$"
    assert (built.n_tokens, built.truncated) == (15, True)


def test_error_names_the_text_its_length_the_limit_and_the_ways_out():
    with pytest.raises(
        InputTooLongError,
        match=r'text 1 has 14 tokens; the model takes 10 \(test.context_length\).*"window"',
    ):
        builder("error").build(["ab", "x" * 12])


def test_windows_overlap_and_each_carries_prefix_and_special_tokens():
    (built,) = builder("window", prefix=">", max_tokens=11).build(["abcdefghijklmno"])
    assert [read(piece) for piece in built.pieces] == ["^>abcdefgh$", "^>hijklmno$"]
    assert [piece.weight for piece in built.pieces] == [8, 8]
    assert (built.n_tokens, built.truncated) == (18, False)


@given(st.integers(1, 200), st.integers(4, 40))
def test_windows_miss_no_token(n, max_tokens):
    text = "".join(chr(0x4E00 + i) for i in range(n))
    (built,) = builder("window", max_tokens=max_tokens).build([text])
    bodies = [read(piece)[1:-1] for piece in built.pieces]
    assert set("".join(bodies)) == set(text)
    assert all(1 <= len(body) <= max_tokens - 2 for body in bodies)
    assert text.startswith(bodies[0])
    assert text.endswith(bodies[-1])
    assert "".join(bodies).count(text[0]) == 1


def test_a_prefix_that_leaves_no_room_is_refused_with_the_numbers():
    with pytest.raises(UsageError, match=r"has 8 tokens and the model adds 2: of 10"):
        builder(prefix="12345678").build(["abc"])


def test_an_empty_text_is_what_the_model_puts_round_it_or_else_an_eos():
    (built,) = builder().build([""])
    assert read(built.pieces[0]) == "^$"
    bare = Letters(head=(), tail=())
    (built,) = builder(tokenizer=bare).build([""])
    assert read(built.pieces[0]) == "!"
    assert built.n_tokens == 1
    assert builder(tokenizer=bare).count("") == 1


def test_count_is_of_the_whole_text():
    assert builder(prefix="q:").count("x" * 50) == 54


def test_an_unknown_policy_is_refused_with_the_choices():
    with pytest.raises(UsageError, match="error, truncate, window"):
        OverLength.parse("chop")
