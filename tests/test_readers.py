"""What each reader makes of a file of its format; the files are made by libraries of the format."""

import csv
import io
import json
import sys
import zipfile
from email.message import EmailMessage

import docx
import nbformat
import pptx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pdf_files import lines, pdf
from pptx.util import Inches
from texts import TEXTS

from corral.errors import EmptyTextError, NotTextError, ReadError
from corral.readers import RawFile, ReaderOptions, calls, records, wire
from corral.readers.registry import reader_for, readers, suffixes
from corral_chunkers import Document, Heading
from corral_chunkers.headings import markdown_outline


def read(name, raw, source=None, **options):
    """All documents that a reader gives, in this process."""
    raw = raw.encode() if isinstance(raw, str) else raw
    file = RawFile(raw=raw, path=f"docs/{source or name}", source=source or f"x.{name}")
    return list(calls.documents(readers()[name], file, ReaderOptions(**options)))


def read_one(name, raw, source=None, **options):
    (document,) = read(name, raw, source, **options)
    check(document)
    return document


def check(document):
    """What every reader promises of headings and pages."""
    starts = [heading.start for heading in document.headings]
    assert starts == sorted(starts)
    for heading in document.headings:
        words = heading.text.split()
        assert words[0] in document.text[heading.start :].split("\n")[0]
        assert 1 <= heading.level <= 6
        assert heading.text == " ".join(words)
    assert list(document.pages) == sorted(document.pages)
    assert all(0 <= start <= len(document.text) for start in document.pages)
    json.dumps(document.metadata, allow_nan=False)


def test_every_kind_that_is_promised_has_a_reader():
    promised = [
        ".txt",
        ".md",
        ".rst",
        ".html",
        ".htm",
        ".pdf",
        ".docx",
        ".pptx",
        ".epub",
        ".csv",
        ".tsv",
        ".json",
        ".jsonl",
        ".ipynb",
        ".eml",
        ".py",
        ".c",
        ".rs",
        ".go",
        ".js",
        ".java",
        ".yaml",
        ".toml",
        ".xml",
    ]
    assert set(promised) <= set(suffixes())


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("a.txt", b"%PDF-1.4", "text"),
        ("A.PDF", b"", "pdf"),
        ("a.b.tsv", b"", "csv"),
        ("notes", b"%PDF-1.4", "pdf"),
        ("-", b"\n<!DOCTYPE html><p>x", "html"),
        ("-", b"plain", "text"),
        ("-", b"PK\x03\x04 and nothing more", "text"),
        ("README", b"", "text"),
    ],
)
def test_a_files_name_decides_its_reader_and_else_its_first_bytes(name, raw, expected):
    assert reader_for(name, raw).name == expected


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("reader", ["text", "markdown", "rst", "code"])
def test_text_formats_give_the_text_as_it_is(name, reader):
    text = TEXTS[name]
    if "\0" in text or not text.strip():
        return
    document = read_one(reader, text, "a.py" if reader == "code" else None)
    assert document.text == text


class TestMarkdown:
    def test_headings_stand_at_their_lines_without_markup(self):
        text = (
            "Intro\r\n\r\n# A *big* `thing`\r\n\ntext\n\nSet\next\n---\n> # quoted\n\n"
            "### [L](u) &amp; x\n"
        )
        document = read_one("markdown", text)
        assert [(h.level, h.text) for h in document.headings] == [
            (1, "A big thing"), (2, "Set ext"), (3, "L & x"),
        ]  # fmt: skip
        assert [text[h.start :][:3] for h in document.headings] == ["# A", "Set", "###"]
        assert document.title == "A big thing"
        assert document.format == "markdown"

    def test_what_only_looks_like_a_heading_is_none(self):
        text = "```\n# code\n```\n\n    # code\n\n| a |\n|---|\n| # b |\n\n<!--\n# no\n-->\n#no\n"
        assert markdown_outline(text).headings == ()

    def test_the_front_matter_names_title_and_language_and_is_no_heading(self):
        document = read_one("markdown", "---\ntitle: The  Book\nlang: de\nn: 3\n---\n# First\n")
        assert (document.title, document.language) == ("The Book", "de")
        assert [h.text for h in document.headings] == ["First"]
        assert read_one("markdown", "---\n{[ no\n---\n# First\n").title == "First"

    @given(st.text(alphabet=st.sampled_from("#=- \t\n\r`>*ab"), min_size=1, max_size=60))
    def test_any_text_has_headings_at_lines_of_its_own(self, text):
        for heading in markdown_outline(text).headings:
            assert heading.start == 0 or text[heading.start - 1] in "\r\n"


