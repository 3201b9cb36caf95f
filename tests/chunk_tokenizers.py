"""Tokenizers written by hand, whose tokens can be told by looking, and ones that keep count."""

import re
from functools import cache

import numpy as np

from corral.engine.tokenizer import load_tokenizer
from corral.gguf_header import read_header
from corral_chunkers import Encoding


class WordTokenizer:
    """Words of up to four characters are a token, longer ones a token for each four.

    As with WordPiece, the pieces of a word depend on where the word starts, so that a word cut
    in two may have more tokens than it had whole.
    """

    def __init__(self, around=2):
        self.around = around

    def encode(self, text):
        spans = [
            (start, min(start + 4, word.end()))
            for word in re.finditer(r"\w+|[^\w\s]", text)
            for start in range(word.start(), word.end(), 4)
        ]
        offsets = np.array(spans, np.int64).reshape(-1, 2)
        return Encoding(np.arange(len(spans), dtype=np.int32), offsets)

    def count(self, text):
        return self.around + len(self.encode(text).ids)


class ByteTokenizer:
    """Each byte of UTF-8 is a token, so that the tokens of one character share its span."""

    around = 3

    def encode(self, text):
        lengths = [len(character.encode("utf-8", "surrogatepass")) for character in text]
        starts = np.repeat(np.arange(len(text), dtype=np.int64), lengths)
        return Encoding(np.zeros(len(starts), np.int32), np.stack([starts, starts + 1], axis=1))

    def count(self, text):
        return self.around + len(text.encode("utf-8", "surrogatepass"))


class ModelTokenizer:
    """The tokens of a GGUF, as an ingest counts them."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.around = len(tokenizer.head) + len(tokenizer.tail)

    def encode(self, text):
        return Encoding(*self.tokenizer.encode(text))

    def count(self, text):
        return self.around + len(self.tokenizer.encode_batch([text])[0])


@cache
def model_tokenizer(path):
    """The tokenizer of a GGUF whose vocabulary needs no llama.cpp."""

    def no_llama(_text):
        raise AssertionError

    return ModelTokenizer(load_tokenizer(read_header(path), no_llama))


class Spy:
    """Keeps count of what another tokenizer is asked for."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.longest = 0
        self.n_encodes = 0
        self.n_counts = 0

    def encode(self, text):
        self.longest = max(self.longest, len(text))
        self.n_encodes += 1
        return self.tokenizer.encode(text)

    def count(self, text):
        self.longest = max(self.longest, len(text))
        self.n_counts += 1
        return self.tokenizer.count(text)
