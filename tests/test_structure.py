"""Which module may import which, and what the built wheel holds."""

import ast
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {"corral": "plugin", "corral_chunkers": "chunkers", "corral_sinks": "sinks"}

SIDES = {"corral.engine", "corral.models"}  # neither knows the other
LEAVES = {"corral.closing", "corral.errors", "corral.gguf_header"}
MAY_IMPORT = {
    "llama_cpp": {"corral.engine._llama"},
    "qdrant_client": {"corral_sinks.qdrant"},
    "qdrant_edge": {"corral_sinks.qdrant"},
}


def module_name(file, root):
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    module_name(file, ROOT / room): file
    for package, room in ROOMS.items()
    for file in sorted((ROOT / room / package).rglob("*.py"))
}


def _targets(node, package):
    """Modules that one statement imports: what it names, or what it takes names from."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom():
            names = package.split(".")
            parents = names[: len(names) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            taken = (f"{base}.{alias.name}" for alias in node.names)
            yield from (name if name in SOURCES else base for name in taken)
        case ast.Call(
            func=ast.Name(id=call) | ast.Attribute(attr=call), args=[ast.Constant(name), *_]
        ):
            if call in {"import_module", "__import__"}:
                yield name


def imports_of(text, module="corral.module", *, is_package=False):
    """All modules that the text imports, inside functions and under TYPE_CHECKING as well."""
    package = module if is_package else module.rpartition(".")[0]
    found = {target for node in ast.walk(ast.parse(text)) for target in _targets(node, package)}
    return found - {module}


IMPORTS = {
    name: imports_of(file.read_text(), name, is_package=file.stem == "__init__")
    for name, file in SOURCES.items()
}


def within(module, packages):
    """The one of the packages that the module is or lies in, or None."""
    return next((p for p in packages if module == p or module.startswith(p + ".")), None)


def offenders(allowed):
    """Pairs (module, import of ours) that the predicate does not allow."""
    return {
        (module, target)
        for module, targets in IMPORTS.items()
        for target in targets
        if target in SOURCES and not allowed(module, target)
    }


def test_the_reader_of_imports_sees_every_way_to_import():
    text = """
import one.part
from two import name
from . import pooling
from .batching import pack
from .. import errors, GGUFEmbeddings
def inside():
    import three
    importlib.import_module("four")
if TYPE_CHECKING:
    from five import Type
"""
    assert imports_of(text, "corral.engine.pool") == {
        "one.part",
        "two",
        "three",
        "four",
        "five",
        "corral",
        "corral.errors",
        "corral.engine.pooling",
        "corral.engine.batching",
    }
    in_package = imports_of("from . import pooling", "corral.engine", is_package=True)
    assert in_package == {"corral.engine.pooling"}


def test_the_sources_of_all_three_packages_are_read():
    assert {"corral", "corral_chunkers", "corral_sinks"} <= set(SOURCES)
    assert {"corral.engine._llama", "corral.errors", "corral_sinks.qdrant"} <= set(SOURCES)


@pytest.mark.parametrize("library", MAY_IMPORT)
def test_a_library_is_imported_in_its_own_room_only(library):
    importers = {
        module
        for module, targets in IMPORTS.items()
        if any(within(target, [library]) for target in targets)
    }
    assert importers
    assert {module for module in importers if not within(module, MAY_IMPORT[library])} == set()


@pytest.mark.parametrize("package", ["corral_chunkers", "corral_sinks"])
def test_chunkers_and_sinks_know_only_themselves(package):
    def allowed(module, target):
        return not within(module, [package]) or within(target, [package])

    assert offenders(allowed) == set()


def test_engine_and_models_import_only_themselves_and_the_leaves():
    def allowed(module, target):
        side = within(module, SIDES)
        return side is None or within(target, [side, *LEAVES])

    assert offenders(allowed) == set()


def test_the_leaves_import_at_most_each_other():
    assert offenders(lambda module, target: module not in LEAVES or target in LEAVES) == set()


def test_nothing_imports_the_command_line():
    def allowed(module, target):
        return not within(target, ["corral.cli"]) or within(module, ["corral.cli"])

    assert offenders(allowed) == set()


def test_no_import_of_ours_goes_round_in_a_circle():
    def first_circle(module, trail, done):
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module in done:
            return None
        for target in sorted(IMPORTS[module] & set(SOURCES)):
            if circle := first_circle(target, [*trail, module], done):
                return circle
        done.add(module)
        return None

    done = set()
    assert [circle for name in SOURCES if (circle := first_circle(name, [], done))] == []


@pytest.mark.parametrize("group", ["corral.chunkers", "corral.readers", "corral.sinks"])
def test_every_entry_point_leads_to_something_to_call(group):
    entries = [entry for entry in entry_points(group=group) if entry.dist.name == "corral"]
    assert entries
    assert all(callable(entry.load()) for entry in entries)


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("corral-*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel_names):
    top = {name.partition("/")[0] for name in wheel_names}
    (dist_info,) = {name for name in top if name.endswith(".dist-info")}
    assert top - {dist_info} == set(ROOMS)
    assert f"{dist_info}/licenses/LICENSE" in wheel_names


def test_the_wheel_holds_every_source_file_the_types_marker_and_the_profiles(wheel_names):
    sources = {
        file.relative_to(ROOT / ROOMS[name.partition(".")[0]]).as_posix()
        for name, file in SOURCES.items()
    }
    markers = {f"{package}/py.typed" for package in ROOMS}
    assert sources | markers <= set(wheel_names)
    assert any(name.endswith("/profiles.toml") for name in wheel_names)
