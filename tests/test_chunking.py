"""Chunks by structure, in other units, with headings before them, and as `corral chunk` shows."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import tiktoken
import tiny_models
from click.testing import CliRunner

from corral import GGUFEmbeddings, size_units
from corral.chunking import ModelTokenizer, make_chunker
from corral.cli import corral
from corral.errors import CollectionError, UsageError
from corral.ingest import IngestOptions, ingest
from corral.readers.markdown import markdown_document
from corral_chunkers import Document
from corral_chunkers.headings import wiki_headings
from corral_sinks import SinkOptions
from corral_sinks.qdrant import connect

BERT = tiny_models.bert()
SENTENCES = ("The flock went up the hill.", "Rain came in the night!", "Who closed the gate?",
             "The dog sleeps.", "She mends the wall.")  # fmt: skip
MARKDOWN = """# Sheep

The flock went up the hill. Rain came in the night!

## Fences

| wire | volts |
| --- | --- |
| low | 3000 |
| high | 9000 |

Who closed the gate? The dog sleeps.

```python
def close(gate):
    gate.shut = True

    return gate
```

- She mends the wall.
- The dog sleeps.
"""
PYTHON = '''"""Sheep."""

import os


class Flock:
    """Some sheep."""

    def count(self):
        """Count them."""
        return len(self.sheep)

    def shear(self, day):
        """Take the wool."""
        return [sheep.wool for sheep in self.sheep if sheep.day == day]


def main():
    return Flock().count()
'''


@pytest.fixture(scope="module")
def embeddings():
    with GGUFEmbeddings(BERT.path) as opened:
        yield opened


def cut(embeddings, text, *, format="text", context="none", **options):  # noqa: A002 - the document's name for it
    document = Document(text=text, source="a", format=format)
    chunks = list(make_chunker(embeddings, context=context, **options).chunk(document))
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    return chunks


def of_one_chunk(chunks, part):
    return any(part in chunk.text for chunk in chunks)


# Structure


@pytest.mark.parametrize("size", [48, 60, 80])
def test_blocks_of_markdown_stay_whole_where_they_fit(embeddings, size):
    chunks = cut(embeddings, MARKDOWN, format="markdown", size=size)
    assert len(chunks) > 1
    table = MARKDOWN[MARKDOWN.index("| wire") : MARKDOWN.index("Who closed")].strip()
    fence = MARKDOWN[MARKDOWN.index("```") : MARKDOWN.rindex("```") + 3]
    for block in (table, fence):
        if embeddings.sequences("").count(block) <= size:
            assert of_one_chunk(chunks, block)


def test_a_chunk_of_markdown_knows_its_headings_and_no_heading_stands_alone(embeddings):
    chunks = cut(embeddings, MARKDOWN, format="markdown", size=60)
    paths = {chunk.text.splitlines()[0]: chunk.heading_path for chunk in chunks}
    assert paths["# Sheep"] == ("Sheep",)
    (fences,) = [chunk for chunk in chunks if chunk.text.startswith("## Fences")]
    assert fences.heading_path == ("Sheep", "Fences")
    assert len(fences.text.splitlines()) > 2
    assert chunks[-1].heading_path == ("Sheep", "Fences")


def test_functions_stay_whole_and_know_what_encloses_them(embeddings):
    chunks = cut(embeddings, PYTHON, format="python", size=90)
    shear = PYTHON[PYTHON.index("    def shear") : PYTHON.index("\n\ndef main")].strip()
    (found,) = [chunk for chunk in chunks if shear in chunk.text]
    assert found.heading_path[0] == "class Flock"
    assert of_one_chunk(chunks, "def main():\n    return Flock().count()")


@pytest.mark.parametrize("name", ["recursive", "auto"])
def test_an_inserted_paragraph_changes_the_chunks_near_it_alone(embeddings, name):
    draw = random.Random(1)
    paragraphs = [
        " ".join(draw.choice(SENTENCES) for _ in range(draw.randint(1, 6))) for _ in range(120)
    ]
    before = cut(embeddings, "\n\n".join(paragraphs), name=name, size=100)
    assert len(before) > 60
    paragraphs.insert(3, "A new shepherd came over the hill, with a dog that nobody knew.")
    after = cut(embeddings, "\n\n".join(paragraphs), name=name, size=100)
    remaining = [chunk.text for chunk in before]
    changed = 0
    for chunk in after:
        if chunk.text in remaining:
            remaining.remove(chunk.text)
        else:
            changed += 1
    assert changed <= 10


# Units


def bytes_and_pairs():
    """An encoding of single bytes and a few pairs."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {pair: 256 + i for i, pair in enumerate((b"th", b"he", b"in", b" t"))}
    return tiktoken.Encoding(
        "small", pat_str=r"\s?\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|end|>": 300}
    )


