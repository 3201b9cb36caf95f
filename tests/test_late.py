"""Late chunking: a chunk's vector is pooled from its own rows of a pass over its document."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import Shape

from corral import GGUFEmbeddings
from corral.discovery import SourceFile
from corral.errors import CollectionError, PoolingError
from corral.ingest import IngestOptions, ingest
from corral.late import LateEmbedder, window_start
from corral.prepare import Pending
from corral.search import search
from corral_chunkers import Chunk, Document
from corral_sinks import SinkOptions
from corral_sinks.qdrant import connect

BERT = tiny_models.bert()
QWEN3 = tiny_models.qwen3(shape=Shape(n_ctx_train=256))
MODELS = {"mean": BERT, "last": QWEN3}
TEXT = (
    "  The flock went up the hill. Rain came in the night!\n\nWho closed the gate? The dog sleeps. "
)
SENTENCES = ("The flock went up the hill.", "Rain came in the night!", "Who closed the gate?",
             "The dog sleeps.")  # fmt: skip


def pendings(text, pieces, *, repeats=1):
    """Give the chunks of a document, each text found behind the one before."""
    document, at, found = Document(text=text, source="a.txt"), 0, []
    for piece in pieces * repeats:
        start = text.index(piece, at)
        at = start + len(piece)
        chunk = Chunk(text=piece, start=start, end=at, n_tokens=0)
        found.append(Pending(SourceFile(Path("a.txt"), "a.txt"), document, chunk, "", {}))
    return found


def late(model, batch, **options):
    with GGUFEmbeddings(model.path, token_rows=True, **options) as embeddings:
        return LateEmbedder(embeddings).embed(batch)


def dense(results):
    assert [result.defect for result in results] == [None] * len(results)
    return np.stack([result.vectors["dense"] for result in results])


def token_rows(model, text):
    """The rows of a text, and the offsets of its tokens, by a model opened for nothing else."""
    with pytest.warns(UserWarning, match="overrides"):
        embeddings = GGUFEmbeddings(model.path, pooling_type="none")
    with embeddings:
        tokenizer = embeddings.tokenizer
        return embeddings.embed([text])[0], tokenizer.encode(text).offsets, len(tokenizer.head)


@pytest.mark.parametrize("kind", ["mean", "cls", "last"])
def test_vectors_pooled_from_token_rows_are_the_models_own(kind):
    model = QWEN3 if kind == "last" else tiny_models.bert(pooling=kind)
    texts = [*SENTENCES, TEXT * 3, ""]
    options = {"document_prefix": "Rain: ", "dim": 48, "force_dim": True}
    with (
        GGUFEmbeddings(model.path, **options) as plain,
        GGUFEmbeddings(model.path, token_rows=True, **options) as pooled,
    ):
        assert pooled.settings == plain.settings
        assert np.allclose(pooled.embed(texts), plain.embed(texts), atol=1e-5)
        assert np.allclose(pooled.embed_query("dog"), plain.embed_query("dog"), atol=1e-5)


def test_a_model_opened_without_token_rows_gives_none():
    with GGUFEmbeddings(BERT.path) as embeddings, pytest.raises(PoolingError, match="token_rows"):
        embeddings.rows_of([np.array([1, 2], dtype=np.int32)])


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("prefix", ["", "Rain: "])
def test_a_document_of_one_chunk_has_the_plain_vector(kind, prefix):
    with GGUFEmbeddings(MODELS[kind].path, document_prefix=prefix) as plain:
        expected = plain.embed([TEXT.strip()])
    found = dense(late(MODELS[kind], pendings(TEXT, (TEXT.strip(),)), document_prefix=prefix))
    assert np.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_a_chunk_is_pooled_from_its_own_rows(kind):
    batch = pendings(TEXT, SENTENCES)
    body = TEXT.strip()
    rows, offsets, n_head = token_rows(MODELS[kind], body)
    shift = len(TEXT) - len(TEXT.lstrip())
    expected = []
    for number, pending in enumerate(batch):
        start, end = pending.chunk.start - shift, pending.chunk.end - shift
        own = [
            n_head + i for i, (first, last) in enumerate(offsets) if first < end and last > start
        ]
        first = 0 if number == 0 else own[0]
        stop = len(rows) if number == len(batch) - 1 else own[-1] + 1
        pooled = rows[first:stop].mean(axis=0) if kind == "mean" else rows[stop - 1]
        expected.append(pooled / np.linalg.norm(pooled))
    found = dense(late(MODELS[kind], batch))
    assert np.allclose(found, expected, atol=1e-5)
    with GGUFEmbeddings(MODELS[kind].path) as plain:
        alone = plain.embed([pending.chunk.text for pending in batch])
    assert not np.allclose(found[1], alone[1], atol=1e-3)  # it knows of its document


@pytest.mark.parametrize("kind", MODELS)
def test_a_long_document_goes_through_in_windows(kind):
    model = MODELS[kind]
    text = TEXT * 30
    batch = pendings(text, SENTENCES, repeats=30)
    with GGUFEmbeddings(model.path, token_rows=True) as embeddings:
        assert len(embeddings.tokenizer.encode(text).ids) > 2 * embeddings.max_tokens
        embedder = LateEmbedder(embeddings)
        together = embedder.embed(batch)
        vectors = dense(together)
        alone = dense([*embedder.embed(batch[57:58]), *embedder.embed(batch[100:101])])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.allclose(vectors[[57, 100]], alone, atol=1e-5)  # whichever others want a vector
    assert not any(result.truncated for result in together)


def test_the_prefix_stands_before_every_window():
    text = TEXT * 30
    batch = pendings(text, SENTENCES, repeats=30)
    with GGUFEmbeddings(BERT.path, token_rows=True, document_prefix="Rain: ") as embeddings:
        seen = []
        rows_of = embeddings.rows_of
        embeddings.rows_of = lambda sequences: seen.extend(sequences) or rows_of(sequences)
        LateEmbedder(embeddings).embed(batch)
        start = [*embeddings.tokenizer.head, *embeddings.tokenizer.encode("Rain:").ids]
        longest = embeddings.max_tokens
    assert len(seen) > 3
    assert all(sequence[: len(start)].tolist() == start for sequence in seen)
    assert max(map(len, seen)) == longest


def test_a_document_that_begins_with_its_prefix_gets_none():
    text = "Rain: " + TEXT.strip()
    with GGUFEmbeddings(BERT.path, document_prefix="Rain: ") as plain:
        expected = plain.embed([text])
    found = dense(late(BERT, pendings(text, (text,)), document_prefix="Rain: "))
    assert np.allclose(found, expected, atol=1e-5)


def test_a_document_of_which_the_model_sees_nothing_has_the_plain_vector():
    unseen = "\u0001\u0002"
    batch = pendings(unseen, (unseen,))
    with GGUFEmbeddings(BERT.path) as plain:
        expected = plain.embed([unseen])
    found = dense(late(BERT, batch))
    assert np.allclose(found, expected, atol=1e-5)


def test_a_chunk_over_the_models_limit_is_told_of():
    text = TEXT * 80
    (result,) = late(BERT, pendings(text, (text.strip(),)))
    assert result.truncated
    assert result.defect is None


@given(data=st.data())
def test_a_window_holds_its_chunk(data):
    room = data.draw(st.integers(1, 50))
    n_tokens = data.draw(st.integers(room + 1, 400))
    first = data.draw(st.integers(0, n_tokens - 1))
    stop = data.draw(st.integers(first + 1, min(first + room, n_tokens)))
    start = window_start(first, stop, n_tokens, room)
    assert 0 <= start <= first
    assert stop <= start + room
    assert start + room <= n_tokens or start == first


@given(room=st.integers(8, 60), n_tokens=st.integers(61, 1000))
def test_windows_are_few(room, n_tokens):
    size = room // 4
    starts = {
        window_start(first, min(first + size, n_tokens), n_tokens, room)
        for first in range(0, n_tokens, size)
    }
    assert len(starts) <= n_tokens / (room // 2) + 2


def test_a_model_that_pools_cls_is_refused():
    model = tiny_models.bert(pooling="cls")
    with (
        GGUFEmbeddings(model.path, token_rows=True) as embeddings,
        pytest.raises(PoolingError, match="pooling cls"),
    ):
        LateEmbedder(embeddings)


# Through an ingest


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "a.txt").write_text(TEXT * 12)
    (root / "b.txt").write_text(SENTENCES[0])
    return root


@pytest.fixture
def target(tmp_path):
    return SinkOptions(collection="docs", path=str(tmp_path / "db"))


def run(folder, target, **options):
    settings = {"model": str(BERT.path), "chunk_size": 40, "late": True, **options}
    return ingest(
        IngestOptions(paths=[folder], target=target, **settings), progress=lambda *_, **__: None
    )


def vectors_of(target):
    with connect(path=target.path) as client:
        found, _ = client.scroll(target.collection, limit=1000, with_vectors=True)
    return {
        (point.payload["metadata"]["source"], point.payload["metadata"]["chunk_index"]): (
            str(point.id),
            np.asarray(point.vector["dense"]),
        )
        for point in found
    }


def test_an_ingest_stores_late_vectors_and_a_search_finds_them(folder, target):
    report = run(folder, target)
    assert report.embedded == report.chunks > 10
    stored = vectors_of(target)
    with GGUFEmbeddings(BERT.path) as plain:
        (alone,) = plain.embed([SENTENCES[0]])
    assert np.allclose(stored["b.txt", 0][1], alone, atol=1e-5)
    (best,) = search(SENTENCES[0], target=target, k=1)
    assert best.source == "b.txt"
    assert best.score == pytest.approx(1, abs=1e-4)


def test_ids_depend_on_the_whole_document(folder, target):
    run(folder, target)
    before = vectors_of(target)
    assert run(folder, target).embedded == 0
    with (folder / "a.txt").open("a") as file:
        file.write("One more.")
    report = run(folder, target)
    after = vectors_of(target)
    assert report.embedded == sum(source == "a.txt" for source, _ in after)
    assert after["b.txt", 0][0] == before["b.txt", 0][0]
    assert not {name for name, _ in before.values()} & {
        name for (source, _), (name, _) in after.items() if source == "a.txt"
    }


def test_late_and_plain_vectors_do_not_mix(folder, target):
    run(folder, target)
    with pytest.raises(CollectionError, match=r"late: the collection has True, this run has None"):
        run(folder, target, late=False)
    other = SinkOptions(collection="plain", path=target.path)
    run(folder, other, late=False)
    with pytest.raises(CollectionError, match="late"):
        run(folder, other)


def test_late_chunks_are_half_of_what_the_model_takes_unless_said(folder, target):
    run(folder, target, chunk_size=None)
    with connect(path=target.path) as client:
        found, _ = client.scroll(target.collection, limit=1000)
    sizes = [point.payload["metadata"]["n_tokens"] for point in found]
    assert 128 < max(sizes) <= 256  # of 512
