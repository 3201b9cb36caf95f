"""One text in several formats, as Debian ships its manuals: each reader reads the same words."""

import gzip
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from test_readers import read

pytestmark = pytest.mark.slow

LEAST = 0.97
DATA = Path(os.environ.get("CORRAL_TEST_DATA", Path(tempfile.gettempdir()) / "corral-test-data"))
SHIPPED = {
    "developers-reference": {
        "text": "share/developers-reference/developers-reference.txt.gz",
        "html": "share/developers-reference/*.html",
        "pdf": "share/developers-reference/developers-reference.pdf",
        "epub": "share/developers-reference/developers-reference.epub",
    },
    "debian-policy": {
        "text": "share/doc/debian-policy/policy.txt.gz",
        "html": "share/doc/debian-policy/policy.html/*.html",
        "pdf": "share/doc/debian-policy/policy.pdf.gz",
        "epub": "share/doc/debian-policy/policy.epub",
    },
}
# The last holds all chapters once more on one page, with the table of contents as navigation.
NO_TEXT_OF_ITS_OWN = {"genindex.html", "search.html", "developers-reference.html"}


@pytest.fixture(scope="module", params=SHIPPED)
def package(request):
    """The name of a package, and the folder that its files lie in: fetched once, then kept."""
    folder = DATA / request.param
    if not folder.is_dir():
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            pytest.skip(f"{request.param} comes from Debian, and there is no apt-get here")
        with tempfile.TemporaryDirectory() as fetched:
            command = ["apt-get", "download", "-q", request.param]
            if subprocess.run(command, cwd=fetched, capture_output=True, check=False).returncode:
                pytest.skip(f"apt-get could not download {request.param}")
            (archive,) = Path(fetched).glob("*.deb")
            folder.parent.mkdir(parents=True, exist_ok=True)
            unpacked = Path(tempfile.mkdtemp(dir=folder.parent))
            subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True)
            unpacked.rename(folder)
    return request.param, folder / "usr"


def words(package, folder, name):
    counted = Counter()
    files = sorted(folder.glob(SHIPPED[package][name]))
    assert files
    for file in files:
        if file.name not in NO_TEXT_OF_ITS_OWN:
            raw = file.read_bytes()
            raw = gzip.decompress(raw) if file.suffix == ".gz" else raw
            for document in read(name, raw):
                counted.update(re.findall(r"[^\W_]+", document.text.lower()))
    return counted


@pytest.mark.parametrize("name", ["html", "pdf", "epub"])
def test_the_words_are_those_of_the_text(package, name):
    shipped, found = words(*package, "text"), words(*package, name)
    both = (shipped & found).total()
    share = 2 * both / (shipped.total() + found.total())
    print(  # noqa: T201 - the figures of docs/readers.md, with pytest -s
        f"{package[0]} {name}: {share:.4f} (of the text's words {both / shipped.total():.4f}, "
        f"of its own {both / found.total():.4f})"
    )
    assert share >= LEAST
