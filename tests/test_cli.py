"""The command line as a user meets it: what is printed where, and the exit code."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
import tiny_models
from commands import corral
from qdrant_stand_in import QdrantStandIn

from corral.cli import progress
from corral.report import Report

BERT = tiny_models.bert()
HOLDER = """
import sys
from qdrant_client.models import Distance, VectorParams
from corral_sinks.qdrant import connect
client = connect(path=sys.argv[1])
client.create_collection("other", {"v": VectorParams(size=2, distance=Distance.DOT)})
print("ready", flush=True)
sys.stdin.read()
client.close()
"""


def corral_alone(*arguments, command=("-m", "corral.cli"), **options):
    """Run `corral`, or a script, in a process of its own."""
    return subprocess.run(
        [sys.executable, *command, *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        **options,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "a.txt").write_text("The flock went up the hill.\n")
    (root / "b.md").write_text("# Rain\n\nRain came in the night.\n")
    return root


@pytest.fixture
def store(tmp_path):
    return ("--path", tmp_path / "db", "--collection", "docs")


def ingest(folder, store, *options):
    return corral("ingest", folder, *store, "--model", BERT.path, *options)


def test_ingest_prints_a_summary_and_search_a_table(folder, store):
    done = ingest(folder, store)
    assert (done.returncode, done.stderr) == (0, "")
    assert "files    2: 2 stored, 0 unchanged, 0 skipped, 0 failed" in done.stdout
    assert "tokens/s" in done.stdout
    found = corral("search", "rain", *store, "-k", 2)
    assert found.returncode == 0
    assert "b.md" in found.stdout
    assert "Rain came in the night." in found.stdout


def test_a_search_for_nothing_is_refused_and_one_that_finds_nothing_says_so(folder, store):
    ingest(folder, store)
    for options, code, said in [
        ((" ",), 2, "the query is empty"),
        (("rain", "--filter", "source!=a.txt", "--filter", "source!=b.md"), 0, "nothing found"),
        (("rain", "--path", "x", "--url", "y"), 2, "; both were given"),
    ]:
        done = corral("search", *options, *store)
        assert (done.returncode, said in done.stderr, done.stdout) == (code, True, "")


def test_search_prints_a_json_object_a_line(folder, store):
    ingest(folder, store)
    found = corral("search", "rain", *store, "-k", 2, "--json")
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(lines) == 2
    for line in lines:
        text = (folder / line["source"]).read_text()
        assert text[line["start"] : line["end"]] == line["text"]
        assert -1 <= line["score"] <= 1


def test_long_texts_are_shown_in_part_in_the_table(folder, store):
    (folder / "long.txt").write_text("word " * 100)
    ingest(folder, store)
    assert "…" in corral("search", "word", *store).stdout


def test_skipped_files_are_named_and_are_no_failure(folder, store):
    (folder / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    done = ingest(folder, store)
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert "picture.txt: " in done.stdout


def test_many_reasons_are_cut_short(folder, store):
    for i in range(30):
        (folder / f"empty-{i}.txt").touch()
    done = ingest(folder, store)
    assert "and 10 more" in done.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_fails_the_run_with_exit_1(folder, store):
    (folder / "secret.txt").write_text("x")
    (folder / "secret.txt").chmod(0)
    assert ingest(folder, store).returncode == 1


def test_a_file_that_failed_gives_exit_1(folder, store, tmp_path):
    # Root may read every file, so a reader that fails stands in.
    script = tmp_path / "run.py"
    script.write_text(
        "from corral.errors import ReadError\n"
        "from corral.readers import files\n"
        "from corral.cli import ingest_main\n"
        "def failing(path, **_):\n"
        "    raise ReadError(f'{path} cannot be read: Permission denied.')\n"
        "files.read_bytes = failing\n"
        "ingest_main()\n"
    )
    done = corral_alone(folder, *store, "--model", BERT.path, command=(script,))
    assert done.returncode == 1
    assert "2 failed" in done.stdout
    assert "Permission denied" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ingest", "{docs}", "--collection", "x"], "give --path DIR"),
        (["ingest", "{docs}", "--collection", "x", "--path", "a", "--url", "b"], "give --path DIR"),
        (["ingest", "--collection", "x", "--path", "{db}"], "name at least one of PATHS"),
        (["ingest", "{docs}", "--path", "{db}"], "Missing option '--collection'"),
        (["ingest", "{docs}", "--path", "{db}", "--collection", "x", "--model", "nope"], "nope"),
        (["ingest", "{docs}", "--path", "{db}", "--collection", "x", "--model", "{docs}/a.txt"],
         "not a GGUF"),
        (["ingest", "{empty}", "--path", "{db}", "--collection", "x"], "nothing to read in"),
        (["ingest", "{docs}/none", "--path", "{db}", "--collection", "x"], "none"),
        (["ingest", "{docs}", "--path", "{db}", "--collection", "a/b", "--model", "{bert}"], "a/b"),
        (["ingest", "{docs}", "--path", "{docs}", "--collection", "x", "--model", "{bert}"],
         "a.txt"),
        (["ingest", "{docs}", "--url", "http://127.0.0.1:9", "--collection", "x"], "127.0.0.1:9"),
        (["search", "q", "--path", "{db}", "--collection", "x"], "no collection 'x'"),
        (["search", "q", "--url", "http://127.0.0.1:9", "--collection", "x"], "127.0.0.1:9"),
        (["ingest", "{docs}", "--path", "{db}", "--collection", "x", "--over-length", "chop"],
         "'chop' is not one of"),
        (["ingest", "", "--path", "{db}", "--collection", "x"], "the path is empty"),
        (["ingest", "{docs}", "--path", "", "--collection", "x"], "the path is empty"),
        (["ingest", "{docs}", "--path", "{db}", "--collection", "x", "--report", ""],
         "the path is empty"),
        (["ingest", "{docs}", "--path", "{db}", "--collection", "x", "--dry-run", "--metrics",
          "{db}.prom"], "leave one out"),
        (["fly"], "No such command 'fly'"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_clear_message_and_exit_2(folder, tmp_path, arguments, said):
    (tmp_path / "empty").mkdir()
    names = {
        "docs": folder, "db": tmp_path / "db", "empty": tmp_path / "empty", "bert": BERT.path,
    }  # fmt: skip
    done = corral(*(argument.format(**names) for argument in arguments))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_report_json_and_metrics_say_the_same_as_the_exit_code(folder, store, tmp_path):
    (folder / "empty.txt").touch()
    report_to, metrics_to = (
        ("--report", tmp_path / "out.json"),
        ("--metrics", tmp_path / "out.prom"),
    )
    for options, code in [
        (metrics_to, 0),
        ((*metrics_to, "--strict"), 1),
        (("--strict", "--dry-run"), 1),
    ]:
        done = ingest(folder, store, "--json", *report_to, *options)
        assert done.returncode == code
        summary = json.loads(done.stdout)
        report = json.loads((tmp_path / "out.json").read_text())
        assert summary["ok"] is (code == 0)
        assert summary["dry_run"] is ("--dry-run" in options)
        assert (summary["failures"] == []) is (code == 0)
        assert summary["totals"]["files"] == len(report.pop("files")) == 3
        assert report.pop("pruned") == []
        assert report == summary
        metrics = (tmp_path / "out.prom").read_text()
        assert f'corral_ingest_success{{collection="docs"}} {1 - code}\n' in metrics
    assert {path.name for path in tmp_path.iterdir()} == {"docs", "db", "out.json", "out.prom"}


def test_a_run_that_cannot_begin_is_told_too(folder, store, tmp_path):
    files = ("--report", tmp_path / "out.json", "--metrics", tmp_path / "out.prom")
    assert ingest(folder, store, *files).returncode == 0
    done = ingest(folder, store, *files, "--json", "--chunk-size", "20")
    assert done.returncode == 2
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["ok"], told["totals"]["points"]) == (False, None)
    assert "was made with other settings" in told["error"]
    assert json.loads(done.stdout)["error"] == told["error"]
    metrics = (tmp_path / "out.prom").read_text()
    assert 'corral_ingest_success{collection="docs"} 0\n' in metrics
    assert "corral_ingest_points" not in metrics


def test_a_summary_says_what_failed(folder, store):
    (folder / "empty.txt").touch()
    done = ingest(folder, store, "--strict")
    assert done.returncode == 1
    assert "failed   1 files skipped (--strict)" in done.stdout


def test_a_dry_run_says_what_would_be_done(folder, store, tmp_path):
    done = ingest(folder, store, "--dry-run")
    assert done.returncode == 0
    assert "chunks   2: 2 embedded" in done.stdout
    assert "bytes    " in done.stdout
    assert "nothing was embedded, written or deleted" in done.stdout
    assert not (tmp_path / "db").exists()


def test_verbose_names_every_file(folder, store):
    done = ingest(folder, store, "-v")
    assert "stored a.txt: 1 chunks" in done.stderr
    assert "stored b.md: 1 chunks" in done.stderr


@pytest.mark.parametrize("option", ["--report", "--metrics"])
def test_a_file_that_cannot_be_written_is_refused_before_the_run(folder, store, tmp_path, option):
    done = ingest(folder, store, option, tmp_path / "none" / "out")
    assert done.returncode == 2
    assert "out cannot be written" in done.stderr
    assert not (tmp_path / "db").exists()


def test_a_report_that_could_not_be_written_in_the_end_is_exit_1(folder, store, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "from corral.cli import ingest_main\n"
        "from corral.models import files\n"
        "def failing(target):\n"
        "    raise OSError(28, 'No space left on device')\n"
        "files.atomic_target = failing\n"
        "ingest_main()\n"
    )
    arguments = (*store, "--model", BERT.path, "--report", tmp_path / "out.json")
    done = corral_alone(folder, *arguments, command=(script,))
    assert done.returncode == 1
    assert "2 stored" in done.stdout
    assert "out.json cannot be written: No space left on device" in done.stderr


def test_another_collection_of_other_settings_is_refused_with_the_fields(folder, store):
    ingest(folder, store, "--chunk-size", 40)
    done = ingest(folder, store, "--chunk-size", 41)
    assert done.returncode == 2
    assert "chunker.size: the collection has 40, this run has 41" in done.stderr


def test_a_second_process_on_one_folder_is_told_who_holds_it(folder, store, tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / "db"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout.readline() == "ready\n"
    done = ingest(folder, store)
    holder.communicate("", timeout=120)
    assert done.returncode == 2
    assert f"{holder.pid}" in done.stderr
    assert ingest(folder, store).returncode == 0


def test_a_server_is_written_to_and_searched_and_its_key_is_never_shown(folder, tmp_path):
    with QdrantStandIn(tmp_path / "server", api_key="s3cret") as server:
        store = ("--url", server.url, "--collection", "docs")
        keyed = {**os.environ, "QDRANT_API_KEY": "s3cret"}
        done = corral_alone("ingest", folder, *store, "--model", BERT.path, "-vv", env=keyed)
        found = corral_alone("search", "rain", *store, "--json", env=keyed)
        refused = corral_alone(
            "search", "rain", *store, env={**os.environ, "QDRANT_API_KEY": "wr0ng"}
        )
    assert done.returncode == 0
    assert len(found.stdout.splitlines()) == 2
    assert refused.returncode == 2
    assert "QDRANT_API_KEY" in refused.stderr
    for said in (done, found, refused):
        assert "s3cret" not in said.stdout + said.stderr
        assert "wr0ng" not in said.stdout + said.stderr


def test_a_store_that_fails_on_the_way_gives_exit_1_and_says_what_is_stored(folder, tmp_path):
    with QdrantStandIn(tmp_path / "server") as server:
        for i in range(80):
            (folder / f"more-{i}.txt").write_text(f"Number {i}.")
        script = tmp_path / "run.py"
        script.write_text(
            "from corral_sinks import SinkError\n"
            "from corral_sinks.qdrant import QdrantSink\n"
            "from corral.cli import ingest_main\n"
            "upsert, calls = QdrantSink.upsert, []\n"
            "def failing(self, records):\n"
            "    calls.append(1)\n"
            "    if len(calls) > 1:\n"
            "        raise SinkError('the disk is full')\n"
            "    upsert(self, records)\n"
            "QdrantSink.upsert = failing\n"
            "ingest_main()\n"
        )
        store = ("--url", server.url, "--collection", "docs")
        done = corral_alone(folder, *store, "--model", BERT.path, command=(script,))
    assert done.returncode == 1
    assert "error: the disk is full" in done.stderr
    assert re.search(r"(18|64) chunks are stored; run the same command again", done.stderr)
    assert "failed   the run ended before its end" in done.stdout


@pytest.mark.parametrize("key", ["S3CRETKEY\r", "S3CRET\nKEY", "S3CRÉT"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(folder, key):
    store = ("--url", "http://127.0.0.1:9", "--collection", "docs")
    done = corral_alone(
        "ingest", folder, *store, "--model", BERT.path, env={**os.environ, "QDRANT_API_KEY": key}
    )
    assert done.returncode == 2
    assert "QDRANT_API_KEY holds a character" in done.stderr
    assert "S3CR" not in done.stdout + done.stderr


def test_a_terminal_that_knows_only_ascii_gets_escapes_and_warnings_are_plain(folder, store):
    (folder / "wool.txt").write_text("羊毛 は暖かい")
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = corral_alone(
        "ingest", folder, *store, "--model", BERT.path, "--pooling-type", "cls", env=plain
    )
    assert done.returncode == 0
    assert done.stderr.startswith("warning: pooling_type cls overrides mean")
    assert ".py" not in done.stderr
    found = corral_alone("search", "羊毛", *store, env=plain)
    assert found.returncode == 0
    assert "\\u7f8a" in found.stdout


def test_lines_of_progress_come_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    with progress.watch(sys.stderr) as told:
        told(Report(files_total=4, bytes_total=200, embedded=7), files_done=1, bytes_done=50)
    assert "1 of 4 files (25% of the bytes), 7 chunks embedded" in capsys.readouterr().err


def on_a_terminal(*arguments, typed=b""):
    """Run corral with a terminal for all but standard output; give exit code, output, terminal."""
    outer, inner = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "corral.cli", *map(str, arguments)],
        stdin=inner, stdout=subprocess.PIPE, stderr=inner, text=True,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(inner)
    os.write(outer, typed)
    seen = b""
    while True:
        try:
            part = os.read(outer, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(outer)
    out, _ = child.communicate(timeout=120)
    return child.returncode, out, seen.decode()


def test_a_bar_is_drawn_on_a_terminal(folder, store):
    code, out, seen = on_a_terminal("ingest", folder, *store, "--model", BERT.path)
    assert code == 0
    assert "files" in seen
    assert "tokens/s" in seen
    assert "2 stored" in out


def test_prune_asks_on_a_terminal_and_elsewhere_wants_yes(folder, store):
    for i in range(25):
        (folder / f"more-{i:02}.txt").write_text(f"Number {i}.")
    ingest(folder, store)
    for file in folder.glob("more-*"):
        file.unlink()
    refused = ingest(folder, store, "--prune")
    assert refused.returncode == 2
    assert "add --yes" in refused.stderr
    arguments = ("ingest", folder, *store, "--model", BERT.path, "--prune")
    code, out, seen = on_a_terminal(*arguments, typed=b"n\n")
    assert code == 0
    assert "more-19.txt" in seen
    assert "and 5 more" in seen
    assert "Delete what is stored of these 25 files, which are gone? [y/N]" in seen
    assert "pruned" not in out
    assert "pruned   25 files that are gone" in ingest(folder, store, "--prune", "--dry-run").stdout
    code, out, _ = on_a_terminal(*arguments, typed=b"y\n")
    assert code == 0
    assert "pruned   25 files that are gone" in out
    done = ingest(folder, store, "--prune", "--yes")
    assert done.returncode == 0
    assert "pruned" not in done.stdout


def test_a_closed_pipe_is_no_traceback(folder, store):
    ingest(folder, store)
    child = subprocess.Popen(
        [sys.executable, "-m", "corral.cli", "search", "rain", *map(str, store), "--json"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    child.stdout.close()
    assert "Traceback" not in child.stderr.read()
    child.stderr.close()
    child.wait(timeout=120)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--yes",), "there is no --prune"),
        (("--report", "out.json", "--metrics", "./out.json"), "are both out.json; name two files"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(folder, store, options, words):
    done = ingest(folder, store, *options)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
