"""Files that are made to take all time or memory: each is bounded, and the next one is read."""

import io
import zipfile
import zlib

import docx
import pptx
import psutil
import pytest
from pdf_files import assembled, lines, pdf
from test_readers import CONTAINER, book, saved, zipped

from corral.errors import ReadError
from corral.readers.files import Readers

MEMORY = 2**29
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(12))
    + "]>"
)
"""Entities of which the last, &m;, is 10 TB long."""

PAGE = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R >>"
PAGES = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"


def members(raw):
    archive = zipfile.ZipFile(io.BytesIO(raw))
    return {name: archive.read(name) for name in archive.namelist()}


def laughing(raw, member, before):
    """An office document one of whose texts is the entity."""
    parts = members(raw)
    head, _, tail = parts[member].decode().partition("?>")
    assert before in tail
    return zipped(**{**parts, member: f"{head}?>{LAUGHS}{tail.replace(before, f'{before}&m;', 1)}"})


def word():
    document = docx.Document()
    document.add_paragraph("text")
    return saved(document)


def show():
    slides = pptx.Presentation()
    slides.slides.add_slide(slides.slide_layouts[1]).shapes.title.text = "text"
    return saved(slides)


def lying():
    """A Word document whose text is 256 MB long and said to be of 100 bytes."""
    raw = bytearray(zipped(**{**members(word()), "word/document.xml": b" " * 2**28}))
    (place,) = [i.header_offset for i in infolist(raw) if i.filename == "word/document.xml"]
    entry = raw.rfind(b"PK\x01\x02", 0, raw.rfind(b"word/document.xml"))
    for at in (place + 22, entry + 24):
        raw[at : at + 4] = (100).to_bytes(4, "little")
    assert [i.file_size for i in infolist(raw) if i.filename == "word/document.xml"] == [100]
    return bytes(raw)


def infolist(raw):
    return zipfile.ZipFile(io.BytesIO(raw)).infolist()


def deflated():
    """A PDF whose one page is drawn by 640 MB of zeros."""
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(bytes(2**24)) for _ in range(40)) + packer.flush()
    drawn = f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n{packed.decode('latin-1')}"
    return assembled(["<< /Type /Catalog /Pages 2 0 R >>", PAGES, PAGE, f"{drawn}\nendstream"])


def outline_loop():
    """A PDF whose outline's one entry follows itself, and lies in itself."""
    drawn = "BT /F1 12 Tf 50 700 Td (Sound) Tj ET"
    itself = "/Next 6 0 R /First 6 0 R /Last 6 0 R"
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    return assembled([
        "<< /Type /Catalog /Pages 2 0 R /Outlines 5 0 R >>",
        PAGES,
        PAGE.replace(" >>", f" /Resources << /Font << /F1 {font} >> >> >>"),
        f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        "<< /Type /Outlines /First 6 0 R /Last 6 0 R >>",
        f"<< /Title (Sound) {itself} /Parent 5 0 R /Dest [3 0 R /Fit] >>",
    ])  # fmt: skip


def yaml_laughs():
    """A front matter of 20 lists, each of ten times the one before."""
    levels = [f"{chr(98 + i)}: &{chr(98 + i)} [{f'*{chr(97 + i)},' * 10}]\n" for i in range(20)]
    return f"---\na: &a [x]\n{''.join(levels)}---\ntext"


def nested_mail(levels):
    parts = [f"Content-Type: multipart/mixed; boundary=b{i}\n\n--b{i}\n" for i in range(levels)]
    return f"Subject: x\n{''.join(parts)}\ntext"


REFUSED = {
    "laughs.docx": (lambda: laughing(word(), "word/document.xml", "<w:t>"), "amplification"),
    "laughs.pptx": (lambda: laughing(show(), "ppt/slides/slide1.xml", "<a:t>"), "amplification"),
    "laughs.epub": (
        lambda: book(LAUGHS + CONTAINER.replace("<rootfiles>", "<x>&m;</x><rootfiles>")),
        "amplification",
    ),
    "lying.docx": (lying, "more than 536,870,912 bytes of memory"),
    "deflated.pdf": (deflated, "more than 536,870,912 bytes of memory"),
    "deep.md": (lambda: f"---\n{'[' * 100_000}\n---\n", "nested too deeply"),
    "deep.ipynb": (lambda: '{"cells":' + "[" * 100_000, "nested too deeply"),
    "deep.eml": (lambda: nested_mail(2000), "nested too deeply"),
    "number.json": (lambda: f"[{'1' * 5_000_000}]", "no JSON"),
}

LARGE = {"deflated.pdf", "lying.docx"}

READ = {
    "outline.pdf": (outline_loop, "Sound"),
    "laughs.md": (yaml_laughs, None),
    "brackets.md": (lambda: "[" * 100_000, None),
    "quotes.md": (lambda: "> " * 50_000 + "x", None),
    "emphasis.md": (lambda: "# " + "*a **b " * 10_000, None),
    "deep.html": (lambda: "<div>" * 10_000 + "deep", "deep"),
    "format.html": (lambda: "<b>" * 100_000 + "deep", "deep"),
    "links.html": (lambda: "<a><div>" * 10_000 + "deep", "deep"),
    "tables.html": (lambda: "<table><tr><td>" * 10_000 + "deep", "deep"),
}


@pytest.fixture
def read(tmp_path):
    """Read a file made here, within limits; then see that nothing is left of it."""
    with Readers(seconds=30, memory=MEMORY) as readers:

        def read(name, made):
            path = tmp_path / name
            path.write_bytes(made if isinstance(made, bytes) else made.encode())
            return list(readers.read(path, name))

        yield read
        children = psutil.Process().children()
        assert all(child.memory_info().rss < MEMORY for child in children)
        assert read("next.pdf", pdf(lines("sound")))[0].text == "sound"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in REFUSED],
)
def test_what_would_take_all_is_an_error_that_says_so(read, name):
    make, said = REFUSED[name]
    with pytest.raises(ReadError, match=said):
        read(name, make())


@pytest.mark.parametrize("name", READ)
def test_what_only_looks_dangerous_is_read(read, name):
    make, text = READ[name]
    (document,) = read(name, make())
    assert document.text == (text or make())


@pytest.mark.slow
def test_a_page_of_a_million_levels_is_given_up_in_time(tmp_path):
    path = tmp_path / "deep.html"
    path.write_text("<div>" * 1_000_000)
    with Readers(seconds=3, memory=MEMORY) as readers:
        with pytest.raises(ReadError, match="for more than 3 s.*--reader-seconds"):
            list(readers.read(path, path.name))
        path.write_text("<p>sound")
        assert next(readers.read(path, path.name)).text == "sound"
