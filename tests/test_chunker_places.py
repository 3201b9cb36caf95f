"""Where a chunk stands: the headings over it, its page, and the part that it is of."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from corral_chunkers import Document, Heading, Places

TEXT = "intro\nA\none\nA.1\ntwo\nA.2\nthree\nB\nfour\n"


def at(word):
    return TEXT.index(word)


HEADINGS = (
    Heading(at("A\n"), 1, "A"),
    Heading(at("A.1"), 2, "A.1"),
    Heading(at("A.2"), 2, "A.2"),
    Heading(at("B\n"), 1, "B"),
)


def place(word, **fields):
    document = Document(text=TEXT, source="a.md", **fields)
    return Places(document).chunk(at(word), at(word) + len(word), 3)


def test_a_chunk_stands_under_the_headings_over_its_first_character():
    paths = {word: place(word, headings=HEADINGS).heading_path for word in TEXT.split()}
    assert paths["intro"] == ()
    assert paths["A"] == paths["one"] == ("A",)
    assert paths["A.1"] == paths["two"] == ("A", "A.1")
    assert paths["three"] == ("A", "A.2")
    assert paths["four"] == ("B",)


def test_its_parent_is_the_part_under_the_last_heading():
    parents = {word: place(word, headings=HEADINGS).parent for word in TEXT.split()}
    assert parents["intro"] is None
    assert parents["one"] == (at("A\n"), at("B\n"))
    assert parents["two"] == (at("A.1"), at("A.2"))
    assert parents["four"] == (at("B\n"), len(TEXT))


def test_a_heading_with_an_end_holds_no_longer():
    headings = (
        Heading(at("A\n"), 1, "class A", at("B\n")),
        Heading(at("A.1"), 2, "def one", at("A.2")),
    )
    paths = {word: place(word, headings=headings).heading_path for word in TEXT.split()}
    assert paths["two"] == ("class A", "def one")
    assert paths["three"] == ("class A",)
    assert paths["four"] == ()


def test_pages_are_counted_from_one():
    pages = (0, at("A.1"), at("A.2"), at("A.2"), at("B\n"))  # the third is empty
    assert [place(word, pages=pages).page for word in ("intro", "one", "two", "three", "four")] == [
        *(1, 1, 2, 4, 5)
    ]
    assert place("two").page is None
    assert place("intro", pages=(at("A\n"),)).page == 1


def test_the_language_is_the_documents():
    assert place("one", language="de").language == "de"


@given(
    starts=st.sets(st.integers(0, 30), max_size=8),
    levels=st.lists(st.integers(1, 4), min_size=8, max_size=8),
)
def test_the_path_is_what_a_table_of_contents_says(starts, levels):
    document = Document(
        text="x" * 31,
        source="a.md",
        headings=tuple(
            Heading(start, level, str(start))
            for start, level in zip(sorted(starts), levels, strict=False)
        ),
    )
    places = Places(document)
    opened = []
    for offset in range(31):
        for heading in document.headings:
            if heading.start == offset:
                opened = [one for one in opened if one.level < heading.level] + [heading]
        chunk = places.chunk(offset, offset + 1, 1)
        assert chunk.heading_path == tuple(one.text for one in opened)
        assert chunk.heading_path == places.heading_path(offset)
        assert (chunk.parent is None) == (not opened)
        if chunk.parent:
            assert chunk.parent[0] <= offset < chunk.parent[1]
    assert all(a.level < b.level for a, b in pairwise(opened))
