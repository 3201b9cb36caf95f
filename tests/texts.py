"""Awkward texts that several tests share.

`TEXTS` have something to embed, `BLANK_TEXTS` have not. Characters that cannot be seen are written
as escapes. No text holds a lone surrogate, since no reference tokenizer takes one: that is
`LONE_SURROGATE`.
"""

# ruff: noqa: RUF001 - letters of other scripts are what these texts are about

import base64
from collections.abc import Mapping
from typing import Final

__all__ = ["BLANK_TEXTS", "LONE_SURROGATE", "TEXTS"]

_PROSE: Final = """\
The harbour master kept two ledgers. In the first he wrote what the law required: the name of \
each ship, her tonnage, the port she had left and the hour at which she crossed the bar. In the \
second, which nobody had asked him to keep, he wrote what he had seen. A barque came in with her \
topmast gone and a goat on the quarterdeck. A packet arrived nine days late, and her captain, \
asked for the reason, said that the wind had been polite but firm. Over thirty years the second \
ledger grew to eleven volumes, bound in sailcloth, and it was these that the museum wanted when \
he died.

They were not easy to read. He abbreviated without system, corrected himself in the margin, and \
used a private sign, something like a fish, whose meaning changed from year to year. Margarethe \
Oyelaran, who had been hired to transcribe them, spent her first month making a table of the \
fish. Sometimes it marked a vessel carrying mail. Sometimes it seemed to mean that he had been \
invited aboard and had eaten well. In the volume for 1871 it stood beside every third entry and \
meant, as far as she could tell, nothing at all, unless it was that he had been unhappy that \
winter and had liked to draw it.

What she found in the end was a record of the weather. Nobody had measured rainfall on that \
coast before 1904, and the tide gauge had been installed two years later still. But the harbour \
master had noticed when the slipway froze, how far up the chandler's steps the spring flood had \
reached, which week the swallows came, and whether the fog horn could be heard from his kitchen. \
Counted, dated and compared with the one proper barometer, forty miles to the north, his remarks \
became a series: four thousand and twelve observations, of which perhaps a fifth were jokes. The \
climatologists who came to look at it asked whether the jokes could be removed. She said that \
they could, but that they should not be, because he made more of them when the pressure fell.

So the published edition has both. On the left stand the figures, with their uncertainties, in a \
narrow column; on the right, in full, is what he wrote. A reader who wants only the storm of \
March 1883 can look it up in the index, under storms. A reader who wants to know what a storm is \
like when one is responsible for the lamps, and the oil has run low, and a boat is still out, \
will have to turn the pages. Schoolchildren on the coast are now taken to see the slipway, and \
are told, wrongly, that it has not frozen since. The last entry is short. It gives the wind as \
south-west, light, the visibility as good, and the number of ships expected as none; then comes \
the fish, drawn with some care, facing the other way."""

_CODE: Final = '''\
def quicksort(xs: list[int]) -> list[int]:
    """Sort by divide & conquer; O(n log n) on average."""
    if len(xs) <= 1:
        return xs
    pivot, *rest = xs
    low = [x for x in rest if x < pivot]
    high = [x for x in rest if x >= pivot]
    return quicksort(low) + [pivot] + quicksort(high)
'''

