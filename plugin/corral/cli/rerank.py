"""`corral rerank`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from corral.cli.options import CONTEXT_SETTINGS
from corral.cli.starting import imports

__all__ = ["rerank"]

_STDIN = "-"


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("query")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="A reranker: a GGUF file, or hf:owner/repo[:file-or-quant].",
)
@click.option("--top-n", type=int, metavar="N", help="Most documents to print.  [default: all]")
@click.option("--raw", is_flag=True, help="Print logits or log-odds instead of probabilities.")
@click.option("--instruction", metavar="TEXT", help="What to judge by, where the model takes it.")
@click.option("--label", metavar="NAME", help="Label that is the score, of a model with several.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def rerank(
    query: str,
    files: tuple[str, ...],
    model: str,
    top_n: int | None,
    instruction: str | None,
    label: str | None,
    *,
    raw: bool,
    as_json: bool,
) -> int:
    """Print FILES by how well they answer QUERY, best first; "-" is standard input.

    Each file is one document.
    """
    from langchain_core.documents import Document

    with imports():
        from corral.reranker import GGUFReranker

    documents = [Document(text, metadata={"source": name}) for name, text in _read(files)]
    with GGUFReranker(
        model,
        top_n=top_n,
        score="raw" if raw else "probability",
        instruction=instruction,
        label=label,
    ) as reranker:
        best = reranker.compress_documents(documents, query)
    for document in best:
        click.echo(_line(document.metadata, as_json=as_json))
    return 0 if len(documents) == len(files) else 1


def _read(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the files that are text; say which are not."""
    from corral.errors import ReadError
    from corral.reading import read_text

    for name in names:
        try:
            text = sys.stdin.read() if name == _STDIN else read_text(Path(name)).text
        except ReadError as error:
            click.echo(f"error: {error}", err=True)
        else:
            yield name, text


def _line(metadata: dict[str, object], *, as_json: bool) -> str:
    """Return what is printed of a document."""
    score, truncated = metadata["relevance_score"], "relevance_truncated" in metadata
    if as_json:
        found = {"score": score, "source": metadata["source"], "truncated": truncated}
        return json.dumps(found, ensure_ascii=False)
    cut = "  (its end was not read)" if truncated else ""
    return f"{score:8.4f}  {metadata['source']}{cut}"
