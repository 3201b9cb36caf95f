"""Texts that tokenizers are tried on: scripts, code, and what usually goes wrong."""

# ruff: noqa: RUF001 - letters of other scripts are what these texts are about

import json
from pathlib import Path

__all__ = ["AWKWARD", "CODE", "SCRIPTS", "xquad"]

SCRIPTS = {
    "arabic": (
        "تُعدّ اللغة العربية من أكثر اللغات انتشارًا في العالم، ويتحدّث بها أكثر من ٤٥٠ مليون نسمة. "
        "هل تعلم أنّ المدينة القديمة بُنيت قبل ألف عام؟"
    ),
    "bengali": "বাংলা ভাষা দক্ষিণ এশিয়ার একটি প্রধান ভাষা। সবাই কেমন আছেন আজকে?",
    "chinese": "长江是亚洲第一长河，全长约六千三百公里。他们昨天去了图书馆，借了三本书。",
    "czech": "Příliš žluťoučký kůň úpěl ďábelské ódy, a to už popáté během 24 hodin.",
    "german": "Die Straßenbahn fährt um 7:45 Uhr über die Brücke; Größe und Maß stimmen überein.",
    "greek": "Το Αιγαίο Πέλαγος έχει πολλά νησιά, και ο ήλιος λάμπει σχεδόν όλον τον χρόνο.",
    "hebrew": "השפה העברית נכתבת מימין לשמאל, וְלִפְעָמִים עִם נִקּוּד. מה שלומך היום?",
    "hindi": (
        "भारत दक्षिण एशिया में स्थित एक विशाल देश है। यहाँ की राजधानी नई दिल्ली है, और क़िले "
        "बहुत पुराने हैं। ज़िंदगी में पढ़ाई सबसे ज़रूरी है।"
    ),
    "japanese": "東京タワーは1958年に完成した電波塔です。ガギグゲゴとパピプペポを練習しましょう。",
    "korean": (
        "대한민국의 수도는 서울이며, 한강이 도시를 가로질러 흐른다. 학생들은 어제 도서관에서 "
        "책을 세 권 빌렸습니다. 값싼 닭고기를 먹었다."
    ),
    "russian": "Ёжик в тумане искал медвежонка; их встреча была назначена на 19:30 у реки.",
    "tamil": "தமிழ் மொழி மிகவும் பழமையான மொழிகளில் ஒன்றாகும். நீங்கள் எப்படி இருக்கிறீர்கள்?",
    "thai": (
        "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย มีประชากรมากกว่าสิบล้านคน "
        "นักเรียนไปห้องสมุดเพื่อยืมหนังสือสามเล่ม น้ำใจเป็นสิ่งสำคัญ"
    ),
    "turkish": "İstanbul'da ışıklar söndü; IĞDIR ve ığdır aynı yer mi? Çok güzel bir gün.",
    "vietnamese": "Tiếng Việt có sáu thanh điệu; Nguyễn Ái Quốc đã viết rất nhiều bài thơ.",
}

CODE = {
    "python": (
        "def f(x: int = 0x1F, *args, **kw) -> dict[str, float]:\n"
        '    """It\'s a docstring."""\n'
        "    if x>=10 and x!=12:\n\t\treturn {k: 1e-3*v for k, v in kw.items()}  # don't\n"
    ),
    "c": '#include <stdio.h>\r\nint main(void) { for(;;){ puts("a\\tb"); } }\r\n\r\n',
    "json": '{"a":[1,2,3],"b":{"c":null,"d":"\\u00e9"},  "e":-1.5E+10}',
    "shell": "$ grep -rn 'TODO' ./src | awk -F: '{print $1}' | sort -u > /tmp/out_$(date +%s).txt",
    "urls": "https://example.org/a/b?q=1&r=%20x#frag ftp://user@host:21/path.tar.gz mailto:a@b.de",
}

AWKWARD = {
    "empty": "",
    "blank": " ",
    "blanks": "   \t \n\n  \r\n ",
    "leading and trailing blanks": "  two  words   ",
    "one letter": "x",
    "long word": "A" * 300,
    "word of 100": "b" * 100,
    "word of 101": "b" * 101,
    "no spaces": "abcdefghij0123456789" * 60,
    "NUL": "before\0after",
    "controls": "a\x01b\x02c\x1b[0m\x7fd\x85e",
    "zero width": "zero\u200bwidth\u200d joiner\u2060 \ufeffbom",
    "soft hyphen": "soft\u00adhyphen",
    "replacement": "bad \ufffd character",
    "lone surrogates": "lone \ud800 high, \udfff low",
    "emoji": "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 🇩🇪 country, 👍🏽 skin, ☺️ ❤️",
    "decomposed": "Cafe\u0301 re\u0301sume\u0301 n\u0303 a\u0308 \u1112\u1161\u11ab",
    "stacked marks": "Z\u0351\u036b\u0343a\u0348\u0323\u0301l\u034fgo\u0315\u0321",
    "marks alone": "\u0301\u0323\u0301",
    "compatibility": "ﬁne ﬂow ① ½ ℡ ㎏ Ⅷ ＡＢＣ　ｱｲｳ ㍿",
    "special": "</s> <s> [SEP] [CLS] [MASK] [PAD] <|endoftext|> <|im_end|> <unk> <pad> <0x41>",
    "special glued": "a</s>b[SEP]c<|endoftext|>d",
    "lower one eighth block": "▁a▁▁b ▁",
    "double hashes": "##ing ##a # #1",
    "blank run": "x" + " " * 40 + "y",
    "tabs": "a\t\tb\t\t\tc",
    "newlines": "a\n\nb\n\n\n\nc\r\n\r\nd",
    "other blanks": "a\u00a0b\u2003c\u3000d\u1680e\u2028f\u2029g",
    "right to left marks": "\u200fشكرا\u200e (thanks)",
    "old hangul": "\u1100\u1161\u11a8 \u110b\u1175 ᄒᆞᆫ",
    "kanbun": "𠮷野家 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
    "apostrophes": "it's IT'S they'LL we’re I'd'ye 'tis",
    "numbers": "1234567 3.14159 1,000,000 ٤٥٦ ⅚ 2²",
    "dotted capital": "İİ I ı ẞ ß ŉ ǰ",
}


def xquad(language: str) -> list[str]:
    """Return the paragraphs of one of XQuAD's languages ("en", "de", "zh"), or none.

    They lie beside the checkout where its other data does.
    """
    corpus = Path(__file__).parents[2] / "shared" / "data" / f"xquad-{language}" / "corpus.jsonl"
    if not corpus.is_file():
        return []
    with corpus.open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]
