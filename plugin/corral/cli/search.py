"""`corral search`."""

import json
from typing import Any

import click

from corral.cli.options import CONTEXT_SETTINGS, given, target_of, target_options
from corral.cli.starting import imports

__all__ = ["search"]

_SHOWN_CHARACTERS = 300


_RANKING_OPTIONS = (
    click.option("--exact", is_flag=True, help="Compare with every vector, by no graph or copy."),
    click.option(
        "--rescore/--no-rescore",
        default=None,
        help="Compare what quantised copies found anew by the vectors.  [default: Qdrant's choice]",
    ),
    click.option(
        "--oversampling",
        type=float,
        metavar="X",
        help="Times as many to find by quantised copies, to choose from.",
    ),
    click.option(
        "--using",
        multiple=True,
        metavar="NAME",
        help="A vector to search by; repeatable.  [default: all that the collection has]",
    ),
    click.option(
        "--fusion",
        type=click.Choice(["rrf", "dbsf"]),
        default="rrf",
        show_default=True,
        help="How the finds of several vectors become one list.",
    ),
    click.option(
        "--weight",
        "weights",
        multiple=True,
        metavar="NAME=NUMBER",
        help="What a vector's finds weigh in rrf; repeatable.  [default: 1]",
    ),
    click.option(
        "--candidates",
        type=click.IntRange(min=1),
        metavar="N",
        help="Chunks that each stage before the last passes on.  [default: 4 k, at least 40]",
    ),
)


def ranking_options(command: Any) -> Any:  # noqa: ANN401 - click's decorators are untyped
    """Add the options that say how a collection's vectors are used."""
    for option in reversed(_RANKING_OPTIONS):
        command = option(command)
    return command


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("query")
@target_options
@click.option("-k", "k", type=int, default=5, show_default=True, help="Most chunks to print.")
@click.option("--model", metavar="MODEL", help="Where the collection's model is now, if it moved.")
@click.option("--heads", metavar="FILE", help="Where its heads file is now, likewise.")
@click.option("--long-model", metavar="MODEL", help="Where its second model is now, likewise.")
@click.option("--rerank", metavar="MODEL", help="A reranker that orders the nearest chunks anew.")
@click.option(
    "--fetch-k",
    type=int,
    metavar="N",
    help="Nearest chunks for the reranker to choose from.  [default: 4 k, at least 20]",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="FIELD=VALUE",
    help="What chunks must meet, also with !=, <, <=, > and >=, or Qdrant's JSON; repeatable.",
)
@ranking_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def search(  # noqa: PLR0913, PLR0917 - click passes every option
    query: str,
    path: str | None,
    url: str | None,
    collection: str,
    k: int,
    model: str | None,
    heads: str | None,
    long_model: str | None,
    rerank: str | None,
    fetch_k: int | None,
    weights: tuple[str, ...],
    tenant: str | None,
    filters: tuple[str, ...],
    *,
    as_json: bool,
    **ranking: Any,  # noqa: ANN401 - each is typed above
) -> None:
    """Print the chunks of a collection that are nearest to QUERY."""
    target = target_of(path, url, collection, tenant)
    if not query.strip():
        raise click.UsageError("the query is empty")
    with imports():
        from corral.ranking import RankingOptions
        from corral.search import search as find

    found = find(
        query,
        target=target,
        k=k,
        model=model,
        heads=heads,
        long_model=long_model,
        rerank=rerank,
        fetch_k=fetch_k,
        filters=filters,
        ranking=RankingOptions(weights=dict(map(_weight, weights)), **given(ranking)),
    )
    if as_json:
        for chunk in found:
            click.echo(json.dumps(chunk.as_dict(), ensure_ascii=False))
    elif found:
        _print_table(found)
    else:
        click.echo("nothing found", err=True)


def _weight(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError as error:
        raise click.UsageError(f"--weight is NAME=NUMBER, such as dense=2; got {text!r}") from error


def _print_table(found: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("source", overflow="fold")
    table.add_column("text", overflow="fold", ratio=1)
    for chunk in found:
        shown = chunk.text[:_SHOWN_CHARACTERS]
        more = "…" if len(chunk.text) > len(shown) else ""
        table.add_row(
            f"{chunk.score:.3f}",
            Text(
                chunk.source if chunk.end is None else f"{chunk.source}\n{chunk.start}-{chunk.end}"
            ),
            Text(shown + more),
        )
    Console().print(table)
