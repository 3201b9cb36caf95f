"""What the README and the docs show is there, and does what they say."""

import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from corral.cli import corral

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CLI = ROOT / "docs" / "cli.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
BIN = Path(sys.executable).parent
HEAVY = {
    "gguf",
    "langchain_core",
    "llama_cpp",
    "numpy",
    "qdrant_client",
    "qdrant_edge",
    "tokenizers",
}


def blocks(page, language):
    """Contents of a page's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def shell_lines():
    """Commands that the pages tell to type, by page and line."""
    for page in PAGES:
        typed = "\n".join(blocks(page, "sh"))
        typed += "\n".join(re.findall(r"^\$ (.+)$", "".join(blocks(page, "console")), re.MULTILINE))
        for line in typed.splitlines():
            if words := shlex.split(line, comments=True):
                yield pytest.param(words, id=f"{page.name}: {' '.join(words)[:60]}")


def commands(command=corral, path=("corral",)):
    """Every command below, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


COMMANDS = dict(commands())


def options_of(command):
    """Every spelling of every option of a command, called as a subcommand is."""
    parent = click.Context(corral, **corral.context_settings)
    params = command.get_params(click.Context(command, parent=parent))
    options = [param for param in params if isinstance(param, click.Option)]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def section(words):
    """The part of docs/cli.md on one command."""
    found = re.search(
        rf"^## {' '.join(words)}$(.*?)(?=^## |\Z)", CLI.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, f"docs/cli.md has no section {words}"
    return found[1]


@pytest.mark.parametrize("words", list(shell_lines()))
def test_a_shell_line_calls_what_exists(words):
    words = [word for word in words if not re.match(r"[A-Z_]+=", word)]
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
        return
    if words[0] == "ingest":
        words = ["corral", *words]
    if words[0] == "corral":
        path = max((p for p in COMMANDS if list(p) == words[: len(p)]), key=len)
        assert not isinstance(COMMANDS[path], click.Group)
        given = {word for word in words if re.match(r"--?[a-z]", word)}
        assert given - options_of(COMMANDS[path]) == set()
        return
    if words[:2] == ["python", "-m"]:
        assert find_spec(words[2])
        return
    if words[0] == "python":
        assert (ROOT / words[1]).is_file()
        return
    assert words[0] in {"source", "pip"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_docs_name_every_option_of_a_command_and_no_other(words):
    named = set(re.findall(r"`(--?[a-z][a-z-]*)", section(words)))
    assert named == options_of(COMMANDS[words])


def test_the_docs_have_no_section_for_a_command_that_is_not_there():
    headings = re.findall(r"^## (corral.*)$", CLI.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(" ".join(words) for words in COMMANDS)


def test_the_script_ingest_is_the_command_of_that_name():
    ours = options_of(COMMANDS["corral", "ingest"])
    shown = subprocess.run([BIN / "ingest", "--help"], check=True, capture_output=True, text=True)
    assert {name for name in ours if name in shown.stdout} == ours


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_imports_nothing_heavy(words):
    code = f"""
import sys
from importlib.util import find_spec
from corral.cli import main
try:
    main({[*words[1:], "--help"]!r})
except SystemExit as end:
    assert end.code == 0
print("imported:", *sorted({HEAVY!r} & set(sys.modules)))
"""
    child = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "Usage: " in child.stdout
    assert child.stdout.splitlines()[-1].split() == ["imported:"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_pages_that_the_sources_send_readers_to_exist():
    sources = [
        file.read_text()
        for room in ("plugin", "chunkers", "sinks")
        for file in (ROOT / room).rglob("*.py")
    ]
    named = {page for text in sources for page in re.findall(r"(?<!/)\bdocs/[a-z-]+\.md", text)}
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


@pytest.fixture(scope="module")
def home(tmp_path_factory, minilm_path):
    """A folder in which the README's own lines have been typed, examples/docs being the notes."""
    assert minilm_path.is_file()  # nothing is fetched below
    folder = tmp_path_factory.mktemp("home")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def typed(words, folder):
    """Run one of our commands as a user would."""
    return subprocess.run(
        [BIN / words[0], *words[1:]], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def answers(home):
    """What the README's commands printed, by their first two words."""
    lines = "".join(blocks(README, "sh")).replace("~/notes", "examples/docs")
    ran = {}
    for line in lines.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] in {"ingest", "corral"}:
            ran[words[0]] = typed(words, home)
    return ran


def test_the_readmes_ingest_stores_the_folder(answers):
    assert answers["ingest"].returncode == 0, answers["ingest"].stderr


def test_the_readmes_search_finds_the_page_that_answers(answers):
    assert answers["corral"].returncode == 0, answers["corral"].stderr
    assert "sheepdogs.md" in answers["corral"].stdout


@pytest.mark.usefixtures("answers")
def test_the_readmes_langchain_snippet_finds_the_page_that_answers(home):
    (snippet,) = blocks(README, "python")
    child = subprocess.run(
        [sys.executable, "-c", snippet],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert len(child.stdout.splitlines()) == 3
    assert "sheepdogs.md" in child.stdout.splitlines()[0]


def test_the_readmes_error_is_what_the_command_says(home):
    (block,) = blocks(README, "console")
    command, _, shown = block.removeprefix("$ ").partition("\n")
    child = typed(shlex.split(command), home)
    assert child.returncode == 2
    assert " ".join((child.stdout + child.stderr).split()) == " ".join(shown.split())


@pytest.fixture(scope="module")
def demo(home):
    """What each line of `make demo` printed, typed in the same folder."""
    plan = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    lines = re.findall(r"^\.venv/bin/((?:corral|ingest) .+)$", plan.stdout, re.MULTILINE)
    return [typed(shlex.split(line), home) for line in lines]


def test_the_demo_brings_a_model_stores_the_documents_and_finds_what_answers(demo):
    assert [child.returncode for child in demo] == [0] * 5, [child.stderr for child in demo]
    _, ingested, *searched = [child.stdout for child in demo]
    n_documents = len(list((ROOT / "examples" / "docs").iterdir()))
    assert f"{n_documents} stored" in ingested
    first_hits = [re.search(r"[a-z-]+\.(?:md|rst|txt)", table)[0] for table in searched]
    assert first_hits == ["shearing.md", "fencing.md", "herdenschutz.md"]


@pytest.mark.usefixtures("demo")
def test_the_langchain_example_reads_the_demos_collection(home):
    command = [sys.executable, "examples/langchain_read.py", "what does the ewe eat in winter?"]
    child = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert "winter-feed.txt" in child.stdout.splitlines()[0]
