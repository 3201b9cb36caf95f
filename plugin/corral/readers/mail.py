"""E-mails: the headers that people read, and the text; attachments are named, not read."""

from collections.abc import Iterator
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Final

from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.html import lay_out
from corral.readers.layout import Layout
from corral.reading import decode
from corral_chunkers import Document

__all__ = ["MailReader"]

_HEADERS: Final = ("From", "To", "Cc", "Date")


class MailReader:
    """Reads an .eml with Python's own email package; of an HTML mail what the HTML reader reads."""

    suffixes: Final = (".eml",)
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the mail."""
        mail = BytesParser(policy=policy.default).parsebytes(file.raw)
        headers = {name: " ".join(str(mail[name]).split()) for name in _HEADERS if mail[name]}
        subject = " ".join(str(mail["Subject"] or "").split())
        layout = Layout()
        if subject:
            layout.heading(1, subject)
        for name, value in headers.items():
            layout.end_line()
            layout.verbatim(f"{name}: {value}")
        layout.end_paragraph()
        _body(mail, layout, file.path)
        attached = [part.get_filename() or "" for part in mail.iter_attachments()]
        metadata: dict[str, object] = {name.lower(): value for name, value in headers.items()}
        if names := [name for name in attached if name]:
            metadata["attachments"] = names
        yield layout.document(
            source=file.source, format="eml", title=subject or None, metadata=metadata
        )


def _body(mail: EmailMessage, layout: Layout, path: str) -> None:
    part = mail.get_body(preferencelist=("plain", "html"))
    if part is None:
        return
    raw = part.get_payload(decode=True)
    text = decode(path, bytes(raw), declared=part.get_content_charset(), long_lines=True).text
    text = text.replace("\r\n", "\n")
    if part.get_content_subtype() == "html":
        lay_out(text, layout, path)
    else:
        layout.paragraph(text.rstrip())
