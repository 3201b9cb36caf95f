"""Bytes of a file to text: the right text or a reason."""

import codecs
import os
import random
import socket
import threading
from pathlib import Path

import pytest
from charset_normalizer import from_bytes
from texts import BLANK_TEXTS, TEXTS

from corral import reading
from corral.errors import EmptyTextError, NotTextError, ReadError
from corral.reading import read_text

FRENCH = "Il était une fois un élève très âgé à l\u2019école. « Où est-il ? » \u2013 20 €"
JAPANESE = "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
CHINESE = "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。"

as_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


@pytest.fixture
def write(tmp_path):
    def write(raw, name="a.txt"):
        path = tmp_path / name
        path.write_bytes(raw)
        return path

    return write


@pytest.mark.parametrize("name", TEXTS)
def test_utf8_comes_back_as_it_is_or_is_refused_for_a_nul(write, name):
    path = write(TEXTS[name].encode())
    if "\0" in TEXTS[name]:
        with pytest.raises(NotTextError, match="NUL byte at offset 6"):
            read_text(path)
    else:
        found = read_text(path)
        assert found.text == TEXTS[name]
        assert (found.encoding, found.guessed) == ("utf-8", False)


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_names_the_encoding_and_is_no_part_of_the_text(write, mark, encoding):
    text = "é 人\r\n🚀 end"
    found = read_text(write(mark + text.encode(encoding)))
    assert (found.text, found.encoding, found.guessed) == (text, encoding, False)


def test_utf16_that_starts_like_a_mark_of_utf32_is_read_as_utf16(write):
    found = read_text(write(codecs.BOM_UTF16_LE + "\0ab".encode("utf-16-le")))
    assert (found.text, found.encoding) == ("\0ab", "utf-16-le")


def test_line_ends_and_unicode_forms_stay_as_they_are(write):
    text = "cafe\u0301 caf\u00e9\r\nold Mac\rUnix\n\n\u2028\x85\x0c end \r\n"
    assert read_text(write(text.encode())).text == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (FRENCH, "cp1252"),
        ("Copyright © 2020 Firma AG, Straße 5. ™®", "cp1252"),
        ("naïve café", "cp1252"),
        ("“Smart” quotes \u2013 and a dash…", "cp1252"),
        (JAPANESE, "cp932"),
        ("日本語", "cp932"),
        (CHINESE, "gb18030"),
        ("中文", "gb18030"),
        ("Съешь же ещё этих мягких французских булок, да выпей чаю.", "cp1251"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "cp1250"),
    ],
)
@pytest.mark.parametrize("times", [1, 10])
def test_other_encodings_are_guessed_from_the_bytes(write, text, encoding, times):
    found = read_text(write((text + "\n").encode(encoding) * times))
    assert found.text == (text + "\n") * times
    assert found.guessed


def test_an_encoding_is_guessed_from_the_lines_that_can_tell(write):
    text = "plain ASCII, line after line\n" * 50_000 + JAPANESE + "\n"
    found = read_text(write(text.encode("cp932")))
    assert (found.text == text, found.encoding) == (True, "cp932")


def test_guessing_takes_no_longer_for_more_bytes_than_reading_them(write, monkeypatch):
    looked_at = []

    def guess(raw, **options):
        looked_at.append(len(raw))
        return from_bytes(raw, **options)

    monkeypatch.setattr("corral.reading.from_bytes", guess)
    for times in (2_000, 200_000):
        assert read_text(write((FRENCH + "\n").encode("cp1252") * times)).encoding == "cp1252"
    few, many = looked_at
    assert few == many


def test_a_guess_that_does_not_fit_the_whole_file_gives_way_to_the_next(write, monkeypatch):
    monkeypatch.setattr(reading, "_guesses", lambda _raw: iter(["ascii", "cp1252"]))
    assert read_text(write(FRENCH.encode("cp1252"))).text == FRENCH


def test_what_no_encoding_fits_is_refused_with_a_way_out(write, monkeypatch):
    monkeypatch.setattr(reading, "_guesses", lambda _raw: iter(["ascii"]))
    with pytest.raises(NotTextError, match=r"not UTF-8.*cp1252.*iconv"):
        read_text(write(FRENCH.encode("cp1252")))


def test_nothing_guessed_leaves_the_commonest_encoding():
    assert list(reading._guesses("naïve café ©®™".encode("cp1252")))[-1] == "cp1252"


