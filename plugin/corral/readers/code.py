"""Source code, as it is, with the name of its language."""

from collections.abc import Iterator
from typing import Final

from corral.readers.contract import RawFile, ReaderOptions
from corral.reading import decode
from corral_chunkers import Document

__all__ = ["CodeReader"]

# Languages by the names that tree-sitter's grammars have.
_LANGUAGES: Final = {
    "bash": (".sh", ".bash"),
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"),
    "csharp": (".cs",),
    "css": (".css",),
    "dart": (".dart",),
    "elixir": (".ex", ".exs"),
    "erlang": (".erl",),
    "go": (".go",),
    "haskell": (".hs",),
    "java": (".java",),
    "javascript": (".js", ".jsx", ".mjs", ".cjs"),
    "julia": (".jl",),
    "kotlin": (".kt", ".kts"),
    "lua": (".lua",),
    "ocaml": (".ml",),
    "perl": (".pl", ".pm"),
    "php": (".php",),
    "python": (".py", ".pyi"),
    "r": (".r",),
    "ruby": (".rb",),
    "rust": (".rs",),
    "scala": (".scala",),
    "sql": (".sql",),
    "swift": (".swift",),
    "toml": (".toml",),
    "tsx": (".tsx",),
    "typescript": (".ts", ".mts", ".cts"),
    "xml": (".xml",),
    "yaml": (".yaml", ".yml"),
    "zig": (".zig",),
}
_BY_SUFFIX: Final = {end: language for language, ends in _LANGUAGES.items() for end in ends}


class CodeReader:
    """Gives a source file's text unchanged; its format is its language, by its name."""

    suffixes: Final = tuple(_BY_SUFFIX)
    version: Final = 1
    confined: Final = False

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the text."""
        language = _BY_SUFFIX["." + file.source.lower().rpartition(".")[2]]
        text = decode(file.path, file.raw).text
        yield Document(text=text, source=file.source, format=language, language=language)