class TestRst:
    def test_sections_are_found_with_their_levels(self):
        text = (
            "=====\nBook\n=====\n\nOne ``x``\n---------\ntext\n\n::\n\n  No\n  ==\n\nTwo\n---\n\n"
            "A\n~\n\n:ref:`S <s>`\n~~~~~~~~~~~~\n"
        )
        document = read_one("rst", text)
        assert [(h.level, h.text) for h in document.headings] == [
            (1, "Book"), (2, "One x"), (2, "Two"), (3, "A"), (3, "S"),
        ]  # fmt: skip
        assert text[document.headings[1].start :].startswith("One")
        assert document.title == "Book"

    def test_no_file_of_ours_is_read_for_it(self, tmp_path):
        secret = tmp_path / "secret.txt"
        secret.write_text("Secret\n======\n")
        text = f"T\n=\n\n.. include:: {secret}\n\n.. raw:: html\n   :file: {secret}\n"
        assert [h.text for h in read_one("rst", text).headings] == ["T"]


PAGE = """<!doctype html><html lang="fr"><head><title> The
 page </title><style>p{}</style></head><body>
<header>Site name</header><nav>Home | About</nav>
<main><h1>One <em>head</em></h1><script>var x</script>
<p>First   line<br>second &amp; last.</p><h2>Two</h2>
<ul><li><p>apple</p></li><li>pear<ol start=3><li>deep</li></ol></li></ul>
<pre>  keep
    this</pre><table><tr><th>a<th>b<tr><td>1<td>2</table>
<p hidden>not seen</p><p>end<a class="headerlink" href="#">¶</a></p></main>
<aside>Ads</aside><footer>Imprint</footer></body></html>"""


class TestHtml:
    def test_the_main_text_is_kept_and_the_rest_left_out(self):
        document = read_one("html", PAGE)
        assert document.text == (
            "One head\n\nFirst line\nsecond & last.\n\nTwo\n\n- apple\n\n- pear\n\n1. deep\n\n"
            "  keep\n    this\n\na | b\n1 | 2\n\nend"
        )
        assert document.headings == (Heading(0, 1, "One head"), Heading(37, 2, "Two"))
        assert (document.title, document.language) == ("The page", "fr")

    def test_of_a_page_without_a_main_part_the_furniture_goes(self):
        page = PAGE.replace("<main>", "<div>").replace("</main>", "</div>")
        text = read_one("html", page).text
        assert not [word for word in ("Site", "Home", "Ads", "Imprint", "var") if word in text]
        assert read_one("html", page).text == read_one("html", PAGE).text
        article = "<article><header>By Ann</header>Text</article><article>More</article>"
        assert read_one("html", article).text == "By Ann\n\nText\n\nMore"

    def test_an_encoding_that_the_page_declares_is_taken(self):
        page = '<meta charset="iso-8859-1"><p>caf\u00e9 \u20ac</p>'
        assert read_one("html", page.encode("cp1252")).text == "caf\u00e9 \u20ac"
        assert read_one("html", page.encode()).text == "caf\u00e9 \u20ac"
        japanese = (
            '<meta http-equiv="x" content="text/html; charset=iso-2022-jp"><p>\u65e5\u672c</p>'
        )
        assert read_one("html", japanese.encode("iso-2022-jp")).text == "\u65e5\u672c"
        assert read_one("html", b"<meta charset=nonsense><p>plain</p>").text == "plain"

    def test_ten_thousand_levels_are_read(self):
        assert read_one("html", "<div>" * 10_000 + "deep").text == "deep"

    def test_a_title_is_the_first_heading_where_the_page_names_none(self):
        assert read_one("html", "<h3>Only</h3>x").title == "Only"
        assert read_one("html", "x").title is None


