"""What chunkers let a search find: `python benchmarks/chunking.py DATA --out benchmarks/results`.

DATA has questions.jsonl, in each line a question, the name of the text that answers it (corpus),
and the spans of its evidence (start, end); and the texts beside it. minilm embeds every chunk, the
best five are taken for each question, and characters are counted: recall is the share of the
evidence that they hold, precision the share of them that is evidence, IoU what both have in common
of what either has. The time of cutting, which one thread does, is its CPU seconds, to the seconds
that embedding the chunks takes.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral import GGUFEmbeddings
from corral.chunking import make_chunker
from corral.discovery import SourceFile
from corral.late import LateEmbedder
from corral.prepare import Pending
from corral.readers.markdown import markdown_document
from corral_chunkers import Chunk, Document

TOP = 5
OURS = ("auto", "auto, nothing before", "auto, late", "sentences", "tokens")

Spans = Sequence[tuple[int, int]]
Count = Callable[[str], int]
Split = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Score:
    """How well what was found holds the evidence, each from 0 to 1."""

    recall: float
    precision: float
    iou: float


@dataclass(frozen=True, slots=True)
class Row:
    """What a chunker came to at a size."""

    chunker: str
    size: int
    score: Score
    n_chunks: int
    fill: float
    chunking_share: float


def score(evidence: Spans, found: Spans, n_elsewhere: int = 0) -> Score:
    """Count characters; `n_elsewhere` were found in other texts than the evidence's."""
    wanted = {at for start, end in evidence for at in range(start, end)}
    got = {at for start, end in found for at in range(start, end)}
    both = len(wanted & got)
    n_found = len(got) + n_elsewhere
    return Score(
        recall=both / len(wanted),
        precision=both / n_found if n_found else 0.0,
        iou=both / (len(wanted | got) + n_elsewhere),
    )


def mean(scores: Sequence[Score]) -> Score:
    return Score(*(float(np.mean([getattr(s, name) for s in scores])) for name in Score.__slots__))


def langchain_splitter(count: Count, room: int) -> Split:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    return RecursiveCharacterTextSplitter(
        chunk_size=room, chunk_overlap=0, length_function=count
    ).split_text


def semantic_splitter(count: Count, room: int) -> Split:
    from semantic_text_splitter import TextSplitter

    return TextSplitter.from_callback(count, room).chunks


def semantic_markdown_splitter(count: Count, room: int) -> Split:
    from semantic_text_splitter import MarkdownSplitter

    return MarkdownSplitter.from_callback(count, room).chunks


PEERS = {
    "RecursiveCharacterTextSplitter": langchain_splitter,
    "semantic-text-splitter": semantic_splitter,
    "semantic-text-splitter, Markdown": semantic_markdown_splitter,
}


def peer_chunks(
    embeddings: GGUFEmbeddings, name: str, document: Document, size: int
) -> Iterator[Chunk]:
    count = embeddings.sequences("").count
    around = count("")
    split = PEERS[name](lambda text: count(text) - around, size - around)
    at = 0
    for text in split(document.text):
        start = document.text.index(text, at)
        at = start + len(text)
        yield Chunk(text=text, start=start, end=at, n_tokens=count(text))


def cutter(
    embeddings: GGUFEmbeddings, name: str, size: int
) -> Callable[[Document], Iterator[Chunk]]:
    if name in PEERS:
        return lambda document: peer_chunks(embeddings, name, document, size)
    kind, _, variant = name.partition(", ")
    return make_chunker(
        embeddings, name=kind, size=size, late=variant == "late",
        context="none" if variant == "nothing before" else None,
    ).chunk  # fmt: skip


def embed(
    embeddings: GGUFEmbeddings, name: str, document: Document, chunks: Sequence[Chunk]
) -> NDArray[np.float32]:
    if not name.endswith("late"):
        return embeddings.embed([chunk.context + chunk.text for chunk in chunks])
    file = SourceFile(Path(document.source), document.source)
    batch = [Pending(file, document, chunk, "", {}) for chunk in chunks]
    return np.stack([found.vectors["dense"] for found in LateEmbedder(embeddings).embed(batch)])


