"""LangChain's text splitters as chunkers: the laws, and offsets that are found again."""

import pytest
from chunk_tokenizers import WordTokenizer
from chunker_contract import ALL_TEXTS, AWKWARD, check_laws
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_text_splitters import (
    CharacterTextSplitter,
    RecursiveCharacterTextSplitter,
    TextSplitter,
)

from corral_chunkers import ChunkerError, Document
from corral_chunkers.text_splitter import TextSplitterChunker

TOKENIZER = WordTokenizer()
SIZE = 30 + TOKENIZER.around


class Shouting(TextSplitter):
    def split_text(self, text):
        return [text.upper()]


class Words(TextSplitter):
    """Pieces that overlap by half."""

    def split_text(self, text):
        return [text[at : at + 40] for at in range(0, len(text), 20)]


def chunker(splitter):
    return TextSplitterChunker(TOKENIZER, splitter, size=SIZE, name="mine")


SPLITTERS = {
    "recursive": lambda: RecursiveCharacterTextSplitter(
        chunk_size=SIZE, chunk_overlap=5, length_function=TOKENIZER.count
    ),
    "separators left out": lambda: RecursiveCharacterTextSplitter(
        chunk_size=40, chunk_overlap=0, keep_separator=False
    ),
    "far too long": lambda: CharacterTextSplitter(chunk_size=10**6, chunk_overlap=0),
    "overlapping": Words,
}


@pytest.mark.parametrize("name", SPLITTERS)
def test_every_text_is_cut_by_the_law(name):
    made = chunker(SPLITTERS[name]())
    for text in ALL_TEXTS.values():
        check_laws(list(made.chunk(Document(text=text, source="a"))), text, TOKENIZER, SIZE)


@pytest.mark.parametrize("name", SPLITTERS)
@settings(deadline=None, max_examples=60)
@given(text=AWKWARD | st.text())
def test_any_text_is_cut_by_the_law(name, text):
    made = chunker(SPLITTERS[name]())
    check_laws(list(made.chunk(Document(text=text, source="a"))), text, TOKENIZER, SIZE)


def test_pieces_are_chunks_where_they_stand():
    text = "One ewe limps. One ewe limps.\n\nThe dog sleeps. One ewe limps."
    splitter = RecursiveCharacterTextSplitter(
        chunk_size=16, chunk_overlap=0, separators=[". ", "\n\n"], keep_separator="end"
    )
    made = list(chunker(splitter).chunk(Document(text=text, source="a")))
    assert [chunk.text for chunk in made] == [
        piece.strip() for piece in splitter.split_text(text) if piece.strip()
    ]
    assert len({chunk.start for chunk in made}) == len(made)


def test_a_chunk_has_the_documents_white_space_where_a_splitter_made_one_blank_of_more():
    text = "word  word\n\nand \n word word  "
    splitter = RecursiveCharacterTextSplitter(
        chunk_size=40, chunk_overlap=0, separators=[" "], keep_separator=False
    )
    assert splitter.split_text(text) != [text.strip()]
    assert [chunk.text for chunk in chunker(splitter).chunk(Document(text=text, source="a"))] == [
        text.strip()
    ]


def test_what_is_left_out_between_pieces_is_kept():
    splitter = CharacterTextSplitter(separator=" -- ", chunk_size=5, chunk_overlap=0)
    made = list(chunker(splitter).chunk(Document(text="sheep -- goats", source="a")))
    assert [chunk.text for chunk in made] == ["sheep", "-- goats"]


def test_a_splitter_that_changes_the_text_is_refused():
    with pytest.raises(ChunkerError, match="the text splitter mine changed the text of a: 'SHEEP"):
        list(chunker(Shouting()).chunk(Document(text="Sheep sleep.", source="a")))


def test_the_splitters_name_is_in_the_settings():
    assert chunker(Shouting()).settings["splitter"] == "mine"