TEXTS: Final[Mapping[str, str]] = {
    "one word": "harbour",
    "one letter": "x",
    "one digit": "7",
    "sentence": "The quick brown fox jumps over the lazy dog.",
    "question": "How do I undo the last commit without losing my changes?",
    "upper case": "WARNING: DO NOT SWITCH OFF THE PUMP WHILE IT IS RUNNING!",
    "white space around": "  \t leading and trailing white space \n\n  ",
    "prose of 600 tokens": _PROSE,
    "word of 300 letters": "A" * 300,
    "word of 100 letters": "ab" * 50,
    "word of 101 letters": "ab" * 50 + "c",
    "long word in a sentence": "The gene was called " + "methionylthreonyl" * 9 + " in full.",
    "accents": "Où est passé l'élève naïf? À l'hôtel, ça va; le garçon a mangé des crêpes brûlées.",
    "combining marks": "Cafe\u0301 re\u0301sume\u0301 n\u0303andu\u0301 a\u030a\u0323 "
    "o\u0302\u0301 Z\u0351\u036b\u0343a\u0321\u031blgo\u0300\u0316",
    "German compound": "Die Donaudampfschifffahrtsgesellschaftskapitänswitwe fuhr über die Straße "
    "zur Rindfleischetikettierungsüberwachungsaufgabenübertragungsstelle.",
    "Turkish": "İstanbul'da ılık bir IŞIK; Iğdır'ın güneşi İzmir'e doğar.",
    "Vietnamese": "Tiếng Việt được viết bằng chữ Quốc ngữ với nhiều dấu thanh.",
    "Polish": "Zażółć gęślą jaźń w Łodzi, źdźbło trawy i pchła.",
    "Greek": "Οἱ ἄνθρωποι γεννιοῦνται ἐλεύθεροι. Η θάλασσα είναι ήρεμη σήμερα.",
    "Russian": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი და თანასწორი.",
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար։",
    "Hebrew with points": "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ׃",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق، وقد وُهبوا عقلًا وضميرًا.",
    "Persian": "می\u200cخواهم کتاب\u200cها را به خانه ببرم.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "Bengali": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Thai words": "มา กา ตา ยาย น้ำ ไทย ภาษา",
    "Chinese simplified": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "Chinese traditional": "臺灣的夜市有很多好吃的東西，例如蚵仔煎、臭豆腐與珍珠奶茶。",
    "Japanese": "すべての人間は、生まれながらにして自由であり、かつ、"
    "尊厳と権利について平等である。カタカナ。",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "Korean sentences": "서울은 대한민국의 수도이다. 한강이 도시를 가로질러 흐르며, "
    "인구는 약 천만 명이다. 값싸고 맛있는 음식을 파는 시장이 많다.",
    "Hangul jamo": "\u1112\u1161\u11ab\u1100\u1173\u11af 한글 ㅋㅋㅋ ㅠㅠ",
    "rare Han": "𠜎𠜱𠝹𠱓 and 㐀㐁 are outside the common block; 豈 is a compatibility form.",
    "full width": "ＡＢｃ１２３ ﾊﾝｶｸ ﬁne ligature ½ ℡ Ⅷ",
    "mathematics": "∀x∈ℝ: ∑_{i=0}^{n} i² ≤ ∫₀^∞ e^{−x²}dx ≈ √π⁄2; 𝐛𝐨𝐥𝐝 𝓈𝒸𝓇𝒾𝓅𝓉",
    "emoji": "Ship it 🚀🚀! 😂 I ❤️ this ☕ — 10/10 👍🏽",
    "emoji joined": "family 👨\u200d👩\u200d👧\u200d👦, flags 🇩🇪🇰🇷🏴\u200d☠️, "
    "keycap 5️⃣, 👩🏿\u200d🚀",
    "right to left mixed": "The word שלום means peace, and السلام too; "
    "(123) ABC \u202eevil\u202c end.",
    "URLs": "https://example.org/a/b_c?d=e%20f&g=1#h\nhttp://münchen.example:8080/~user/\n"
    "ftp://ftp.example.com/pub/file-1.2.3.tar.gz mailto:jane.doe+tag@example.co.uk",
    "code": _CODE,
    "shell": "find . -name '*.py' -print0 | xargs -0 sed -i \"s/foo\\(bar\\)/\\1/g\" && echo $?",
    "YAML": "service:\n  name: corral\n  ports: [6333, 6334]\n  env: &env\n    QDRANT_URL: "
    "'http://localhost:6333'\n  nested: {<<: *env, debug: true}\n",
    "JSON": '{"id": 17, "tags": ["a", "b\\u00e9"], "nested": {"x": null, "y": -1.5e-7}}',
    "HTML": '<p class="note">Fish &amp; chips<br/>cost &pound;5 &#8212; <b>today</b></p>',
    "LaTeX": r"\begin{equation} E = mc^2 + \frac{\alpha}{\beta_{ij}} \label{eq:1} \end{equation}",
    "base64": base64.b64encode(bytes(range(256))).decode(),
    "hexadecimal": "d41d8cd98f00b204e9800998ecf8427e 0xDEADBEEF 53aa51172d142c89d9012cce15ae4d6c",
    "table of numbers": "year\train\ttemp\n1901\t734.25\t-3.1\n1902\t1,012.00\t+0.45\n"
    "1903\t.5\t1e-9\n1904\tn/a\t12345678901234567890\n",
    "Markdown": "# Title\n\n* item **one**\n* item `two`\n\n| a | b |\n|---|---|\n"
    "| 1 | 2 |\n\n> cited[^1]",
    "CRLF": "first line\r\nsecond line\r\n\r\nlast line\rold Mac line",
    "control tokens": "</s> [SEP] [CLS] <|endoftext|> <s> [MASK] [PAD] <unk> <|im_end|> [UNK]",
    "control token inside": "He wrote [SEP] between the parts and ended with </s>, as one does.",
    "NUL": "before\x00after and \x00 alone",
    "control characters": "bell\x07 escape\x1b[31mred\x1b[0m delete\x7f form\x0cfeed C1\x85next",
    "zero width space": "zero\u200bwidth\u200b \u200bspace\ufeff and word\u2060joiner",
    "soft hyphen": "ex\u00adtra\u00ador\u00addi\u00adnary hy\u00adphen\u00adation",
    "odd spaces": "no\u00a0break thin\u2009space ideographic\u3000space line\u2028separator",
    "replacement and private": "broken \ufffd\ufffd text, private \ue000\uf8ff, "
    "not a character \uffff",
    "quotes and dashes": "“Smart” ‘quotes’, «guillemets» – en — em … ellipsis; it’s 5′ 10″",
    "punctuation only": "?!... --- ### $$$ %%% ((())) [[[]]] {{{}}}",
    "repetition": "buffalo " * 40,
    "no spaces": "thisisasentencewithoutanyspacesthatgoesonforawhilebeforeitfinallyends",
    "camel and snake": "getHTTPResponseCode snake_case_name SCREAMING_SNAKE "
    "kebab-case-name v2.0.1-rc3",
}
"""By name; each embeds to something."""

BLANK_TEXTS: Final[Mapping[str, str]] = {
    "empty": "",
    "space": " ",
    "line feed": "\n",
    "many spaces": " \t\r\n" * 20,
    "only zero width space": "\u200b",
    "only soft hyphen": "\u00ad",
    "only byte order mark": "\ufeff",
}
"""By name; nothing is to be seen in them, and WordPiece finds no token."""

LONE_SURROGATE: Final = "half a pair: \ud83d, then text"
