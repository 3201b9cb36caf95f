"""The process that reads: hostile files are bounded and listed, and the next file is read."""

import os
import signal
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from pdf_files import lines, looped, pdf
from test_readers import book, zipped

from corral.errors import EmptyTextError, NotTextError, ReadError, UsageError
from corral.readers import ReaderOptions, registry
from corral.readers import process as process_module
from corral.readers.files import Readers
from corral.reading import STDIN

STRANGER = """
import os, signal, time

class Odd:
    suffixes = (".odd",)
    version = 3
    confined = True

    def read(self, file, options):
        from corral_chunkers import Document
        yield Document(text="first", source=file.source + "#1", metadata={"pid": os.getpid()})
        what = file.raw.decode()
        if what == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "exit":
            os._exit(3)
        if what == "hang":
            time.sleep(600)
        if what == "spin":
            while True:
                pass
        if what == "eat":
            held = [bytes(2**24) for _ in range(1000)]
        if what == "recurse":
            (lambda f: f(f))(lambda f: f(f))
        if what == "environment":
            yield Document(text=str(dict(os.environ)), source=file.source + "#2")
        if what == "write":
            open(os.environ["TMPDIR"] + "/filled", "wb").write(bytes(2**22))
        if what == "fault":
            raise KeyError("odd")
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A reader of a stranger's, installed as any package is."""
    folder = tmp_path / "site-packages"
    info = folder / "odd-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "odd.py").write_text(textwrap.dedent(STRANGER))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[corral.readers]\nodd = odd:Odd\n")
    monkeypatch.syspath_prepend(str(folder))
    registry.readers.cache_clear()
    yield folder
    registry.readers.cache_clear()
    sys.modules.pop("odd", None)


@pytest.fixture
def write(tmp_path):
    def write(name, raw):
        path = tmp_path / name
        path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
        return path

    return write


@pytest.fixture
def readers():
    with Readers(seconds=20, memory=2**29) as readers:
        yield readers


def read(readers, path):
    return list(readers.read(path, path.name))


@pytest.mark.usefixtures("stranger")
class TestAStrangersReader:
    def test_it_reads_in_a_process_that_lives_from_file_to_file(self, readers, write):
        first, second = (read(readers, write(f"{n}.odd", "ok"))[0] for n in "ab")
        assert (first.text, first.source) == ("first", "a.odd#1")
        assert first.metadata["reader"] == "odd/3"
        assert first.metadata["pid"] == second.metadata["pid"] != os.getpid()
        readers.close()
        assert not psutil.pid_exists(first.metadata["pid"])

    @pytest.mark.parametrize(
        ("what", "said"),
        [
            ("die", "the odd reader died of SIGSEGV over .*x.odd.*--reader-memory"),
            ("exit", "ended with exit code 3"),
            ("eat", "ended with exit code 1 over .* more than 536,870,912 bytes of memory"),
            ("recurse", "x.odd is nested too deeply to be read as odd"),
            ("fault", "x.odd cannot be read as odd: KeyError: 'odd'"),
            ("write", "x.odd cannot be read as odd: OSError"),
        ],
    )
    def test_whatever_it_does_the_file_is_an_error_and_the_next_one_is_read(
        self, readers, write, what, said, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        with pytest.raises(ReadError, match=said):
            read(readers, write("x.odd", what))
        assert read(readers, write("y.odd", "ok"))[0].text == "first"

    @pytest.mark.parametrize("what", ["hang", "spin"])
    def test_one_that_takes_too_long_is_ended(self, write, what):
        with Readers(seconds=1.5) as readers:
            with pytest.raises(ReadError, match=r"busy for more than 1.5 s.*--reader-seconds"):
                read(readers, write("x.odd", what))
            assert read(readers, write("y.odd", "ok"))[0].text == "first"

    def test_the_kernel_ends_it_where_nobody_watches(self, write, monkeypatch):
        monkeypatch.setattr(process_module.Connection, "poll", lambda *_: True)
        with Readers(seconds=0.1) as readers, pytest.raises(ReadError, match="died of SIGXCPU"):
            read(readers, write("x.odd", "spin"))

    def test_what_documents_wait_for_us_is_not_its_time(self, write, monkeypatch):
        waited = 0.0
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + waited)
        monkeypatch.setattr(process_module, "time", clock)
        with Readers(seconds=60) as readers:
            documents = readers.read(write("x.odd", "ok"), "x.odd")
            next(documents)
            waited = 100.0
            assert list(documents) == []

    def test_a_file_that_is_left_half_read_disturbs_no_other(self, readers, write):
        documents = readers.read(write("x.odd", "environment"), "x.odd")
        next(documents)
        documents.close()
        assert len(read(readers, write("y.odd", "ok"))) == 1

    def test_our_keys_are_not_in_its_environment(self, readers, write, monkeypatch):
        monkeypatch.setenv("QDRANT_API_KEY", "abracadabra")
        monkeypatch.setenv("HF_TOKEN", "abracadabra")
        _, environment = read(readers, write("x.odd", "environment"))
        assert "abracadabra" not in environment.text

    def test_it_is_replaced_after_many_files(self, readers, write, monkeypatch):
        monkeypatch.setattr(process_module, "_FILES", 2)
        path = write("x.odd", "ok")
        pids = [read(readers, path)[0].metadata["pid"] for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]

    def test_ctrl_c_is_not_for_it(self, readers, write):
        path = write("x.odd", "ok")
        pid = read(readers, path)[0].metadata["pid"]
        os.kill(pid, signal.SIGINT)
        assert read(readers, path)[0].metadata["pid"] == pid


