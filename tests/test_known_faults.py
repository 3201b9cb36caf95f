"""Every fault in docs/known-faults.md names a test that is there."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROWS = re.findall(
    r"^\| (.+) \| (.+) \| `(\w+\.py)::(\w+)` \|$",
    (TESTS.parent / "docs" / "known-faults.md").read_text(),
    re.MULTILINE,
)


def test_every_line_of_the_tables_is_read():
    text = (TESTS.parent / "docs" / "known-faults.md").read_text()
    lines = re.findall(r"^\| (?!reported elsewhere)", text, re.MULTILINE)
    assert len(lines) == len(ROWS) > 70


@pytest.mark.parametrize(("fault", "here", "file", "name"), ROWS, ids=[row[0] for row in ROWS])
def test_the_test_of_a_fault_is_there(fault, here, file, name):
    assert fault != here
    tree = ast.parse((TESTS / file).read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in names
    assert name.startswith("test_")
