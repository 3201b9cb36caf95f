"""Token ids and character offsets from a GGUF's own vocabulary, as the reference gives them.

llama.cpp's tokenizers differ from the ones that the models were trained with (docs/tokenizers.md
says where), so the vocabulary in the file is handed to `tokenizers` and `tiktoken`, which are
those. What they do not cover goes to `llama_tokenize`, with a warning.
"""

from corral.engine.tokenizer._encoding import Encoding
from corral.engine.tokenizer._tokenizer import GGUFTokenizer, control_tokens, load_tokenizer

__all__ = ["Encoding", "GGUFTokenizer", "control_tokens", "load_tokenizer"]