class TestPdf:
    def test_pages_title_language_and_paragraphs_are_told(self):
        raw = pdf(
            lines("First line of it", "goes on here.") + lines("A second one", top=640),
            [],
            lines("Last page."),
            info="/Title (The title)",
        )
        document = read_one("pdf", raw)
        assert document.text == "First line of it\ngoes on here.\n\nA second one\n\nLast page."
        assert document.pages == (0, 46, 46)
        assert (document.title, document.language) == ("The title", "en-GB")

    def test_the_order_of_writing_is_the_order_of_reading(self):
        left = lines("left one", "left two", "left three")
        right = lines("right one", "right two", left=320)
        text = read_one("pdf", pdf(left + right)).text
        assert " ".join(text.split()) == "left one left two left three right one right two"

    def test_words_broken_at_a_lines_end_are_joined_and_hyphens_kept(self):
        raw = pdf(
            lines("An exam-", "ple and a well-", "known case of non-", "Debian things."),
            lines("It is well-known that it is so."),
        )
        text = " ".join(read_one("pdf", raw).text.split())
        assert "An example and a well-known case of non-Debian things." in text

    def test_running_lines_and_page_numbers_go_and_stay_once(self):
        pages = [
            lines("The Report 2020", "-", "a", f"Text of page {n}", "b", "-", f"Page {n + 6}")
            for n in range(1, 6)
        ]
        text = read_one("pdf", pdf(*pages)).text
        assert text.count("The Report 2020") == 1
        assert text.count("Page ") == 1
        assert all(f"Text of page {n}" in text for n in range(1, 6))

    def test_the_outline_gives_headings_where_its_titles_stand(self):
        pages = [lines("Chapter  One", "text"), lines("of Two, and", "Chapter", "Two", "text")]
        document = read_one("pdf", pdf(*pages, outline=[("Chapter One", 0), ("Chapter Two", 1)]))
        assert [(h.level, h.text) for h in document.headings] == [
            (1, "Chapter One"), (1, "Chapter Two"),
        ]  # fmt: skip
        assert document.text[document.headings[1].start :] == "Chapter\nTwo\ntext"
        absent = read_one("pdf", pdf(*pages, outline=[("Elsewhere", 0), ("", 1)]))
        assert absent.headings == ()

    def test_a_scan_is_reported_as_having_no_text(self):
        with pytest.raises(
            EmptyTextError, match=r"has 2 pages and no text: it is scanned.*ocrmypdf"
        ):
            read("pdf", pdf([], []))

    @pytest.mark.parametrize("raw", [b"", b"no PDF", pdf(lines("x"))[:200]])
    def test_a_damaged_one_is_an_error(self, raw):
        with pytest.raises(ReadError, match="cannot be read as"):
            read("pdf", raw)


def saved(document):
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


