"""`corral model`: what models there are, what one of them is, and bringing them here.

Nothing heavy is imported before a command runs, so that --help answers at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from corral.cli.options import CONTEXT_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["model"]

_REF_HELP: Final = (
    "MODEL is the name of a built-in model, the path of a GGUF, or hf:owner/repo[:file-or-quant]."
)
_BYTES_PER_MB: Final = 1_000_000


@click.group(context_settings=CONTEXT_SETTINGS)
def model() -> None:
    """See and bring the models that can be used as --model."""


@model.command(help=f"Bring a model to this machine and print its path.\n\n{_REF_HELP}")
@click.argument("ref", metavar="MODEL")
def pull(ref: str) -> None:
    """Bring a model to this machine and print its path."""
    from corral.models import resolve

    click.echo(resolve(ref).path)


@model.command("list")
def list_models() -> None:
    """List the built-in models, and which of them are on this machine."""
    from corral.models import BUILTINS

    for builtin in BUILTINS.values():
        click.echo(f"{builtin.name}  {builtin.description}")
        if builtin.path.is_file():
            click.echo(f"  {_megabytes(builtin.path.stat().st_size)}  {builtin.path}")
        else:
            click.echo(f"  not here yet: corral model pull {builtin.name}")


@model.command(
    help=f"Show what a model is: pooling, dimensions, limits, prefixes, ...\n\n{_REF_HELP}"
)
@click.argument("ref", metavar="MODEL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
def show(ref: str, *, as_json: bool) -> None:
    """Show what a model is."""
    from corral import calibration
    from corral.models import describe, resolve

    resolved = resolve(ref)
    facts = {**describe(resolved), "runs_as": calibration.describe(resolved.sha256)}
    text = json.dumps(facts, ensure_ascii=False) if as_json else _lines(facts)
    click.echo(text.encode("utf-8", "backslashreplace"))  # a GGUF may hold bytes that are not UTF-8


@model.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The GGUF to write.  [default: NAME-TYPE.gguf in the current folder]",
)
@click.option(
    "--type",
    "weights",
    type=click.Choice(["f32", "f16"]),
    default="f32",
    show_default=True,
    help="Type of the matrices.",
)
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "last", "rank"]),
    help="How the model pools, where its folder does not say it.",
)
def convert(
    folder: Path, out: Path | None, weights: Literal["f32", "f16"], pooling: str | None
) -> None:
    """Write the model of a Hugging Face folder as a GGUF and print its path.

    DIR holds config.json, the tokenizer's files and the weights as safetensors.
    """
    from corral.errors import ModelError
    from corral.models.convert import convert as write

    target = out or Path(f"{folder.resolve().name}-{weights}.gguf")
    try:
        write(folder, target, pooling=pooling, weights=weights)
    except OSError as error:
        raise ModelError(f"{target} cannot be written: {error.strerror or error}") from error
    click.echo(target)


def _lines(facts: Mapping[str, object]) -> str:
    """Return the facts for reading: a label and a value a line, what is empty left out."""
    dims = facts["trained_dims"]
    values = {
        **facts,
        "pooling_type": _sourced(facts, "pooling_type"),
        "max_tokens": _sourced(facts, "max_tokens"),
        "trained_dims": ", ".join(map(str, dims)) if isinstance(dims, list) else "",
        "tokenizer": f"{facts['tokenizer']}, {facts['n_vocab']} tokens",
        # In quotes, since a prefix ends in a space or holds a line end.
        "query_prefix": _quoted(facts["query_prefix"]),
        "document_prefix": _quoted(facts["document_prefix"]),
        "layer_norm": "before cutting" if facts["layer_norm"] else "",
        "size": _megabytes(facts["size"]),
    }
    absorbed = {"pooling_type_from", "max_tokens_from", "n_vocab"}
    shown = {k: v for k, v in values.items() if k not in absorbed and v not in {None, ""}}
    width = max(map(len, shown))
    return "\n".join(f"{k.replace('_', ' '):<{width}}  {_printable(v)}" for k, v in shown.items())


def _printable(value: object) -> str:
    """Return a value on one line: a file's own strings must not steer the terminal."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)


def _sourced(facts: Mapping[str, object], key: str) -> str:
    """Return a value and what says it."""
    value = "unknown" if facts[key] is None else facts[key]
    return f"{value} ({facts[f'{key}_from']})"


def _quoted(prefix: object) -> str:
    """Return a prefix in quotes, with its line ends spelled; "none" where there is none."""
    return json.dumps(prefix, ensure_ascii=False) if prefix else "none"


def _megabytes(n_bytes: object) -> str:
    """Return a size for reading."""
    return f"{int(str(n_bytes)) / _BYTES_PER_MB:.1f} MB"