def test_a_damaged_file_with_a_mark_of_utf8_is_not_read_with_holes(write):
    text = read_text(write(codecs.BOM_UTF8 + b"caf\xe9 and more caf\xe9s in the caf\xe9")).text
    assert "\ufffd" not in text


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"%PDF-1.7\n1 0 obj", "a PDF"),
        (b"PK\x03\x04abc", "a ZIP archive"),
        (b"\x89PNG\r\n\x1a\nabc", "a PNG image"),
        (b"\x1f\x8babc", "gzip"),
        (b"GGUF\x03abc", "a GGUF model"),
        (b"text with \0 in it", "NUL byte at offset 10"),
        ("UTF-16 of nobody's marking".encode("utf-16-le"), "NUL byte at offset 1.*UTF-16"),
        (b"\x01\x02\x03\x04 noise \xff", "4 of its 12 bytes are control characters"),
        (random.Random(1).randbytes(5000).replace(b"\0", b""), "control characters"),
    ],
)
def test_a_binary_file_is_refused_for_what_it_is(write, raw, reason):
    with pytest.raises(NotTextError, match=reason) as error:
        read_text(write(raw))
    assert "a.txt" in str(error.value)


@pytest.mark.parametrize("name", [name for name in BLANK_TEXTS if BLANK_TEXTS[name].isspace()])
def test_white_space_alone_is_told_apart(write, name):
    with pytest.raises(EmptyTextError, match="nothing but white space"):
        read_text(write(BLANK_TEXTS[name].encode()))


@pytest.mark.parametrize("raw", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE])
def test_an_empty_file_is_told_apart(write, raw):
    with pytest.raises(EmptyTextError, match="white space" if raw else "is empty"):
        read_text(write(raw))


def test_the_limit_of_size_is_stated_with_the_way_out(write):
    path = write(b"x" * 1001)
    assert len(read_text(path, max_bytes=1001).text) == 1001
    with pytest.raises(NotTextError, match=r"1,001 bytes; the limit is 1,000.*--max-file-size"):
        read_text(path, max_bytes=1000)


def test_a_file_over_the_limit_is_not_read(tmp_path):
    path = tmp_path / "sparse.txt"
    with path.open("wb") as file:
        file.truncate(2 * 2**30)
    with pytest.raises(NotTextError, match="2,147,483,648 bytes"):
        read_text(path)


def test_a_fifo_is_refused_at_once(tmp_path):
    path = tmp_path / "pipe.txt"
    os.mkfifo(path)
    refusals = []

    def read():
        with pytest.raises(NotTextError, match="a FIFO") as error:
            read_text(path)
        refusals.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(10)
    assert len(refusals) == 1


def test_folders_and_devices_are_refused(tmp_path):
    with pytest.raises(NotTextError, match="a folder"):
        read_text(tmp_path)
    with pytest.raises(NotTextError, match="a device"):
        read_text(Path("/dev/null"))


def test_a_socket_is_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.txt"))
        with pytest.raises(ReadError, match=r"s\.txt"):
            read_text(tmp_path / "s.txt")


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(ReadError, match=r"gone\.txt cannot be read: No such file"):
        read_text(tmp_path / "gone.txt")


@as_root
def test_what_may_not_be_read_is_told(write):
    path = write(b"secret")
    path.chmod(0)
    with pytest.raises(ReadError, match="Permission denied"):
        read_text(path)


def test_what_the_system_refuses_is_told(monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reading.os, "open", fail)
    with pytest.raises(ReadError, match=r"a\.txt cannot be read: Permission denied"):
        read_text(Path("a.txt"))


@pytest.mark.parametrize("n_bytes", [3, 30], ids=["shrinks", "grows"])
def test_a_file_that_changes_while_it_is_read_is_not_taken_for_whole(write, monkeypatch, n_bytes):
    path = write(b"0123456789")
    fstat = os.fstat

    def change_after_the_first_look(descriptor):
        found = fstat(descriptor)
        if found.st_size == 10:
            os.truncate(path, n_bytes)
        return found

    monkeypatch.setattr(reading.os, "fstat", change_after_the_first_look)
    with pytest.raises(ReadError, match=f"changed while.*had 10 bytes, then {n_bytes}") as error:
        read_text(path)
    assert not isinstance(error.value, NotTextError)


def test_a_file_that_is_overwritten_in_place_is_not_taken_for_whole(write, monkeypatch):
    path = write(b"0123456789")
    looks = []

    def overwrite_after_the_first_look(descriptor):
        looks.append(fstat(descriptor))
        if len(looks) == 1:
            os.utime(path, ns=(1, 1))
        return looks[-1]

    fstat = os.fstat
    monkeypatch.setattr(reading.os, "fstat", overwrite_after_the_first_look)
    with pytest.raises(ReadError, match="changed while"):
        read_text(path)


def test_a_name_with_a_line_feed_and_bytes_that_are_no_utf8_is_opened(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\n\xff.txt"))
    path.write_bytes(b"text")
    assert read_text(path).text == "text"
