"""A text without paragraphs, sentences and lines: what there is to choose from, and what comes."""

from chunk_tokenizers import WordTokenizer

from corral_chunkers import Document
from corral_chunkers.blocks import read_block
from corral_chunkers.cutting import places_to_cut
from corral_chunkers.prose import Prose
from corral_chunkers.recursive import RecursiveChunker

TEXT = " ".join(f"w{number}" for number in range(4000))
ROOM = 320


def test_there_are_some_thirty_places_to_cut_for_each_chunk():
    block = read_block(TEXT, 0, len(TEXT), WordTokenizer())
    places = places_to_cut(block, Prose(TEXT), 0, len(TEXT), ROOM)
    n_tokens = len(block.starts)
    assert 16 < len(places) / (n_tokens / ROOM) <= 33
    assert all(TEXT[place.at - 1] == " " for place in places[1:-1])


def test_chunks_are_nearly_full_all_the_same():
    chunker = RecursiveChunker(WordTokenizer(), size=ROOM + 2, overlap=0)
    chunks = list(chunker.chunk(Document(text=TEXT, source="x")))
    fill = [(chunk.n_tokens - 2) / ROOM for chunk in chunks[:-2]]
    assert min(fill) > 0.9
