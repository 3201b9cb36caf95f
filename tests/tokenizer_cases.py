"""Texts that tokenizers are tried on: the shared awkward ones, more of their kind, and XQuAD."""

# ruff: noqa: RUF001 - letters of other scripts are what these texts are about

import json
from pathlib import Path
from typing import Final

from texts import BLANK_TEXTS, TEXTS

__all__ = ["ALL", "XQUAD"]

_EXTRA: Final = {
    "blank run": "x" + " " * 40 + "y",
    "tabs": "a\t\tb\t\t\tc",
    "line feeds": "a\n\nb\n\n\n\nc\r\n\r\nd",
    "leading blanks": "  two  words   ",
    "lower one eighth block": "▁a▁▁b ▁",
    "double hashes": "##ing ##a # #1",
    "marks alone": "\u0301\u0323\u0301",
    "apostrophes": "it's IT'S they'LL we’re I'd'ye 'tis",
    "numbers": "1234567 3.14159 1,000,000 ٤٥٦ ⅚ 2²",
    "dotted capital": "İİ I ı ẞ ß ŉ ǰ",
    "byte tokens": "<0x41><0x0A> <0xE4>",
    "Hindi": "यहाँ की राजधानी नई दिल्ली है, और क़िले बहुत पुराने हैं। ज़िंदगी में पढ़ाई ज़रूरी है।",
    "no spaces": "abcdefghij0123456789" * 60,
}

ALL: Final = {**TEXTS, **BLANK_TEXTS, **{f"more: {name}": text for name, text in _EXTRA.items()}}
"""By name; none has a lone surrogate."""


def _xquad(language: str) -> list[str]:
    folder = Path(__file__).parents[2] / "shared" / "data" / f"xquad-{language}"
    corpus = folder / "corpus.jsonl"
    if not corpus.is_file():
        return []
    with corpus.open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


XQUAD: Final = {language: _xquad(language) for language in ("en", "de", "zh")}
"""Paragraphs by language; none where the data do not lie beside the checkout."""
