"""Chunks that the model dies of, in an ingest: the run goes on, and tells what it lost."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import tiny_models

from corral import GGUFEmbeddings
from corral.canary import _LONG, _SHORT
from corral.cli.progress import summary_lines
from corral.engine import _llama, worker
from corral.engine import child as child_module
from corral.errors import EngineError, IncompleteRunError
from corral.ingest import IngestOptions, ingest
from corral.report import Report
from corral_sinks import SinkOptions
from corral_sinks.qdrant import connect

BERT = tiny_models.bert()
QWEN3 = tiny_models.qwen3()
DOUBLE = Path(__file__).with_name("poisoned_worker.py")
DEADLY = "jump"
SENTENCES = "Rain came in the night! Who closed the gate? The hill is high. "
RUN = f"""
import sys
from corral.cli import ingest_main
from corral.engine import child
child.child_command = lambda _: [sys.executable, {str(DOUBLE)!r}]
ingest_main()
"""


@pytest.fixture(scope="module")
def token():
    """An id that the deadly word has, and no other text here or of the canary."""
    with GGUFEmbeddings(BERT.path) as embeddings:
        deadly, *harmless = (
            set(ids.tolist())
            for ids in embeddings.tokenizer.encode_batch([DEADLY, SENTENCES, *_SHORT, *_LONG])
        )
    return min(deadly.difference(*harmless))


@pytest.fixture
def poison(token, monkeypatch, tmp_path):
    """Let workers die of the deadly word, in a way to choose."""
    monkeypatch.setattr(child_module, "child_command", lambda _: [sys.executable, str(DOUBLE)])
    monkeypatch.setenv("TEST_KILLED", str(tmp_path / "killed"))

    def choose(how, token=token):
        monkeypatch.setenv("TEST_POISON", json.dumps({token: how} if how else {}))

    choose("abort")
    return choose


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "a.txt").write_text(SENTENCES * 4)
    (root / "b.txt").write_text(SENTENCES * 3 + f"The {DEADLY} is deadly. " + SENTENCES * 3)
    (root / "c.txt").write_text(SENTENCES)
    return root


@pytest.fixture
def target(tmp_path):
    return SinkOptions(collection="docs", path=str(tmp_path / "db"))


def special_token(model, end):
    """An id that every text gets, there and in no model else."""
    with GGUFEmbeddings(model.path) as embeddings:
        return int(getattr(embeddings.tokenizer, end)[0])


def run(folder, target, report=None, **options) -> Report:
    settings = IngestOptions(
        paths=[folder], target=target, model=str(BERT.path), chunk_size=40, **options
    )
    return ingest(settings, progress=lambda *_, **__: None, report=report)


def texts(target):
    with connect(path=target.path) as client:
        found, _ = client.scroll(target.collection, limit=10_000)
    return sorted(point.payload["page_content"] for point in found)


def test_the_one_chunk_is_told_with_its_source_and_offsets_and_all_others_are_stored(
    folder, target, poison
):
    report = run(folder, target)
    assert report.quarantined == 1
    (entry,) = [entry for entry in report.entries if entry.quarantined]
    (lost,) = entry.quarantined
    assert (entry.source, entry.status) == ("b.txt", "failed")
    chunk = (folder / "b.txt").read_text()[lost.start : lost.end]
    assert DEADLY in chunk
    assert lost.error.startswith("the model's process died of SIGABRT")
    assert report.model_deaths == report.totals()["model_deaths"] > 1
    assert report.failures == ["1 files failed", "1 chunks without a usable vector"]
    assert any("its process died" in line for line in summary_lines(report))
    assert 0 < report.model_busy <= 1
    stored = texts(target)
    assert len(stored) > 5
    assert not any(DEADLY in text for text in stored)
    poison(None)
    mended = run(folder, target)
    assert (mended.embedded, mended.model_deaths, mended.failures) == (1, 0, [])
    assert texts(target) == sorted([*stored, chunk])


def test_a_process_that_is_killed_once_costs_nothing_unless_the_run_is_strict(
    folder, target, poison, tmp_path
):
    poison("once")
    report = run(folder, target)
    assert (report.model_deaths, report.quarantined, report.failures) == (1, 0, [])
    (tmp_path / "killed").unlink()
    fresh = SinkOptions(collection="fresh", path=target.path)
    strict = run(folder, fresh, strict=True)
    assert strict.failures == ["1 deaths of the model's process (--strict)"]
    assert texts(fresh) == texts(target)


def test_a_model_that_dies_of_everything_ends_the_run_and_says_so(
    folder, target, poison, monkeypatch
):
    poison("memory")
    monkeypatch.setattr(worker, "_MOST_DEATHS", 5)
    for number in range(9):
        (folder / f"{number}.txt").write_text(f"{number} {DEADLY} " * 90)
    with pytest.raises(IncompleteRunError, match="started anew 5 times and gave not one vector"):
        run(folder, target)


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("nan", "it holds values that are not finite"),
        ("zero", "its length is 0, under"),
        ("abort", "the model's process died of SIGABRT"),
    ],
)
def test_a_model_that_gives_no_vector_of_anything_ends_the_run_before_it_begins(
    folder, target, poison, how, found
):
    poison(how, special_token(BERT, "head"))
    report = Report()
    with pytest.raises(EngineError, match=f"gives no usable .* 'sheep': {found}") as no:
        run(folder, target, report=report)
    assert not report.began
    assert str(BERT.path) in str(no.value)
    for way_out in ("--no-flash-attn", "--n-gpu-layers 0", "--n-threads 1", "F16"):
        assert way_out in str(no.value)
    with connect(path=target.path) as client:
        assert client.get_collections().collections == []


def test_a_model_that_gives_none_any_more_ends_a_later_run_at_the_first_new_chunk(
    folder, target, poison
):
    poison(None)
    run(folder, target)
    before = texts(target)
    poison("nan", special_token(BERT, "head"))
    assert run(folder, target).failures == []  # it has nothing to embed
    (folder / "d.txt").write_text("The wool is white.")
    with pytest.raises(IncompleteRunError, match="gives no usable vector") as no:
        run(folder, target)
    assert "Nothing of this run is stored" in str(no.value)
    assert texts(target) == before


def test_the_model_for_long_documents_is_asked_too(folder, target, poison):
    poison("nan", special_token(QWEN3, "tail"))
    with pytest.raises(EngineError, match=f"{QWEN3.path} gives no usable vector"):
        run(folder, target, long_model=str(QWEN3.path))


def test_a_model_that_fails_at_one_text_of_the_first_ones_is_no_such_model(folder, target, poison):
    with GGUFEmbeddings(BERT.path) as embeddings:
        asked, others = embeddings.tokenizer.encode_batch(["fineness", SENTENCES])
    poison("abort", min(set(asked.tolist()) - set(others.tolist())))
    (folder / "b.txt").unlink()
    report = run(folder, target)
    assert report.model_deaths > 0
    assert report.failures == []


def test_a_kernel_that_fails_at_longer_texts_alone_is_found_too(folder, target, monkeypatch):
    class Spoiled(_llama.Context):
        def pooled_row(self, sequence):
            return super().pooled_row(sequence) * (np.nan if self.n_tokens >= 64 else 1)

        def decode(self, tokens, *others, **options):
            self.n_tokens = len(tokens)
            super().decode(tokens, *others, **options)

    monkeypatch.setattr(_llama, "Context", Spoiled)
    with pytest.raises(EngineError, match="not even of 'A shepherd counts them"):
        run(folder, target, isolate=False)


@pytest.mark.usefixtures("empty_cache")
def test_a_model_in_a_process_of_its_own_is_calibrated_too(folder, target, monkeypatch, caplog):
    monkeypatch.setattr("corral.run._WORTH_CALIBRATING", 100)
    caplog.set_level("INFO", logger="corral")
    report = run(folder, target)
    assert "calibrated: " in caplog.text
    assert report.failures == []
    assert 0 < report.model_busy <= 1


def command(folder, target, *options):
    return [
        sys.executable, "-c", RUN, str(folder), "--path", target.path, "--collection", "docs",
        "--model", str(BERT.path), "--chunk-size", "40", *options,
    ]  # fmt: skip


@pytest.mark.usefixtures("poison")
def test_the_command_ends_with_1_and_names_file_and_place(folder, target, tmp_path):
    file = tmp_path / "report.json"
    done = subprocess.run(
        command(folder, target, "--report", str(file)), capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "b.txt: the model gave no vector for characters " in done.stdout
    assert "died of SIGABRT" in done.stdout
    told = {entry["source"]: entry for entry in json.loads(file.read_text())["files"]}
    assert told["b.txt"]["quarantined"][0]["start"] > 0


@pytest.mark.parametrize("how", ["kill", "terminate", "interrupt"])
def test_a_run_that_ends_while_the_model_works_leaves_no_process(folder, target, poison, how):
    poison("hang")
    parent = subprocess.Popen(
        command(folder, target), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    ends = time.monotonic() + 60
    while not Path(target.path, "docs").exists():
        assert time.monotonic() < ends
        time.sleep(0.01)
    (child,) = psutil.Process(parent.pid).children()
    if how == "interrupt":
        parent.send_signal(2)
    else:
        getattr(parent, how)()
    _, said = parent.communicate(timeout=60)
    assert b"Traceback" not in said
    child.wait(60)