def test_a_module_in_the_folder_that_we_stand_in_is_not_imported(readers, write, monkeypatch):
    path = write("page.html", "<p>text")
    (path.parent / "selectolax.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(path.parent)
    assert read(readers, path)[0].text == "text"


def bomb():
    """A Word document of half a megabyte that unpacks to 2.5 GB."""
    return zipped(**{f"word/{i}.xml": bytes(2**20) for i in range(600)})


HOSTILE = {
    "bomb.docx": (bomb, NotTextError, "unpacks to 629,145,600 bytes.*the limit is 536,870,912"),
    "many.epub": (lambda: zipped(**dict.fromkeys(map(str, range(20_001)), "")), NotTextError,
                  "in 20,001 files"),
    "loop.pdf": (looped, ReadError, "loop.pdf"),
    "line.txt": (lambda: b"x" * 100_000_000, NotTextError, "a line of more than 16,777,216"),
    "line.md": (lambda: b"x " * 50_000_000, NotTextError, "a line of more than 16,777,216"),
    "line.html": (lambda: b"<p>" + b"x " * 50_000_000, ReadError, "line.html"),
    "line.csv": (lambda: b"a\n" + b"x" * 100_000_000, NotTextError, "a line of more than"),
    "deep.json": (lambda: b"[" * 10_000_000, ReadError, "nested too deeply"),
    "deep.rst": (lambda: "\n".join("  " * i + "* x\n" for i in range(1000)), ReadError,
                 "nested too deeply"),
    "scan.pdf": (lambda: pdf([], []), EmptyTextError, "no text"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_bounded_and_listed_and_the_next_one_is_read(readers, write, name):
    make, error, said = HOSTILE[name]
    path = write(name, make())
    with pytest.raises(error, match=said):
        read(readers, path)
    children = psutil.Process().children()
    assert all(child.memory_info().rss < 2**29 for child in children)
    assert read(readers, write("next.pdf", pdf(lines("sound"))))[0].text == "sound"


def test_ten_thousand_levels_of_html_are_read(readers, write):
    assert read(readers, write("deep.html", "<div>" * 10_000 + "deep"))[0].text == "deep"


def test_an_unknown_name_is_read_by_what_the_file_holds(readers, write):
    assert read(readers, write("book.bin", book()))[0].title == "Book"
    assert read(readers, write("README", "plain"))[0].metadata == {"reader": "text/1"}


def test_standard_input_is_read_up_to_the_limit(monkeypatch, tmp_path):
    (tmp_path / "in").write_bytes(b"from a pipe")
    for limit, given in [(11, "from a pipe"), (10, None)]:
        with (tmp_path / "in").open() as file, Readers(max_bytes=limit) as readers:
            monkeypatch.setattr(sys, "stdin", file)
            if given is None:
                with pytest.raises(NotTextError, match="more than 10 bytes.*--max-file-size"):
                    list(readers.read(STDIN, "-"))
            else:
                assert next(readers.read(STDIN, "-")).text == given


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seconds": 0}, "reader seconds are 0"),
        ({"memory": 1000}, "reader memory is 1,000 bytes"),
        ({"options": ReaderOptions(rows=0)}, "rows are 0"),
    ],
)
def test_limits_out_of_range_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        Readers(**options)


def test_closing_twice_is_harmless():
    readers = Readers()
    readers.close()
    readers.close()


def test_a_path_is_read_as_a_path():
    with Readers() as readers, pytest.raises(ReadError, match="gone.pdf cannot be read"):
        list(readers.read(Path("gone.pdf"), "gone.pdf"))
