"""Chunkers and sinks by name, ours and strangers'."""

import sys
import textwrap

import pytest
from chunk_tokenizers import WordTokenizer
from chunker_contract import ChunkerContract

from corral.errors import UsageError
from corral.plugins import CHUNKERS, SINKS, available, load_chunker, load_sink
from corral_chunkers.tokens import TokensChunker
from corral_sinks.qdrant import QdrantSink

STRANGER = """
from corral_chunkers import Chunk, ChunkerError


class Slices:
    settings = property(lambda self: self._settings)

    def __init__(self, tokenizer, *, size, overlap):
        room = size - tokenizer.count("")
        if room < 1:
            raise ChunkerError(f"{size} is no more than {tokenizer.count('')}")
        self._step = max(room // 4, 1)  # no tokenizer here has more tokens for a character
        self._tokenizer = tokenizer
        self._settings = {"size": size, "overlap": overlap}

    def chunk(self, document):
        for start in range(0, len(document.text), self._step):
            text = document.text[start : start + self._step]
            if not text.isspace():
                n_tokens = self._tokenizer.count(text)
                yield Chunk(text=text, start=start, end=start + len(text), n_tokens=n_tokens)
"""


def install(folder, package, code, **entries):
    """Lay a package out as an installer would."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[corral.chunkers]", *lines]))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site-packages")
    install(folder, "stranger", STRANGER, slices="stranger:Slices")
    sys.path.insert(0, str(folder))
    yield "slices"
    sys.path.remove(str(folder))
    sys.modules.pop("stranger", None)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("stranger")
class TestAStrangersChunker(ChunkerContract):
    """The contract suite holds chunkers that it has never seen."""

    def make(self, tokenizer, *, size, overlap):
        return load_chunker("slices")(tokenizer, size=size, overlap=overlap)


def test_our_own_sinks_come_by_their_entry_points():
    assert {"jsonl", "qdrant"} <= set(available(SINKS))
    assert load_sink("qdrant") is QdrantSink


def test_our_own_chunkers_come_by_their_entry_points():
    assert "tokens" in available(CHUNKERS)
    assert load_chunker("tokens") is TokensChunker


def test_a_strangers_chunker_stands_beside_ours(stranger):
    assert {"tokens", stranger} <= set(available(CHUNKERS))
    chunker = load_chunker(stranger)(WordTokenizer(), size=9, overlap=0)
    assert type(chunker).__module__ == "stranger"


def test_an_unknown_name_is_answered_with_the_names_there_are():
    with pytest.raises(UsageError, match=r"no chunker 'tokenz'; installed are: .*tokens"):
        load_chunker("tokenz")


def test_a_chunker_that_cannot_be_imported_names_its_package(site):
    install(site, "broken-one", "import no_such_module", broken="broken_one:Chunker")
    with pytest.raises(UsageError, match="'broken'.*of broken-one.*no_such_module"):
        load_chunker("broken")


def test_a_name_that_two_packages_claim_is_refused_with_both(site):
    install(site, "first-one", "Chunker = dict", twice="first_one:Chunker")
    install(site, "second-one", "Chunker = dict", twice="second_one:Chunker")
    with pytest.raises(UsageError, match=r"first-one.*second-one|second-one.*first-one"):
        load_chunker("twice")
