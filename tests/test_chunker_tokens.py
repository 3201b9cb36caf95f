"""The chunker `tokens`: the laws, and where it cuts."""

import tracemalloc
from itertools import islice, pairwise

import pytest
import regex
from chunk_tokenizers import ByteTokenizer, Spy, WordTokenizer, model_tokenizer
from chunker_contract import ALL_TEXTS, AWKWARD, LONG_TEXTS, ChunkerContract, document
from hypothesis import given, settings
from hypothesis import strategies as st

from corral_chunkers import ChunkerError, Encoding
from corral_chunkers.breaks import best_break, cluster_start, word_start
from corral_chunkers.tokens import TokensChunker


class TestTokens(ChunkerContract):
    def make(self, tokenizer, *, size, overlap):
        return TokensChunker(tokenizer, size=size, overlap=overlap)


def cut(text, size, overlap=0, tokenizer=None):
    tokenizer = tokenizer or WordTokenizer(around=0)
    return list(TokensChunker(tokenizer, size=size, overlap=overlap).chunk(document(text)))


def texts(text, size, overlap=0):
    return [chunk.text for chunk in cut(text, size, overlap)]


def test_a_text_that_fits_is_one_chunk_without_the_white_space_around_it():
    (chunk,) = cut(" \r\n One two. \n\n Three.\t", size=6)
    assert (chunk.text, chunk.start, chunk.end) == ("One two. \n\n Three.", 4, 22)
    assert chunk.n_tokens == 6  # One, two, ".", Thre, e, "."


def test_prefix_and_special_tokens_count_into_the_size():
    text = "a b c d e f"
    assert [c.n_tokens for c in cut(text, size=3, tokenizer=WordTokenizer(around=0))] == [3, 3]
    assert [c.n_tokens for c in cut(text, size=5, tokenizer=WordTokenizer(around=2))] == [5, 5]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a b c d e f\n\ng h. i\nj k l", "a b c d e f"),  # a paragraph before all else
        ("a b c d e f\r\n \r\ng h. i\nj k l", "a b c d e f"),
        ("a b c d e f\u2029g h. i\nj k l", "a b c d e f"),
        ("a b c d e f. G h\ni j k l m", "a b c d e f."),  # a sentence before a line
        ("a b c d e f?” G h\ni j k l m", "a b c d e f?”"),
        ("a b c d e f g\nh i j k l", "a b c d e f g"),  # a line before a word
        ("a b c d e f g\r\nh i j k l", "a b c d e f g"),
        ("a b c d e f g h i j k l", "a b c d e f g h i j"),  # the last of equal ones
        ("a b c d e f. G h. I j k l", "a b c d e f. G h."),
        ("a b. C d e f g h i j k l m", "a b. C d e f g h i"),  # none in the last third
        ("a b c d e f. g h i j k l m", "a b c d e f. g h i"),  # "e.g. this" goes on
        ("a b c d e f\n1. G h i j k l m", "a b c d e f"),  # a list's number is no sentence
    ],
)
def test_it_cuts_at_the_best_place_in_the_last_third(text, first):
    assert texts(text, size=10)[0] == first


def test_sentences_of_scripts_without_spaces_end_at_their_stops():
    text = "人人。生而自由平等。他们赋有理性和良心"
    tokenizer = ByteTokenizer()
    (first, *_) = cut(text, size=tokenizer.around + 3 * 12, tokenizer=tokenizer)
    assert first.text == "人人。生而自由平等。"


def test_where_there_is_no_white_space_words_stay_whole():
    text = '{"identifier":1,"another_one":2,"the_third_of_them":3}'
    pieces = texts(text, size=12)
    names = ("identifier", "another_one", "the_third_of_them")
    assert len(pieces) > 1
    assert all(any(name in piece for piece in pieces) for name in names)


def test_half_of_crlf_is_never_left_in_a_chunk():
    chunks = cut("ab cd\r\n" * 50, size=4)
    assert len(chunks) > 20
    assert not any(chunk.text.startswith("\n") or chunk.text.endswith("\r") for chunk in chunks)


def boundaries(text):
    return {0, len(text)} | {found.end() for found in regex.finditer(r"\X", text)}


@pytest.mark.parametrize("name", ["emoji", "combining marks", "Thai", "CRLF"])
def test_no_grapheme_cluster_that_fits_is_cut(name, minilm_path):
    text = LONG_TEXTS[name]
    whole = boundaries(text)
    for tokenizer in (WordTokenizer(), ByteTokenizer(), model_tokenizer(minilm_path)):
        chunks = cut(text, size=60, overlap=10, tokenizer=tokenizer)
        assert len(chunks) > 1 or tokenizer.count(text) <= 60 or name == "Thai"
        assert {at for chunk in chunks for at in (chunk.start, chunk.end)} <= whole


@given(text=AWKWARD)
@settings(deadline=None)
def test_chunks_have_no_white_space_around_them_and_each_brings_something_new(text):
    chunks = cut(text, size=12, overlap=6)
    assert all(chunk.text == chunk.text.strip() for chunk in chunks)
    assert all(before.end < after.end for before, after in pairwise(chunks))


def test_a_cluster_that_does_not_fit_is_cut_between_its_characters():
    family = "👨\u200d👩\u200d👧"
    chunks = cut(family, size=3 + 8, tokenizer=ByteTokenizer())
    assert "".join(chunk.text for chunk in chunks) == family
    assert len(chunks) > 1


