"""The laws of a Chunker, for every chunker to inherit, ours and strangers'.

class TestMine(ChunkerContract):
    def make(self, tokenizer, *, size, overlap):
        return MyChunker(tokenizer, size=size, overlap=overlap)
"""

import base64
import json
from collections.abc import Iterator

import pytest
from chunk_tokenizers import ByteTokenizer, WordTokenizer, model_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from texts import BLANK_TEXTS, LONE_SURROGATE, TEXTS

from corral_chunkers import ChunkerError, Document

LONG_TEXTS = {
    "prose": "The wire is live. Walk along it! Is it sagging?\n" * 300,
    "paragraphs": "One of the ewes limps.\nShe is the old one.\n\n" * 200,
    "CRLF": "first line\r\nsecond line\r\n\r\nthird line\r\n" * 200,
    "YAML": "".join(f"key_{i}:\n  - name: value-{i}\n    port: {6333 + i}\n" for i in range(200)),
    "URLs": "".join(f"https://example.org/a/{i}?q=x%20y&z={i * i}#part\n" for i in range(200)),
    "base64": base64.b64encode(bytes(range(256)) * 40).decode(),
    "minified JSON": json.dumps([{"id": i, "tags": ["a", "bé"]} for i in range(300)]),
    "dot leaders": "".join(f"Chapter {i} {'.' * 80} {i * 7}\n" for i in range(100)),
    "CJK": "人人生而自由\uff0c在尊严和权利上一律平等。他们赋有理性和良心" * 100,
    "Thai": TEXTS["Thai"] * 60,
    "emoji": "👨\u200d👩\u200d👧\u200d👦🇩🇪🇰🇷5️⃣👍🏽" * 100,
    "combining marks": "e\u0301\u0323o\u0308 " * 500,
    "marks without end": "a" + "\u0301" * 2000,
    "right to left": TEXTS["Arabic"] * 30,
    "one word": "x" * 5000,
    "white space": "start" + " \t\n" * 3000 + "end",
    "blank lines of many kinds": "a\x0cb\x0b\x0bc\x85\x85d\u2028e\u2029f\x1c\x1dg" * 100,
}
ALL_TEXTS = {**TEXTS, **LONG_TEXTS, "lone surrogate": LONE_SURROGATE}

CHARACTERS_PER_TOKEN = 200
"""Of a text that is cut: some fifty chunks of any size tell as much as thousands of small ones."""

FRAGMENTS = [
    *("word", "identifier_of_some_length", " ", "  ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", ". "),
    *(
        "! ",
        "。",
        "\uff0c",
        "人人生而",
        "ทั้งหลาย",
        "e\u0301",
        "\u0301",
        "👨\u200d👩\u200d👧",
        "🇩🇪",
        "🇩",
    ),
    *("\u200b", "\u00ad", "\ufeff", "\x00", "\ud83d", "שלום", "\u202e", "....", "[SEP]", "</s>"),
    *('{"a":1,"b":[2]}', "https://example.org/?q=1", "한국어", "\u1112\u1161", "\x1c", "\u2029"),
]
AWKWARD = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), max_size=60).map("".join)


def document(text):
    return Document(text=text, source="a.txt")


def check_laws(chunks, text, tokenizer, size):
    """The law of corral_chunkers.Chunker."""
    covered, previous = 0, -1
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
        assert chunk.n_tokens == tokenizer.count(chunk.context + chunk.text)
        assert chunk.n_tokens <= size
        assert chunk.start > previous
        assert not text[covered : chunk.start].strip()
        covered, previous = max(covered, chunk.end), chunk.start
    assert not text[covered:].strip()


class ChunkerContract:
    """Inherit, and make the chunker."""

    format = "text"
    """Of the documents that it is given."""

    def document(self, text):
        return Document(text=text, source="a.txt", format=self.format)

    def make(self, tokenizer, *, size, overlap):
        raise NotImplementedError

    @pytest.fixture(scope="class", params=["words", "bytes", "minilm"])
    @classmethod
    def tokenizer(cls, request):
        if request.param == "minilm":
            return model_tokenizer(request.getfixturevalue("minilm_path"))
        return {"words": WordTokenizer, "bytes": ByteTokenizer}[request.param]()

    @pytest.mark.parametrize("room", [4, 30, 254])
    @pytest.mark.parametrize("share", [0, 2], ids=["no overlap", "a half"])
    def test_every_text_is_cut_by_the_law(self, tokenizer, room, share):
        size = room + tokenizer.around
        overlap = room // share if share else 0
        chunker = self.make(tokenizer, size=size, overlap=overlap)
        for whole in ALL_TEXTS.values():
            text = whole[: CHARACTERS_PER_TOKEN * room]
            check_laws(list(chunker.chunk(self.document(text))), text, tokenizer, size)

    @settings(
        deadline=None, max_examples=60, suppress_health_check=[HealthCheck.differing_executors]
    )
    @given(data=st.data(), text=AWKWARD, room=st.integers(4, 40))
    def test_any_text_is_cut_by_the_law(self, tokenizer, data, text, room):
        size = room + tokenizer.around
        overlap = data.draw(st.integers(0, room // 2))
        chunker = self.make(tokenizer, size=size, overlap=overlap)
        check_laws(list(chunker.chunk(self.document(text))), text, tokenizer, size)

    def test_a_line_of_200_kb_is_cut_by_the_law(self, tokenizer):
        text = "corral " * 28_600
        size = 254 + tokenizer.around
        chunks = list(self.make(tokenizer, size=size, overlap=20).chunk(self.document(text)))
        assert len(chunks) > 50
        check_laws(chunks, text, tokenizer, size)

    def test_the_same_document_gives_the_same_chunks(self, tokenizer):
        size = 30 + tokenizer.around
        for whole in ALL_TEXTS.values():
            text = whole[: CHARACTERS_PER_TOKEN * size]
            first = self.make(tokenizer, size=size, overlap=5)
            second = self.make(tokenizer, size=size, overlap=5)
            assert list(first.chunk(self.document(text))) == list(second.chunk(self.document(text)))

    def test_white_space_alone_gives_no_chunk(self, tokenizer):
        chunker = self.make(tokenizer, size=20, overlap=0)
        blank = [text for text in BLANK_TEXTS.values() if not text.strip()]
        assert len(blank) >= 4
        assert [chunk for text in blank for chunk in chunker.chunk(self.document(text))] == []

    def test_chunks_come_one_at_a_time(self, tokenizer):
        chunks = self.make(tokenizer, size=20, overlap=0).chunk(document("some words"))
        assert isinstance(chunks, Iterator)

    def test_the_settings_tell_size_and_overlap_apart(self, tokenizer):
        made = [
            self.make(tokenizer, size=size, overlap=overlap)
            for size, overlap in ((20, 0), (20, 4), (30, 4))
        ]
        assert len({json.dumps(dict(chunker.settings), sort_keys=True) for chunker in made}) == 3

    def test_a_size_without_room_for_text_is_refused_with_the_numbers(self, tokenizer):
        with pytest.raises(ChunkerError) as error:
            self.make(tokenizer, size=tokenizer.around, overlap=0)
        assert str(tokenizer.around) in str(error.value)
