"""`corral show`, and what the command line says of which files are read and how."""

import json
import subprocess
import sys

import pytest
import tiny_models
from pdf_files import lines, pdf

BERT = tiny_models.bert()
RECORDS = '{"id": "a b", "t": "Hello"}\n{"id": 2, "t": "World"}\n'


@pytest.fixture
def corral(tmp_path):
    def corral(*arguments, stdin=b""):
        return subprocess.run(
            [sys.executable, "-m", "corral.cli", *map(str, arguments)],
            cwd=tmp_path, input=stdin, capture_output=True, check=False,
        )  # fmt: skip

    return corral


def test_the_text_is_printed_as_it_is(corral, tmp_path):
    (tmp_path / "a b.txt").write_bytes("caf\u00e9\r\nno end".encode())
    for source in ("a b.txt", "a%20b.txt"):
        done = corral("show", source)
        assert (done.returncode, done.stdout) == (0, "caf\u00e9\r\nno end".encode())


def test_headings_pages_and_metadata_are_told_as_json(corral, tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf(lines("One", "text"), outline=[("One", 0)]))
    told = json.loads(corral("show", "a.pdf", "--json").stdout)
    assert told["headings"] == [[0, 1, "One", None]]
    assert (told["pages"], told["text"]) == ([0], "One\ntext")
    assert told["metadata"] == {"reader": "pdf/1"}


def test_one_document_of_a_file_is_chosen_by_its_fragment(corral, tmp_path):
    (tmp_path / "a.jsonl").write_text(RECORDS)
    fields = ("--text-field", "t", "--id-field", "id")
    assert corral("show", "a.jsonl#a%20b", *fields).stdout == b"Hello"
    everything = corral("show", "a.jsonl", *fields).stdout.decode()
    assert everything == "==> a.jsonl#a%20b <==\nHello\n\n==> a.jsonl#2 <==\nWorld\n\n"
    missing = corral("show", "a.jsonl#3", *fields)
    assert missing.returncode == 2
    assert b"no document '3'; it has 2, such as: a%20b, 2" in missing.stderr


def test_standard_input_is_shown(corral):
    page = b"<!doctype html><p>text"
    assert corral("show", "-", stdin=page).stdout == b"text"
    assert corral("show", "-", "--stdin-name", "x.txt", stdin=page).stdout == page


def test_what_cannot_be_read_is_an_error(corral, tmp_path):
    done = corral("show", "gone.pdf")
    assert (done.returncode, b"gone.pdf cannot be read" in done.stderr) == (2, True)
    (tmp_path / "big.txt").write_text("x" * 11)
    assert b"the limit is 10" in corral("show", "big.txt", "--max-file-size", "10").stderr


class TestIngest:
    @pytest.fixture(autouse=True)
    def _folder(self, corral, tmp_path):
        (tmp_path / "docs").mkdir()
        for name in ("a.txt", "b.txt", "c.md"):
            (tmp_path / "docs" / name).write_text(name)
        store = ("--path", "db", "--collection", "c", "--model", BERT.path, "--json")
        self.run = lambda *arguments, **options: corral("ingest", *arguments, *store, **options)

    def stored(self, done):
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["totals"]["stored"]

    def test_a_list_names_files(self, tmp_path):
        (tmp_path / "list").write_text("docs/a.txt\n\ndocs/c.md\n")
        assert self.stored(self.run("--from-file", "list")) == 2
        assert self.stored(self.run("--from-file", "-", stdin=b"docs/b.txt\0docs/a.txt\0")) == 1

    def test_patterns_choose_files(self):
        assert self.stored(self.run("docs", "--include", "*.txt", "--exclude", "b.*")) == 1

    def test_standard_input_is_stored(self):
        assert self.stored(self.run("-", "--stdin-name", "a.csv", stdin=b"a\n1\n2\n")) == 1

    def test_records_are_read_as_the_options_say(self, tmp_path):
        (tmp_path / "r.jsonl").write_text(RECORDS)
        done = self.run("r.jsonl", "--text-field", "t", "--rows", "2")
        assert json.loads(done.stdout)["totals"]["chunks"] == 1

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], b"name at least one of PATHS"),
            (["--from-file", "gone"], b"--from-file: gone: No such file"),
            (["-", "--from-file", "-"], b"both a document and"),
            (["docs", "--reader-memory", "5"], b"reader memory is 5 bytes"),
            (["docs", "--rows", "0"], b"rows are 0"),
        ],
    )
    def test_wrong_use_is_said(self, arguments, said):
        done = self.run(*arguments)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