def test_a_character_that_does_not_fit_is_refused_with_the_numbers():
    with pytest.raises(ChunkerError) as error:
        cut("ab 人", size=5, tokenizer=ByteTokenizer())
    for part in ("U+4EBA", "offset 3", "a.txt", "makes 6 tokens", "size is 5", "at least 6"):
        assert part in str(error.value)


@pytest.mark.parametrize(("size", "overlap"), [(12, -1), (12, 6), (12, 12), (5, 2)])
def test_an_overlap_of_more_than_half_a_chunk_is_refused_with_the_numbers(size, overlap):
    with pytest.raises(ChunkerError) as error:
        TokensChunker(WordTokenizer(around=2), size=size, overlap=overlap)
    assert f"overlap of {overlap} tokens" in str(error.value)
    assert f"between 0 and {(size - 2) // 2}" in str(error.value)


def test_a_chunk_repeats_the_last_words_of_the_one_before():
    text = " ".join(f"w{i}" for i in range(30))
    chunks = cut(text, size=10, overlap=3)
    assert len(chunks) == 4
    for before, after in pairwise(chunks):
        assert before.text.split()[-3:] == after.text.split()[:3]


def test_an_overlap_starts_at_a_word_and_not_inside_one():
    chunks = cut("abcdefgh " * 40, size=10, overlap=3)  # two tokens a word
    assert len(chunks) > 5
    for before, after in pairwise(chunks):
        assert after.text.startswith("abcdefgh")
        assert after.start == before.end - len("abcdefgh")


def test_an_overlap_never_exceeds_what_was_asked_for(minilm_path):
    tokenizer = model_tokenizer(minilm_path)
    for name in ("prose", "paragraphs", "YAML", "CJK", "right to left"):
        text = LONG_TEXTS[name]
        chunks = cut(text, size=64, overlap=16, tokenizer=tokenizer)
        repeats = [text[b.start : a.end] for a, b in pairwise(chunks) if b.start < a.end]
        assert len(repeats) > 3
        assert all(tokenizer.count(repeat) - tokenizer.around <= 16 for repeat in repeats)


def test_without_overlap_no_character_stands_in_two_chunks():
    for text in ALL_TEXTS.values():
        assert all(a.end <= b.start for a, b in pairwise(cut(text, size=9)))


def test_chunks_of_prose_use_most_of_the_size(minilm_path):
    tokenizer = model_tokenizer(minilm_path)
    chunks = cut(LONG_TEXTS["prose"], size=128, tokenizer=tokenizer)
    assert len(chunks) > 20
    assert min(chunk.n_tokens for chunk in chunks[:-1]) > 128 * 2 // 3


def test_a_long_line_is_tokenised_as_its_chunks_are_asked_for():
    spy = Spy(WordTokenizer())
    chunks = TokensChunker(spy, size=256, overlap=32).chunk(document("corral " * 1_000_000))
    assert spy.n_encodes == 0
    assert len(list(islice(chunks, 3))) == 3
    assert spy.n_encodes == 1
    assert spy.longest <= 16_384


def test_memory_does_not_grow_with_the_document():
    chunker = TokensChunker(WordTokenizer(), size=64, overlap=0)
    peaks = []
    for n_words in (8_000, 32_000):
        whole = document("corral " * n_words)
        tracemalloc.start()
        n_chunks = sum(1 for _ in chunker.chunk(whole))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert n_chunks > 200
    assert peaks[1] < 1.15 * peaks[0]


def test_prose_is_counted_about_once_a_chunk():
    spy = Spy(WordTokenizer())
    chunks = cut(LONG_TEXTS["prose"], size=64, tokenizer=spy)
    assert spy.n_counts <= 1.1 * len(chunks) + 1


class Swelling:
    """A tokenizer that finds more tokens in a text the less of it there is in front of one."""

    def __init__(self, swell):
        self.swell = swell

    def encode(self, text):
        return Encoding(*WordTokenizer().encode(text))

    def count(self, text):
        return WordTokenizer(around=0).count(text) * self.swell if text else 0


def test_chunks_that_tokenise_to_more_than_their_part_of_the_whole_are_cut_smaller():
    chunks = cut("abcd " * 100, size=30, overlap=15, tokenizer=Swelling(3))
    assert max(chunk.n_tokens for chunk in chunks) == 30
    assert sum(chunk.text.count("abcd") for chunk in chunks) >= 100


class OneOffset(WordTokenizer):
    """Tells where the first token stands and keeps the others to itself."""

    def encode(self, text):
        return Encoding(*(column[:1] for column in WordTokenizer().encode(text)))

    def count(self, text):
        return WordTokenizer(around=0).count(text)


def test_a_text_whose_tokens_have_no_offsets_to_cut_at_is_halved():
    chunks = cut("abcd " * 64, size=10, tokenizer=OneOffset())
    assert chunks[0].n_tokens == 7
    assert all(chunk.n_tokens <= 10 for chunk in chunks)
    assert sum(chunk.text.count("abcd") for chunk in chunks) == 64


@given(text=AWKWARD, data=st.data())
@settings(deadline=None)
def test_breaks_lie_between_clusters_and_inside_their_limits(text, data):
    text = "a" + text + "b"
    low = data.draw(st.integers(0, len(text) - 1))
    high = data.draw(st.integers(low + 1, len(text)))
    whole = boundaries(text)
    found = best_break(text, low, high)
    assert found is None or (low < found <= high and found in whole)
    start = cluster_start(text, low, high)
    assert low < start <= high
    assert start in whole or not whole.intersection(range(low + 1, high + 1))
    assert low <= word_start(text, low, high) <= high