def measure(
    embeddings: GGUFEmbeddings, name: str, size: int, documents: Mapping[str, Document],
    questions: Sequence[Mapping[str, object]], asked: NDArray[np.float32],
) -> Row:  # fmt: skip
    places: list[tuple[str, int, int]] = []
    vectors, n_tokens, chunking, embedding = [], 0, 0.0, 0.0
    cut = cutter(embeddings, name, size)
    first = Document(text="A first one.", source="", format="markdown")
    list(cut(first))  # what is imported then is not timed
    for source, document in documents.items():
        began = time.thread_time()
        chunks = list(cut(document))
        chunking += time.thread_time() - began
        began = time.perf_counter()
        vectors.append(embed(embeddings, name, document, chunks))
        embedding += time.perf_counter() - began
        places += [(source, chunk.start, chunk.end) for chunk in chunks]
        n_tokens += sum(chunk.n_tokens for chunk in chunks)
    best = np.argsort(-(asked @ np.concatenate(vectors).T), axis=1, kind="stable")[:, :TOP]
    scores = []
    for question, numbers in zip(questions, best, strict=True):
        found = [places[number] for number in numbers]
        inside = [(start, end) for source, start, end in found if source == question["corpus"]]
        outside = sum(end - start for source, start, end in found if source != question["corpus"])
        spans = [(span["start"], span["end"]) for span in question["spans"]]
        scores.append(score(spans, inside, outside))
    return Row(
        name, size, mean(scores), len(places), n_tokens / (size * len(places)),
        chunking / embedding,
    )  # fmt: skip


def show(rows: Sequence[Row]) -> None:
    print(f"{'chunker':<32} size  recall  precision     IoU  chunks  fill  time of embedding")
    for row in rows:
        found = row.score
        print(
            f"{row.chunker:<32} {row.size:>4}  {found.recall:.4f}     {found.precision:.4f}  "
            f"{found.iou:.4f}  {row.n_chunks:>6}  {row.fill:.2f}  {row.chunking_share:.1%}"
        )


def plot(rows: Sequence[Row], target: Path) -> None:
    import matplotlib.pyplot as plt

    sizes = sorted({row.size for row in rows})
    figure, axes = plt.subplots(1, len(sizes), figsize=(9, 3.5), layout="constrained")
    for axis, size in zip(np.atleast_1d(axes), sizes, strict=True):
        for row in rows:
            if row.size == size:
                colour = "#a0aec0" if row.chunker in PEERS else "#2b6cb0"
                axis.scatter(row.score.recall, row.score.iou, color=colour)
                axis.annotate(row.chunker, (row.score.recall, row.score.iou), fontsize=7)
        axis.set(title=f"{size} tokens, top {TOP}", xlabel="recall", ylabel="IoU")
        axis.margins(0.25)
    figure.savefig(target, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with questions.jsonl and the texts")
    parser.add_argument("--sizes", type=int, nargs="*", default=[128, 254])
    parser.add_argument("--out", type=Path, help="folder for figures and a plot")
    chosen = parser.parse_args()
    lines = (chosen.data / "questions.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    documents = {
        name: markdown_document((chosen.data / name).read_text("utf-8"), name)
        for name in sorted({question["corpus"] for question in questions})
    }
    with GGUFEmbeddings("minilm") as embeddings:
        asked = np.stack([embeddings.embed_query_row(found["question"]) for found in questions])
    gc.freeze()  # as the commands do: what was imported is no garbage
    rows = []
    for size in chosen.sizes:
        for name in (*PEERS, *OURS):
            with GGUFEmbeddings("minilm", token_rows=True) as embeddings:  # knows no word yet
                rows.append(measure(embeddings, name, size, documents, questions, asked))
    show(rows)
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
        figures = json.dumps([asdict(row) for row in rows], indent=1)
        (chosen.out / "chunking.json").write_text(figures + "\n")
        plot(rows, chosen.out / "chunking.png")


if __name__ == "__main__":
    main()
