"""What a GGUF does not say of its model family: prefixes, trained dimensions, limits, scores.

The families stand in profiles.toml beside this file, each with the address of the model card it
was taken from; users add theirs in a file of the same form, which is asked first.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import platformdirs

from corral.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from corral.gguf_header import GGUFHeader

__all__ = ["Profile", "builtin_profiles", "find_profile", "user_profiles", "user_profiles_path"]

_POOLING_TYPES: Final = ("none", "mean", "cls", "last", "rank")
_SCORE_KINDS: Final = ("logit", "probability")
# What repackagers put behind a model's name.
_TRAILERS: Final = re.compile(r"(-gguf|-f16|-f32|-bf16|-i?q\d[-\w]*)+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One model family.

    Attributes:
        name: The name of its table.
        source: Address of the model card that the rest was taken from.
        match: Regular expressions of the whole of general.name or general.basename, in lower
            case, with "-" for spaces and underscores, without an owner in front.
        architectures: llama.cpp's names of the architectures it comes in.
        embedding_length: Only models of this n_embd; None: of any.
        query_prefix: Put before a query.
        document_prefix: Put before a document.
        trained_dims: Dimensions that the family's vectors may be cut to (Matryoshka), the full
            ones included; those above a model's own don't apply. Empty: not trained for a cut.
        pooling_type: "none", "mean", "cls", "last" or "rank"; None: only the GGUF knows.
        max_tokens: Longest input, special tokens and prefix included; None: as the GGUF says.
        layer_norm: Whether a layer norm without weights comes between pooling and cutting.
        score: What a reranker's head gives: "logit", to which a sigmoid belongs, or
            "probability", as it is; None: not a reranker.
        note: What users of the family should know; may be empty.
    """

    name: str
    source: str
    match: tuple[str, ...]
    architectures: tuple[str, ...] = ()
    embedding_length: int | None = None
    query_prefix: str = ""
    document_prefix: str = ""
    trained_dims: tuple[int, ...] = ()
    pooling_type: str | None = None
    max_tokens: int | None = None
    layer_norm: bool = False
    score: str | None = None
    note: str = ""

    def matches(self, name: str, header: GGUFHeader) -> bool:
        """Tell whether a GGUF that gives this name is of this family.

        Args:
            name: general.name or general.basename, as the GGUF has it.
            header: The GGUF's, for its architecture and width.
        """
        if self.architectures and header.architecture not in self.architectures:
            return False
        if self.embedding_length not in {None, header.arch("embedding_length")}:
            return False
        return any(re.fullmatch(pattern, _plain(name)) for pattern in self.match)


def find_profile(header: GGUFHeader) -> Profile | None:
    """Return the first profile that a GGUF matches, the user's before the built-in ones.

    Raises:
        UsageError: The user's file is not valid; names the file, the table and the key.
    """
    names = [header.metadata.get(key) for key in ("general.name", "general.basename")]
    for profiles in (user_profiles(), builtin_profiles()):
        # The name says more than the basename, which a family's variants share.
        for name in names:
            for profile in profiles:
                if isinstance(name, str) and profile.matches(name, header):
                    return profile
    return None


@cache
def builtin_profiles() -> tuple[Profile, ...]:
    """Return the families that corral knows, in the order they are asked."""
    text = (files("corral.models") / "profiles.toml").read_text(encoding="utf-8")
    return _parse(text, "corral's own profiles.toml")


def user_profiles() -> tuple[Profile, ...]:
    """Return the user's own families; none where there is no file.

    Raises:
        UsageError: The file is not valid, or CORRAL_PROFILES names none.
    """
    path = user_profiles_path()
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        if "CORRAL_PROFILES" in os.environ:
            raise UsageError(
                f"CORRAL_PROFILES names {path}, and there is no such file. "
                "Make it, or unset the variable."
            ) from None
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def user_profiles_path() -> Path:
    """Return where the user's profiles are looked for: CORRAL_PROFILES, or the config folder."""
    chosen = os.environ.get("CORRAL_PROFILES")
    return Path(chosen) if chosen else platformdirs.user_config_path("corral") / "profiles.toml"


def _plain(name: str) -> str:
    """Return a model's name in the spelling that patterns are written for."""
    words = re.sub(r"[\s_]+", "-", name.strip().lower()).rpartition("/")[2]
    return _TRAILERS.sub("", words)


def _parse(text: str, where: str) -> tuple[Profile, ...]:
    """Turn a TOML text into profiles; `where` names it in errors."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not TOML: {error}") from error
    return tuple(_profile(name, table, where) for name, table in tables.items())


def _profile(name: str, table: object, where: str) -> Profile:
    """Check one table and make a profile of it."""
    place = f"{where}, table [{name}]"
    if not isinstance(table, dict):
        raise UsageError(f"{where}: {name} must be a table ([{name}]), got {table!r}")
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{place}: unknown key {key!r}; known are {', '.join(_KEYS)}")
    for key in ("source", "match"):
        if key not in table:
            raise UsageError(f"{place}: the key {key!r} is missing")
    values: dict[str, Any] = {}
    for key, value in table.items():
        valid, wanted = _KEYS[key]
        if not valid(value):
            raise UsageError(f"{place}, key {key!r}: must be {wanted}, got {value!r}")
        values[key] = tuple(value) if isinstance(value, list) else value
    return Profile(name=name, **values)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_list_of(valid: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(map(valid, value))


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def _is_one_of(choices: tuple[str, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in choices


_KEYS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "source": (_is_text, "a text"),
    "match": (_is_list_of(_is_pattern), "a list of regular expressions"),
    "architectures": (_is_list_of(_is_text), "a list of texts"),
    "embedding_length": (_is_size, "a positive whole number"),
    "query_prefix": (_is_text, "a text"),
    "document_prefix": (_is_text, "a text"),
    "trained_dims": (_is_list_of(_is_size), "a list of positive whole numbers"),
    "pooling_type": (_is_one_of(_POOLING_TYPES), f"one of {', '.join(_POOLING_TYPES)}"),
    "max_tokens": (_is_size, "a positive whole number"),
    "layer_norm": (_is_flag, "true or false"),
    "score": (_is_one_of(_SCORE_KINDS), f"one of {', '.join(_SCORE_KINDS)}"),
    "note": (_is_text, "a text"),
}
