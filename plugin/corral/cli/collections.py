"""`corral collections`, `info`, `delete` and `verify`: what there is, and whether it is right."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.cli.options import (
    CONTEXT_SETTINGS,
    FilePath,
    place_options,
    target_of,
    target_options,
)
from corral.cli.reading import reader_options, reading_of, selection_options
from corral.cli.starting import imports

if TYPE_CHECKING:
    from corral.audit import Audit
    from corral.overview import Info

__all__ = ["collections", "delete", "info", "verify"]

_SHOWN = 20


@click.command(context_settings=CONTEXT_SETTINGS)
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def collections(path: str | None, url: str | None, *, as_json: bool) -> int:
    """List the collections of a folder or a server; the exit code is 1 where one is damaged."""
    target_of(path, url, "")
    from dataclasses import asdict

    with imports():
        from corral.overview import collections as listed

    entries = listed(url=url, path=path)
    for entry in entries:
        if as_json:
            click.echo(json.dumps(asdict(entry), ensure_ascii=False))
        elif entry.fault is not None:
            click.echo(f"{entry.name}  {entry.fault}")
        else:
            vectors = ", ".join(f"{name} {size}" for name, size in entry.vectors.items())
            tenants = ", of tenants" if entry.tenants else ""
            made = f"by {entry.model}" if entry.model else "not made by corral"
            also = f", also called {', '.join(entry.aliases)}" if entry.aliases else ""
            click.echo(f"{entry.name}{also}  {entry.points:,} points{tenants}  ({vectors})  {made}")
    return int(any(entry.fault is not None for entry in entries))


@click.command(context_settings=CONTEXT_SETTINGS)
@target_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(
    path: str | None, url: str | None, collection: str, tenant: str | None, *, as_json: bool
) -> None:
    """Tell what is in a collection and how it was made."""
    target = target_of(path, url, collection, tenant)
    with imports():
        from corral.overview import info as look

    found = look(target)
    if as_json:
        click.echo(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        _print_info(found)


def _print_info(found: "Info") -> None:
    disk = "" if found.disk_bytes is None else f", {found.disk_bytes:,} on disk"
    sparse = " (sparse ones always are)" if found.fingerprint.get("sparse") else ""
    graph = f"{found.index['indexed_vectors']:,} vectors indexed{sparse}"
    payload = ", ".join(f"{name} ({kind})" for name, kind in found.index["payload"].items())
    rows = {
        "model": found.model,
        "points": f"{found.points:,} of {len(found.sources):,} sources",
        "tokens": f"{found.tokens:,}; {found.truncated:,} chunks truncated",
        "bytes": f"{found.vector_bytes:,} of vectors, {found.payload_bytes:,} of payloads{disk}",
        "index": f"{found.index['status']}, {graph}; payload: {payload or 'none'}",
    }
    for name, row in rows.items():
        click.echo(f"{name:<8} {row}")
    for name, value in found.fingerprint.items():
        click.echo(f"  {name}: {value!r}")
    for source, one in list(found.sources.items())[:_SHOWN]:
        click.echo(
            f"{json.dumps(source, ensure_ascii=False)}: {one.chunks:,} chunks, "
            f"{one.tokens:,} tokens"
        )
    if len(found.sources) > _SHOWN:
        click.echo(f"and {len(found.sources) - _SHOWN:,} more sources; --json lists all")


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@target_options
@click.option("--all", "whole", is_flag=True, help="Delete the collection itself.")
@click.option("--yes", is_flag=True, help="Delete without asking first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def delete(
    sources: tuple[str, ...],
    path: str | None,
    url: str | None,
    collection: str,
    tenant: str | None,
    *,
    whole: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete what a collection holds of each SOURCE, or with --all the collection.

    The next ingest of the same files brings it back.
    """
    target = target_of(path, url, collection, tenant)
    if whole == bool(sources):
        raise click.UsageError("give the SOURCEs to delete, or --all for the whole collection")
    if whole and tenant is not None:
        raise click.UsageError("--all deletes the chunks of all tenants; leave --tenant out")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("delete asks first, and there is no terminal here; add --yes")
        what = f"collection {collection!r}" if whole else f"all chunks of {len(sources):,} sources"
        click.confirm(f"Delete {what}?", abort=True, err=True)
    with imports():
        from corral.overview import delete_collection, delete_sources

    if whole:
        name, n_points = delete_collection(target)
        if as_json:
            click.echo(json.dumps({"deleted": n_points, "collection": name}))
        else:
            click.echo(f"{name}: deleted with {n_points:,} points")
        return
    deleted = delete_sources(target, sources)
    if as_json:
        click.echo(json.dumps({"deleted": sum(deleted.values()), "sources": deleted}))
    else:
        for source, number in deleted.items():
            click.echo(f"{source}: {number:,} chunks deleted")


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("paths", nargs=-1, type=FilePath(path_type=Path, allow_dash=True))
@target_options
@click.option("--model", metavar="MODEL", help="Where the collection's model is now, if it moved.")
@click.option("--heads", metavar="FILE", help="Where its heads file is now, likewise.")
@click.option("--long-model", metavar="MODEL", help="Where its second model is now, likewise.")
@selection_options
@reader_options
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Chunks to embed anew, chosen at random.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(  # noqa: PLR0913, PLR0917 - click passes every option
    paths: tuple[Path, ...],
    path: str | None,
    url: str | None,
    collection: str,
    tenant: str | None,
    model: str | None,
    heads: str | None,
    long_model: str | None,
    sample: int,
    *,
    as_json: bool,
    **reading: Any,  # noqa: ANN401 - each is typed in cli/reading.py
) -> int:
    """Compare a collection with the documents under PATHS, and its vectors with the model's.

    PATHS are those of the ingest. Nothing is written; the exit code is 1 where something is amiss.
    """
    target = target_of(path, url, collection, tenant)
    with imports():
        from corral.audit import audit
        from corral.cli.progress import watch

    with watch(sys.stderr) as progress:
        found = audit(
            target,
            model=model,
            heads=heads,
            long_model=long_model,
            sample=sample,
            progress=progress,
            **reading_of(paths, reading),
        )
    if as_json:
        click.echo(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        _print_audit(found)
    return 0 if found.ok else 1


def _print_audit(found: "Audit") -> None:
    least = found.least_similarity
    nearest = "" if least is None else f", the least similarity {least:.5f}"
    if found.unsampled:
        nearest += f"; {found.unsampled:,} not, since their files are not as they were"
    rows = {
        "files": f"{found.files:,} compared, {len(found.unread):,} could not be read",
        "chunks": (
            f"{found.points:,} in the collection; {found.missing:,} missing, "
            f"{found.moved:,} moved, {found.stale:,} stale"
        ),
        "extra": (
            f"{len(found.extra):,} sources without a file; {found.foreign:,} chunks that no ingest "
            "wrote"
        ),
        "vectors": f"{len(found.flaws):,} flawed; {found.sampled:,} embedded anew{nearest}",
    }
    for name, row in rows.items():
        click.echo(f"{name:<8} {row}")
    listed = [
        *(f"{source}: differs from its file" for source in found.differing),
        *(f"{source}: its file is gone, or left out" for source in found.extra),
        *(f"{source}: {reason}" for source, reason in found.unread),
        *(f"{flaw.source}: {flaw.vector} of {flaw.id} {flaw.fault}" for flaw in found.flaws),
    ]
    for line in listed[:_SHOWN]:
        click.echo(f"  {line}")
    if len(listed) > _SHOWN:
        click.echo(f"  and {len(listed) - _SHOWN:,} more; --json lists all")
    click.echo("all is as it should be" if found.ok else "something is amiss")