ODD = {
    "yaml": "\n".join(f"key_{i}: {{a: [{i}, {i * 7}], b: 'v{i}'}}" for i in range(200)),
    "urls": "\n".join(f"https://example.org/a/{i}?q={i * 31}&r=%20{i}" for i in range(200)),
    "json": json.dumps({f"k{i}": [i] * 5 for i in range(200)}, separators=(",", ":")),
    "dots": "\n".join(f"Chapter {i} {'.' * 60} {i}" for i in range(200)),
    "control": "<|end|> " * 200,
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("size", [40, 700])
def test_a_size_in_another_unit_holds_and_so_does_the_models_limit(
    embeddings, monkeypatch, kind, size
):
    encoding = bytes_and_pairs()
    monkeypatch.setattr(size_units.tiktoken, "get_encoding", lambda _: encoding)
    text = ODD[kind]
    chunks = cut(embeddings, text, size=size, unit="tiktoken:cl100k_base")
    unit, model = size_units.load_unit("tiktoken:cl100k_base"), ModelTokenizer(embeddings)
    assert max(unit.count(chunk.text) for chunk in chunks) <= size
    assert max(chunk.n_tokens for chunk in chunks) <= embeddings.max_tokens
    assert [chunk.n_tokens for chunk in chunks] == [model.count(chunk.text) for chunk in chunks]
    assert "".join("".join(chunk.text for chunk in chunks).split()) == "".join(text.split())


def test_offsets_of_a_unit_are_those_of_its_tokens(monkeypatch):
    encoding = bytes_and_pairs()
    monkeypatch.setattr(size_units.tiktoken, "get_encoding", lambda _: encoding)
    text = "the inn, thé"
    ids, offsets = size_units.load_unit("tiktoken:cl100k_base").encode(text)
    assert ids.tolist() == encoding.encode(text)
    assert [text[start:end] for start, end in offsets[:3]] == ["th", "e", " "]
    assert offsets[-1][1] == len(text)


@pytest.mark.parametrize("name", ["cl100k_base", "tiktoken:nothing"])
def test_a_unit_that_is_not_there(name):
    with pytest.raises(UsageError, match=r"there are model \(the default\), and tiktoken: with"):
        size_units.load_unit(name)


def test_a_unit_whose_file_is_nowhere(monkeypatch):
    def get_encoding(_):
        raise OSError("no network")

    monkeypatch.setattr(size_units.tiktoken, "get_encoding", get_encoding)
    with pytest.raises(UsageError, match=r"as 9b5ad71b2ce5.*TIKTOKEN_CACHE_DIR.*own tokens"):
        size_units.load_unit("tiktoken:cl100k_base")


# Context


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "sheep.md").write_text(MARKDOWN)
    return root


@pytest.fixture
def target(tmp_path):
    return SinkOptions(collection="docs", path=str(tmp_path / "db"))


def run(folder, target, **options):
    settings = {"model": str(BERT.path), "chunk_size": 60, "isolate": False, **options}
    return ingest(
        IngestOptions(paths=[folder], target=target, **settings), progress=lambda *_, **__: None
    )


def test_headings_are_read_before_a_chunk_and_not_stored_in_it(folder, target, embeddings):
    report = run(folder, target)
    with connect(path=target.path) as client:
        points, _ = client.scroll("docs", limit=100, with_vectors=True)
    assert len(points) == report.embedded > 2
    text = (folder / "sheep.md").read_text()
    for point in points:
        metadata = point.payload["metadata"]
        stored = point.payload["page_content"]
        assert text[metadata["start"] : metadata["end"]] == stored
        read = metadata.get("context", "") + stored
        assert np.allclose(point.vector["dense"], embeddings.embed([read])[0], atol=1e-4)
        assert metadata["n_tokens"] == embeddings.sequences("").count(read) <= 60
    assert any("Fences" in point.payload["metadata"].get("context", "") for point in points)
    assert run(folder, target).embedded == 0


def test_chunks_with_and_without_context_do_not_mix(folder, target):
    run(folder, target)
    with pytest.raises(CollectionError, match=r"chunker\.context"):
        run(folder, target, context="none")


