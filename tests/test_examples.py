"""The examples, and the code in the docs, run as they stand."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models
from qdrant_stand_in import QdrantStandIn

from corral.ingest import IngestOptions, ingest
from corral_sinks import SinkOptions

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RERANKER = tiny_models.qwen3(pooling="rank")


def blocks(page):
    """A page's blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def imports():
    """Every line of the pages that imports from LangChain, with the page."""
    for page in PAGES:
        for line in re.findall(r"^(?:from|import) langchain\S*.*$", page.read_text(), re.MULTILINE):
            yield pytest.param(line, id=f"{page.name}: {line}")


def ingested(sparse=None, **place):
    """Ingest the documents of the examples by the built-in model."""
    options = IngestOptions(
        paths=[EXAMPLES / "docs"],
        target=SinkOptions(**place),
        model="minilm",
        sparse=sparse,
        isolate=False,
    )
    ingest(options, progress=lambda *_, **__: None)


@pytest.fixture(scope="module")
def home(tmp_path_factory, minilm_path):
    """A folder with the collections `demo`, `notes` and `notes-hybrid`, and a reranker."""
    assert minilm_path.is_file()  # nothing is fetched below
    folder = tmp_path_factory.mktemp("home")
    for name in ("demo", "notes"):
        ingested(collection=name, path=str(folder / "qdrant_data"))
    ingested(sparse={}, collection="notes-hybrid", path=str(folder / "qdrant_data"))
    shutil.copy(RERANKER.path, folder / "reranker.gguf")
    return folder


def run(home, *arguments):
    """Run Python in the folder as a user would, with warnings as errors; return what it printed."""
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    child = subprocess.run(
        command,
        cwd=home,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.mark.parametrize("line", list(imports()))
def test_a_langchain_import_of_the_docs_works(line):
    names = {}
    exec(line, names)
    assert len(names) > 1


def test_the_pages_on_langchain_are_among_them():
    assert {"README.md", "langchain.md"} <= {line.id.split(":")[0] for line in imports()}


def test_the_code_of_the_page_on_langchain_runs_from_top_to_bottom(home):
    page = ROOT / "docs" / "langchain.md"
    printed = run(home, "-c", "\n".join(blocks(page))).splitlines()
    assert "sheepdogs.md" in printed[0]
    assert "Question: who looks after the dog" in printed
    assert printed[-4:-2] == ["sheepdogs.md"] * 2
    assert "'num_added': 1" in printed[-2]
    assert "'num_added': 0" in printed[-1]


def test_the_code_of_the_page_on_reranking_runs(home):
    (code,) = blocks(ROOT / "docs" / "reranking.md")
    name = "bge-reranker-v2-m3-F16.gguf"
    assert name in code
    assert run(home, "-c", code.replace(name, "reranker.gguf") + "print(scores.shape)") == "(2,)\n"


def test_a_rag_chain_gives_the_chat_model_reranked_chunks_and_the_question(home):
    question = "what does the ewe eat in winter?"
    said = run(home, EXAMPLES / "rag_with_rerank.py", "reranker.gguf", question)
    notes = re.findall(r"^\[(.+)\]$", said, re.MULTILINE)
    assert len(notes) == 3
    assert {*notes} <= {file.name for file in (EXAMPLES / "docs").iterdir()}
    assert said.endswith(f"Question: {question}\n")


def test_a_retriever_reads_from_a_server(home, tmp_path):
    with QdrantStandIn(tmp_path) as server:
        ingested(collection="demo", url=server.url)
        said = run(home, EXAMPLES / "retrieve_from_server.py", server.url).splitlines()
    assert len(said) == 6
    assert "shearing.md" in said[0]
    scores = [float(line.split()[0]) for line in said[::2]]
    assert scores == sorted(scores, reverse=True)


def test_a_reranker_orders_texts_by_itself(home):
    lines = run(home, EXAMPLES / "rerank_texts.py", "reranker.gguf").splitlines()
    scores = [float(line.split()[0]) for line in lines]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)


def test_several_questions_are_asked_at_once(home):
    said = run(home, EXAMPLES / "async_questions.py").splitlines()
    assert said[::2] == ["when are the sheep shorn?", "what does the ewe eat in winter?"]
    assert [line.split(":")[0].strip() for line in said[1::2]] == ["shearing.md", "winter-feed.txt"]


def test_every_example_is_named_by_the_page_on_langchain():
    named = re.findall(r"\(\.\./examples/(\w+\.py)\)", (ROOT / "docs" / "langchain.md").read_text())
    assert sorted(named) == sorted(file.name for file in EXAMPLES.glob("*.py"))
