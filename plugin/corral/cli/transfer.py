"""`corral copy`, `export` and `import`: a collection elsewhere, without embedding again."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from corral.cli.options import CONTEXT_SETTINGS, FilePath, target_of, target_options
from corral.cli.starting import imports

if TYPE_CHECKING:
    from corral.transfer import Moved
    from corral_sinks import TellBuilding

__all__ = ["copy", "export", "import_"]

_LINE_SECONDS: Final = 5.0


@click.command(context_settings=CONTEXT_SETTINGS)
@target_options
@click.option("--to", "to", metavar="NAME", help="Its name there.  [default: the same]")
@click.option("--back", is_flag=True, help="From the server into the folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def copy(
    path: str | None,
    url: str | None,
    collection: str,
    tenant: str | None,
    to: str | None,
    *,
    back: bool,
    as_json: bool,
) -> None:
    """Copy a collection from the folder --path to the server --url, or back.

    What is there already is not sent again.
    """
    if path is None or url is None:
        raise click.UsageError("copy goes between --path DIR and --url URL; give both")
    folder = target_of(path, None, collection, tenant)
    server = target_of(None, url, collection, tenant)
    from dataclasses import replace

    with imports():
        from corral.transfer import copy as run

    source, target = (server, folder) if back else (folder, server)
    target = replace(target, collection=to or collection)
    with _resumable():
        moved = run(source, target, tell=_progress(), tell_building=_building())
    _tell(moved, as_json)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("file", type=FilePath(dir_okay=False, path_type=Path))
@target_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def export(
    file: Path,
    path: str | None,
    url: str | None,
    collection: str,
    tenant: str | None,
    *,
    as_json: bool,
) -> None:
    """Write a collection into FILE, whose name ends in .parquet or .jsonl.

    What was broken off goes on where it was.
    """
    target = target_of(path, url, collection, tenant)
    from dataclasses import asdict

    with imports():
        from corral.transfer import export as run

    with _resumable():
        found = run(target, file, tell=_progress())
    resumed = f", {found.resumed:,} of them from before" if found.resumed else ""
    line = f"{found.records:,} records in {file}{resumed}"
    click.echo(json.dumps(asdict(found)) if as_json else line)


@click.command("import", context_settings=CONTEXT_SETTINGS)
@click.argument("file", type=FilePath(dir_okay=False, path_type=Path))
@target_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_(
    file: Path,
    path: str | None,
    url: str | None,
    collection: str,
    tenant: str | None,
    *,
    as_json: bool,
) -> None:
    """Bring FILE, which `corral export` wrote, into a collection.

    What is there already is not written again.
    """
    target = target_of(path, url, collection, tenant)
    with imports():
        from corral.transfer import restore

    with _resumable():
        moved = restore(file, target, tell=_progress(), tell_building=_building())
    _tell(moved, as_json)


@contextmanager
def _resumable() -> Iterator[None]:
    """Say of an interrupt that nothing is lost by it."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("what is there stays; the same command goes on from there", err=True)
        raise


def _progress() -> Callable[[int, int], None]:
    """Return what says, on standard error and now and then, how far it is."""
    say = _now_and_then()
    return lambda done, total: say(f"{done:,} of {total:,} records")


def _building() -> "TellBuilding":
    """Return what says likewise how far the indexes are."""
    say = _now_and_then()
    return lambda building: say(str(building))


def _now_and_then() -> Callable[[str], None]:
    said = time.monotonic()

    def say(line: str) -> None:
        nonlocal said
        if time.monotonic() - said > _LINE_SECONDS:
            said = time.monotonic()
            click.echo(line, err=True)

    return say


def _tell(moved: "Moved", as_json: bool) -> None:  # noqa: FBT001 - of the flag
    from dataclasses import asdict

    if as_json:
        click.echo(json.dumps(asdict(moved)))
    else:
        click.echo(
            f"{moved.records:,} records: {moved.written:,} written, {moved.present:,} there "
            f"already; the collection has {moved.points:,} points"
        )
        others = moved.points - moved.records
        if others > 0:
            click.echo(
                f"{others:,} of its points are not among these records: what it held before stays, "
                "other versions of the same sources too"
            )
