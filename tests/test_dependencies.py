"""What is installed is declared, explained in the README and pinned for CI."""

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = {"corral", "corral_chunkers", "corral_sinks"}


def requirements(*tables):
    return [Requirement(line) for table in tables for line in table]


PROJECT = PYPROJECT["project"]
RUNTIME = requirements(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
GROUPS = PYPROJECT["dependency-groups"]
IN_CI = RUNTIME + requirements(GROUPS["test"], GROUPS["lint"])
PINS = dict(
    re.fullmatch(r"([a-z0-9-]+)==(\S+)", line).groups()
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
)


def readme_reasons():
    """Rows `| name | why |` of the README's tables, by name."""
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `([A-Za-z0-9_-]+)` \| (.+) \|$", text, re.MULTILINE)
    return {canonicalize_name(name): why for name, why in rows}


def third_party_imports():
    """Top-level names that our packages import and that are neither ours nor Python's."""
    files = [
        file for room in ("plugin", "chunkers", "sinks") for file in (ROOT / room).rglob("*.py")
    ]
    names = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(node.module.partition(".")[0])
    return names - OURS - sys.stdlib_module_names


@pytest.mark.parametrize("requirement", RUNTIME + requirements(*GROUPS.values()), ids=str)
def test_the_readme_gives_each_dependency_a_reason(requirement):
    reason = readme_reasons().get(canonicalize_name(requirement.name), "")
    assert len(reason.split()) >= 5


def test_the_readme_explains_nothing_that_is_not_a_dependency():
    declared = {canonicalize_name(r.name) for r in RUNTIME + requirements(*GROUPS.values())}
    build = {canonicalize_name(r.name) for r in requirements(PYPROJECT["build-system"]["requires"])}
    assert set(readme_reasons()) <= declared | build


@pytest.mark.parametrize("requirement", IN_CI, ids=str)
def test_a_pin_stands_for_each_dependency_and_is_a_version_we_allow(requirement):
    pin = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(Version(pin))


def test_the_constraints_are_names_and_versions_without_any_address():
    text = (ROOT / "constraints.txt").read_text()
    assert "corral" not in PINS
    assert list(PINS) == sorted(PINS)
    assert not re.search(r"://|@|^-|file:|--", text, re.MULTILINE)


@functools.cache
def imported_distributions():
    """Each name that our packages import, with the distributions that it may come from."""
    provided_by = packages_distributions()
    return {
        name: {canonicalize_name(dist) for dist in provided_by.get(name, ())}
        for name in third_party_imports()
    }


def test_every_import_comes_from_a_declared_dependency():
    declared = {canonicalize_name(requirement.name) for requirement in RUNTIME}
    assert [name for name, dists in imported_distributions().items() if not declared & dists] == []


@pytest.mark.parametrize("requirement", requirements(PROJECT["dependencies"]), ids=str)
def test_every_dependency_is_imported_somewhere(requirement):
    imported = set().union(*imported_distributions().values())
    assert canonicalize_name(requirement.name) in imported