@pytest.mark.parametrize(
    ("options", "context"),
    [
        ({}, "Sheep > Fences\n\n"),
        ({"context": "headings"}, "Sheep > Fences\n\n"),
        ({"name": "tokens"}, "Sheep > Fences\n\n"),
        ({"context": "none"}, ""),
        ({"late": True}, ""),
    ],
)
def test_headings_are_read_before_a_chunk_but_where_the_document_is(embeddings, options, context):
    chunker = make_chunker(embeddings, size=60, **options)
    *_, last = chunker.chunk(markdown_document(MARKDOWN, "a"))
    assert last.heading_path == ("Sheep", "Fences")
    assert last.context == context


class Lines:
    """A chunker of another's, that knows of no contexts."""

    def __init__(self, tokenizer, *, size, overlap):
        pass


def test_a_chunker_that_knows_no_contexts_is_taken_without(embeddings, monkeypatch):
    monkeypatch.setattr("corral.chunking.load_chunker", lambda _: Lines)
    assert isinstance(make_chunker(embeddings, name="lines"), Lines)
    with pytest.raises(UsageError, match="'lines' puts no context before its chunks"):
        make_chunker(embeddings, name="lines", context="headings")


def test_a_title_that_is_a_heading_stands_over_its_own_part_alone(embeddings):
    document = Document(
        text=f"# Sheep\n\n{' '.join(SENTENCES[:2])}\n\n# Goats\n\n{' '.join(SENTENCES[2:])}\n",
        source="a",
        format="markdown",
        title="Sheep",
    )
    chunker = make_chunker(embeddings, size=44)
    for title, contexts in (
        ("Sheep", {"Sheep\n\n", "Goats\n\n"}),
        ("Farm", {"Farm > Sheep\n\n", "Farm > Goats\n\n"}),
    ):
        found = chunker.chunk(replace(document, title=title))
        assert {chunk.context for chunk in found} == contexts


WIKI = " = Sheep = \n They graze . \n = = Wool = = \n It is shorn in June . \n=== no ==\n"


@pytest.mark.parametrize("format", ["markdown", "text"])
def test_headings_of_a_wiki_are_found_in_a_text_that_has_no_others(embeddings, format):  # noqa: A002 - the document's name for it
    chunks = cut(embeddings, WIKI, format=format, size=40)
    assert [(chunk.start, chunk.heading_path) for chunk in chunks] == [
        (1, ("Sheep",)),
        (WIKI.index("= = Wool"), ("Sheep", "Wool")),
    ]
    mixed = cut(embeddings, "# Goats\n" + WIKI, format="markdown", size=200)
    assert {chunk.heading_path for chunk in mixed} == {("Goats",)}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("= A =", (1, "A")),
        ("====== a = b ======", (6, "a = b")),
        ("\t==A==  \r", (2, "A")),
        ("= A", None),
        ("== A =", None),
        ("======= A =======", None),
        ("= =", None),
        ("=====", None),
        ("= " + "a" * 300 + " =", None),
        ("x = 1 =", None),
    ],
)
def test_a_wikis_heading_stands_between_as_many_signs_on_both_sides(line, found):
    (one,) = wiki_headings("first\n" + line + "\nlast\n") or (None,)
    assert one is None if found is None else (one.level, one.text) == found


def test_context_and_late_chunking_do_not_go_together(embeddings):
    with pytest.raises(UsageError, match="Leave one of them out"):
        make_chunker(embeddings, context="headings", late=True)


# corral chunk


def chunk_file(*arguments):
    return CliRunner().invoke(corral, ["chunk", *map(str, arguments), "--model", str(BERT.path)])


def test_chunks_are_printed_as_json(folder):
    result = chunk_file(folder / "sheep.md", "--chunk-size", 60, "--json")
    assert result.exit_code == 0
    chunks = [json.loads(line) for line in result.output.splitlines()]
    assert len(chunks) > 2
    for chunk in chunks:
        assert MARKDOWN[chunk["start"] : chunk["end"]] == chunk["text"]
        assert chunk["n_tokens"] <= 60
    assert chunks[-1]["heading_path"] == ["Sheep", "Fences"]


def test_chunks_are_printed_for_a_person(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("The flock\x1b[31m went up the hill.")
    result = chunk_file(file)
    assert result.exit_code == 0
    assert "0  0-" in result.output
    assert "\\x1b[31m" in result.output
    assert "\x1b[31m" not in result.output