class TestOffice:
    def test_a_word_document_keeps_its_order_headings_lists_and_tables(self):
        word = docx.Document()
        word.core_properties.title, word.core_properties.language = "Set", "de"
        word.add_heading("The title", level=0)
        word.add_heading("First", level=1)
        word.add_paragraph("Some text,\nwith a line end.")
        word.add_paragraph("an item", style="List Bullet")
        table = word.add_table(rows=2, cols=2)
        table.rows[0].cells[0].merge(table.rows[0].cells[1]).text = "over both"
        table.rows[1].cells[0].text, table.rows[1].cells[1].text = "left", "right"
        word.add_heading("Second", level=2)
        document = read_one("docx", saved(word))
        assert document.text == (
            "The title\n\nFirst\n\nSome text,\nwith a line end.\n\n- an item\n\nover both\n"
            "left | right\n\nSecond"
        )
        assert [(h.level, h.text) for h in document.headings] == [
            (1, "The title"), (1, "First"), (2, "Second"),
        ]  # fmt: skip
        assert (document.title, document.language) == ("Set", "de")

    def test_footnotes_stand_at_the_end(self):
        raw = with_footnote(saved(docx.Document()), "A note.")
        assert read_one("docx", raw).text == "A note."

    def test_slides_are_pages_with_titles_tables_groups_and_notes(self):
        show = pptx.Presentation()
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = "Welcome"
        slide.placeholders[1].text = "point one\npoint two"
        show.slides.add_slide(show.slide_layouts[6])
        last = show.slides.add_slide(show.slide_layouts[6])
        table = last.shapes.add_table(1, 2, 0, 0, Inches(2), Inches(1)).table
        table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
        last.shapes.add_group_shape().shapes.add_textbox(0, 0, 9, 9).text_frame.text = "grouped"
        last.notes_slide.notes_text_frame.text = "say this"
        document = read_one("pptx", saved(show))
        first = "Welcome\n\npoint one\npoint two\n\n"
        assert document.text == f"{first}a | b\n\ngrouped\n\nsay this"
        assert document.pages == (0, len(first), len(first))
        assert document.headings == (Heading(0, 1, "Welcome"),)

    def test_an_archive_of_another_kind_is_refused(self):
        for name in ("docx", "pptx", "epub"):
            with pytest.raises(NotTextError, match="not what its name says"):
                read(name, b"PK\x03\x04 no archive")
            with pytest.raises(ReadError):
                read(name, zipped(**{"a.txt": "x"}))

    def test_formats_in_archives_are_told_apart_by_their_parts(self):
        assert reader_for("-", saved(docx.Document())).name == "docx"
        assert reader_for("-", saved(pptx.Presentation())).name == "pptx"
        assert reader_for("-", book()).name == "epub"
        assert reader_for("-", zipped(a="b")).name == "text"


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def with_footnote(raw, text):
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    old = zipfile.ZipFile(io.BytesIO(raw))
    members = {name: old.read(name) for name in old.namelist()}
    rels = "word/_rels/document.xml.rels"
    members[rels] = members[rels].replace(
        b"</Relationships>",
        f'<Relationship Id="rIdN" Type="{kind}" Target="notes.xml"/></Relationships>'.encode(),
    )
    members["word/notes.xml"] = (
        f'<w:footnotes xmlns:w="{space}"><w:footnote><w:p><w:r><w:t>{text}</w:t></w:r></w:p>'
        "</w:footnote><w:footnote/></w:footnotes>"
    )
    return zipped(**members)


CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="O/b.opf"/></rootfiles></container>"""


def book(container=CONTAINER, **changed):
    package = """<package xmlns="http://www.idpf.org/2007/opf"
    xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>Book</dc:title>
    <dc:language>en</dc:language></metadata><manifest>
    <item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
    <item id="b" href="two%20b.xhtml" media-type="application/xhtml+xml"/>
    <item id="a" href="t/one.xhtml#x" media-type="application/xhtml+xml"/>
    <item id="i" href="i.png" media-type="image/png"/></manifest>
    <spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/><itemref idref="i"/></spine>
    </package>"""
    members = {
        "META-INF/container.xml": container,
        "O/b.opf": package,
        "O/t/one.xhtml": "<h1>One</h1><p>first</p>",
        "O/two b.xhtml": "<h1>Two</h1><p>second</p>",
        "O/nav.xhtml": "<ol><li>One</ol>",
        **changed,
    }
    return zipped(**members)


class TestEpub:
    def test_chapters_come_in_the_order_of_the_spine(self):
        document = read_one("epub", book())
        assert document.text == "One\n\nfirst\n\nTwo\n\nsecond"
        assert [h.text for h in document.headings] == ["One", "Two"]
        assert (document.title, document.language) == ("Book", "en")

    def test_a_part_that_is_missing_is_damage(self):
        with pytest.raises(ReadError, match="names a part 'gone.opf', which is not in it"):
            read("epub", book(CONTAINER.replace("O/b.opf", "gone.opf")))

    def test_entities_are_not_expanded(self):
        bomb = '<!DOCTYPE c [<!ENTITY a "aaaa">' + "".join(
            f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(20)
        )
        container = CONTAINER.replace("<rootfiles>", "<x>&u;</x><rootfiles>")
        with pytest.raises(ReadError, match="entity"):
            read("epub", book(f"{bomb}]>{container}"))


class TestRecords:
    def test_a_row_is_a_document_with_the_header_at_each_cell(self):
        rows = read("csv", 'name,note\nAnn,"a\nb"\n\nBob,\nCid,x,more\n')
        assert [row.text for row in rows] == [
            "name: Ann\nnote: a\nb", "name: Bob", "name: Cid\nnote: x\ncolumn 3: more",
        ]  # fmt: skip
        assert [row.metadata["record"] for row in rows] == [2, 4, 5]
        assert len({row.source for row in rows}) == 3
        assert all(row.source.startswith("x.csv#") for row in rows)

    @pytest.mark.parametrize(
        ("delimiter", "name"), [("\t", "a.tsv"), (";", "a.csv"), ("|", "a.csv")]
    )
    def test_the_delimiter_is_found(self, delimiter, name):
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter).writerows([["a", "b"], ["1, 2", "3"]])
        (row,) = read("csv", out.getvalue(), name)
        assert row.text == "a: 1, 2\nb: 3"

    def test_a_row_that_is_put_in_renames_no_other(self):
        old = {row.source for row in read("csv", "a\nx\ny\ny\n")}
        new = {row.source for row in read("csv", "a\nnew\nx\ny\ny\n")}
        assert len(old) == 3
        assert old < new

    def test_rows_can_be_grouped(self):
        first, second = read("csv", "a\n1\n2\n3\n", rows=2)
        assert (first.text, second.text) == ("a: 1\n\na: 2", "a: 3")

    @pytest.mark.parametrize("name", ["json", "jsonl"])
    def test_fields_become_text_metadata_and_name(self, name):
        records = [
            {"id": "a/b", "t": "Hello", "m": {"by": "Ann"}, "tags": [1]},
            {"id": 2, "t": "World", "m": {}, "b": None},
        ]
        raw = json.dumps(records) if name == "json" else "\n".join(map(json.dumps, records)) + "\n"
        first, second = read(
            name, raw, text_fields=("t", "m.by"), metadata_fields=("tags", "m.by"), id_field="id"
        )
        assert (first.text, second.text) == ("Hello\n\nAnn", "World")
        assert first.source == f"x.{name}#a%2Fb"
        assert second.source == f"x.{name}#2"
        assert first.metadata == {"tags": [1], "m.by": "Ann", "record": 1}
        assert second.metadata == {"tags": None, "m.by": None, "record": 2}

    def test_without_a_text_field_all_fields_are_the_text(self):
        (document,) = read("json", '{"a": "x", "n": {"b": [1, "é"]}, "none": null, "f": NaN}')
        assert document.text == 'a: x\nn: {"b": [1, "é"]}\nf: NaN'
        assert [d.text for d in read("jsonl", '"one"\n\n[2]\n')] == ["one", "[2]"]

    @pytest.mark.parametrize(
        ("raw", "options", "said"),
        [
            ('{"a": 1}\n{', {}, "line 2 of docs/jsonl is no JSON"),
            ('{"a": 1}', {"text_fields": ("t",)}, r"record 1 .*no field 't' \(--text-field\).*'a'"),
            ('{"a": 1}', {"id_field": "id"}, "record 1 .*has no field 'id'"),
            ('{"id": 1, "a": 1}\n{"id": "1"}', {"id_field": "id"}, "records 1 and 2 .*same id '1'"),
        ],
    )
    def test_what_is_wrong_with_a_record_is_said(self, raw, options, said):
        with pytest.raises(ReadError, match=said):
            read("jsonl", raw, **options)

    @pytest.mark.parametrize(
        ("reader", "raw"),
        [
            (records.JsonLinesReader(), b'{"id": 1}\n{"id": 2}\n{'),
            (records.CsvReader(), b"id,a\n1,x\n2,y\n1,z\n"),
            (records.JsonReader(), b'[{"id": 1}, {"a": 2}]'),
        ],
    )
    def test_a_file_with_a_bad_record_gives_none(self, reader, raw):
        read_so_far = []
        with pytest.raises(ReadError):
            read_so_far += reader.read(
                RawFile(path="x", source="x", raw=raw), ReaderOptions(id_field="id")
            )
        assert read_so_far == []

    def test_no_record_is_no_text(self):
        for name, raw in [("csv", "a,b\n"), ("json", "[]"), ("jsonl", "\n"), ("json", '{"a": ""}')]:
            with pytest.raises(EmptyTextError):
                read(name, raw)

    def test_what_nests_too_deeply_is_an_error(self):
        with pytest.raises(ReadError, match="nested too deeply"):
            read("json", "[" * 100_000)


class TestNotebook:
    def test_cells_become_markdown_and_code_in_fences(self):
        made = nbformat.v4.new_notebook(metadata={"language_info": {"name": "python"}})
        made.cells = [
            nbformat.v4.new_markdown_cell("# Title\n\ntext", id="a"),
            nbformat.v4.new_code_cell("# no heading\nprint('```')", id="b"),
            nbformat.v4.new_code_cell("", id="c"),
        ]
        document = read_one("notebook", nbformat.writes(made))
        assert document.text == "# Title\n\ntext\n\n````python\n# no heading\nprint('```')\n````"
        assert document.format == "markdown"
        assert [h.text for h in document.headings] == ["Title"]
        assert document.title == "Title"

    @pytest.mark.parametrize("raw", ["{", "[]", '{"nbformat": 4}'])
    def test_what_is_no_notebook_is_refused(self, raw):
        with pytest.raises(ReadError):
            read("notebook", raw)


class TestMail:
    def test_headers_text_and_attachments_are_told(self):
        mail = EmailMessage()
        mail["Subject"], mail["From"], mail["To"] = (
            "Lambs \u00e9",
            "Ann <a@example.org>",
            "b@example.org",
        )
        mail.set_content("Two lambs.\n\nGreetings\n")
        mail.add_alternative("<p>Two <b>lambs</b>.</p>", subtype="html")
        mail.add_attachment(b"x", maintype="image", subtype="png", filename="lamb.png")
        document = read_one("eml", mail.as_bytes())
        assert document.text == (
            "Lambs \u00e9\n\nFrom: Ann <a@example.org>\nTo: b@example.org\n\n"
            "Two lambs.\n\nGreetings"
        )
        assert document.title == "Lambs \u00e9"
        assert document.metadata == {
            "from": "Ann <a@example.org>", "to": "b@example.org", "attachments": ["lamb.png"],
        }  # fmt: skip

    def test_a_mail_of_html_alone_is_read_as_html(self):
        mail = EmailMessage()
        mail.set_content("<h1>Hi</h1><script>x</script>", subtype="html")
        assert read_one("eml", mail.as_bytes()).text == "Hi"

    def test_a_mail_without_text_is_its_headers(self):
        assert read_one("eml", "Subject: s\nContent-Type: image/png\n\nx").text == "s"


def test_a_library_that_is_not_installed_is_named_with_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    for name, package in [("html", "selectolax"), ("pdf", "pypdfium2")]:
        with pytest.raises(NotTextError, match=rf"{package}.*pip install 'corral\[readers\]'"):
            read(name, "<p>x</p>")


def test_documents_and_errors_go_through_the_wire_whole():
    document = Document(
        text="a\udc80\n\U0001f411", source="x#1", metadata={"n": [1, None]}, format="pdf",
        title="t", headings=(Heading(0, 1, "a"), Heading(1, 2, "b", 3)), pages=(0, 2),
        language="en",
    )  # fmt: skip
    assert wire.unpack(wire.pack_document(document)) == document
    assert wire.unpack(wire.END) is None
    for error in (EmptyTextError("e"), NotTextError("n"), ReadError("r")):
        back = wire.unpack(wire.pack_error(error))
        assert (type(back), str(back)) == (type(error), str(error))
    file = RawFile(raw=b"x", path="p\udc80", source="s")
    options = ReaderOptions(text_fields=("a",), id_field="i", rows=3)
    assert wire.unpack_request(wire.pack("csv", file, options), b"x") == ("csv", file, options)
