"""Fixtures that several test files share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from corral import models
from corral.engine import _llama

if TYPE_CHECKING:
    from pathlib import Path

# The same commit passes or fails alike each time; make test-all looks for new examples.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("searching", print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """The built-in model's GGUF, in the user's own cache: brought once, then kept."""
    return models.pull(models.BUILTINS["minilm"])


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for corral, in place of the user's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CORRAL_CACHE", str(folder))
    return folder


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Tokens of each decode that was begun, and whether rows were wanted of it."""
    begun: list[tuple[int, bool]] = []
    decode = _llama.Context.decode

    def noted(context: _llama.Context, *batch: Any, wants_rows: bool = True) -> None:
        begun.append((len(batch[0]), wants_rows))
        decode(context, *batch, wants_rows=wants_rows)

    monkeypatch.setattr(_llama.Context, "decode", noted)
    return begun


def pytest_unconfigure() -> None:
    """Close what llama_cpp opens at import, which Python would complain of at exit."""
    utils = sys.modules.get("llama_cpp._utils")
    for name in ("outnull_file", "errnull_file"):
        if utils and hasattr(utils, name):
            getattr(utils, name).close()
