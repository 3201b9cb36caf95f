"""Which files are found under roots, and how they are named."""

import os
import socket
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral import discovery
from corral.discovery import SkippedFile, SourceFile, discover
from corral.errors import UsageError


@pytest.fixture
def tree(tmp_path):
    """Make files below a folder, and return it."""

    def tree(*names, at="docs"):
        root = tmp_path / at
        root.mkdir(parents=True, exist_ok=True)
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"text of {name}")
        return root

    return tree


def sources(*roots, patterns=(), **options):
    found = discover(roots, patterns, **options)
    return [file.source for file in found if isinstance(file, SourceFile)]


def skipped(*roots, **options):
    found = discover(roots, **options)
    return {file.source: file.reason for file in found if isinstance(file, SkippedFile)}


def test_files_are_named_relative_to_their_root_and_ordered_by_name(tree):
    root = tree("b.txt", "a/z.md", "a/b/c.rst", "B.txt", "a.txt")
    assert sources(root) == ["B.txt", "a/b/c.rst", "a/z.md", "a.txt", "b.txt"]


def test_paths_are_shown_below_the_root_as_it_was_given(tree, monkeypatch):
    monkeypatch.chdir(tree("a/b.txt"))
    (file,) = discover([Path()])
    assert file == SourceFile(Path("a/b.txt"), "a/b.txt")


def test_only_kinds_that_can_be_read_are_taken_from_folders(tree):
    root = tree("a.txt", "b.MD", "c.rst", "d.png", "txt", "e.txt.gz")
    assert sources(root) == ["a.txt", "b.MD", "c.rst"]
    assert sources(root, suffixes=(".png",)) == ["d.png"]


def test_a_file_given_by_its_name_is_taken_whatever_its_suffix(tree):
    root = tree("notes.log", "a.txt")
    assert sources(root / "notes.log") == ["notes.log"]
    assert sources(root / "notes.log", patterns=["*.md"]) == ["notes.log"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.md", ["a/c.md", "d.md"]),
        ("d.*", ["d.md"]),
        ("a/*", ["a/b.txt", "a/c.md", "a/x/e.txt"]),
        ("a/**", ["a/b.txt", "a/c.md", "a/x/e.txt"]),
        ("a/**/*.txt", ["a/b.txt", "a/x/e.txt"]),
        ("**/e.txt", ["a/x/e.txt"]),
        ("/d.md", ["d.md"]),
        ("[!a]/**", ["f/g.txt"]),
        ("?.txt", ["a/b.txt", "a/x/e.txt", "f/g.txt"]),
    ],
)
def test_patterns_are_for_names_or_with_a_slash_for_paths(tree, pattern, expected):
    root = tree("a/b.txt", "a/c.md", "a/x/e.txt", "d.md", "f/g.txt")
    assert sources(root, patterns=[pattern]) == expected


def test_one_of_several_patterns_is_enough(tree):
    root = tree("a.txt", "b.md", "c.rst")
    assert sources(root, patterns=["*.md", "c.*"]) == ["b.md", "c.rst"]


def test_equal_names_under_several_roots_have_sources_of_their_own(tree, tmp_path):
    first, second = tree("README.md", at="one"), tree("README.md", at="two/deep")
    assert sources(first, second) == ["one/README.md", "two/deep/README.md"]
    assert sources(second, first) == ["two/deep/README.md", "one/README.md"]
    assert sources(tmp_path) == ["one/README.md", "two/deep/README.md"]


def test_files_given_one_by_one_are_named_as_their_folder_would_name_them(tree):
    root = tree("a.txt", "b.txt", "sub/c.txt")
    assert sources(root / "b.txt", root / "a.txt") == ["b.txt", "a.txt"]
    assert sources(root / "a.txt", root / "sub/c.txt") == ["a.txt", "sub/c.txt"]


def test_nothing_is_found_twice(tree, tmp_path, monkeypatch):
    root = tree("a.txt", "sub/b.txt", "sub/c.log")
    monkeypatch.chdir(tmp_path)
    roots = [root / "sub", root / "a.txt", root, Path("docs"), root / "sub/c.log", root / "a.txt"]
    assert sources(*roots) == ["a.txt", "sub/b.txt", "sub/c.log"]


def test_sources_are_uris(tree):
    root = tree("a b.txt", "50% #1?.md", "c:d.txt", "毛房.txt", "line\nfeed.txt")
    assert sources(root) == [
        "50%25%20%231%3F.md",
        "a%20b.txt",
        "c%3Ad.txt",
        "line%0Afeed.txt",
        "%E6%AF%9B%E6%88%BF.txt",
    ]


def test_names_that_are_no_utf8_keep_their_bytes(tree):
    root = tree("a.txt")
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.txt")).write_text("x")
    found = [file for file in discover([root]) if isinstance(file, SourceFile)]
    assert [file.source for file in found] == ["a.txt", "caf%E9.txt"]
    assert found[1].path.read_text() == "x"


@given(name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1))
def test_a_source_gives_the_path_back(name):
    source = discovery._uri(Path("/root") / "a" / f"x{name}", Path("/root"))
    assert source.isascii()
    assert os.fsdecode(unquote_to_bytes(source)) == f"a/x{name}"


def test_a_link_to_a_file_under_a_root_is_followed(tree):
    root = tree("sub/README")
    (root / "a.txt").symlink_to("sub/README")
    assert sources(root) == ["a.txt"]


def test_links_that_lead_out_of_the_roots_are_listed_and_not_followed(tree):
    root, outside = tree("a.txt"), tree("secret.txt", at="outside")
    (root / "b.txt").symlink_to(outside / "secret.txt")
    (root / "folder").symlink_to(outside)
    (root / "unwanted").symlink_to(outside / "secret.txt")
    assert sources(root) == ["a.txt"]
    reasons = skipped(root)
    assert set(reasons) == {"b.txt", "folder"}
    assert all("outside of what is to be read" in reason for reason in reasons.values())
    assert str(outside / "secret.txt") in reasons["b.txt"]


def test_links_that_lead_out_are_followed_on_demand_under_their_own_names(tree):
    root, outside = tree("a.txt"), tree("x.txt", "deep/y.md", "z.log", at="outside")
    (root / "b.txt").symlink_to(outside / "x.txt")
    (root / "folder").symlink_to(outside)
    assert sources(root, follow_symlinks=True) == [
        *("a.txt", "b.txt", "folder/deep/y.md", "folder/x.txt")
    ]
    assert sources(root, follow_symlinks=True, patterns=["folder/*.txt"]) == ["folder/x.txt"]


def test_links_that_are_followed_are_followed_once_and_circles_end(tree):
    root, outside = tree("a.txt"), tree("x.txt", "deep/y.txt", at="outside")
    for name, target in [("one", outside), ("two", outside), ("up", root.parent), ("own", root)]:
        (root / name).symlink_to(target)
    (outside / "deep" / "back").symlink_to(outside)
    (outside / "deep" / "here").symlink_to(outside / "deep")
    (outside / "to-root").symlink_to(root)
    found = sources(root, follow_symlinks=True)
    assert found[:1] + found[-1:] == ["a.txt", "one/x.txt"]
    assert len(found) == len(set(found)) < 6
    reasons = skipped(root, follow_symlinks=True)
    assert "searched under another link's name" in reasons["two"]
    assert "searched under another link's name" in reasons["one/deep/back"]
    assert "outside of what is to be read" in reasons["up"]
    for own in ("own", "one/to-root"):
        assert "searched under its own name" in reasons[own]


def test_a_link_from_one_root_into_another_is_followed(tree):
    first, second = tree("a.txt", at="one"), tree("b.txt", at="two")
    (first / "to-two.txt").symlink_to(second / "b.txt")
    assert sources(first, second) == ["one/a.txt", "one/to-two.txt", "two/b.txt"]


def test_a_name_that_only_starts_like_a_root_is_outside_of_it(tree):
    root, outside = tree("a.txt", at="docs"), tree("b.txt", at="docs-private")
    (root / "b.txt").symlink_to(outside / "b.txt")
    assert sources(root) == ["a.txt"]


def test_circles_of_links_end(tree):
    root = tree("sub/a.txt")
    (root / "sub" / "up").symlink_to("..")
    (root / "self.txt").symlink_to("self.txt")
    (root / "nowhere.txt").symlink_to("gone.txt")
    assert sources(root) == ["sub/a.txt"]
    reasons = skipped(root)
    assert "searched under its own name" in reasons.pop("sub/up")
    assert reasons == {
        "nowhere.txt": "a link that leads nowhere",
        "self.txt": "a link that leads nowhere",
    }


def test_a_root_that_is_a_link_is_followed(tree, tmp_path):
    root = tree("a.txt")
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "file.txt").symlink_to(root / "a.txt")
    assert sources(tmp_path / "link") == ["a.txt"]
    assert sources(tmp_path / "file.txt") == ["file.txt"]


def test_what_is_no_file_is_listed_with_its_kind(tree):
    root = tree("a.txt")
    os.mkfifo(root / "pipe.txt")
    os.mkfifo(root / "unwanted")
    (root / "link.txt").symlink_to("pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "s.md"))
        assert skipped(root) == {"pipe.txt": "a FIFO", "link.txt": "a FIFO", "s.md": "a socket"}
    assert not any(file.failed for file in discover([root]) if isinstance(file, SkippedFile))


def test_a_folder_that_may_not_be_listed_is_a_failure_and_the_rest_is_found(tree, monkeypatch):
    root = tree("a.txt", "closed/b.txt", "d.txt")
    iterdir = Path.iterdir

    def refuse(folder):
        if folder.name == "closed":
            raise PermissionError(13, "Permission denied")
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    first, closed, last = discover([root])
    assert (first.source, last.source) == ("a.txt", "d.txt")
    assert closed == SkippedFile(
        root / "closed", "closed", "it cannot be looked into: Permission denied", failed=True
    )


def test_folders_may_nest_deeper_than_calls_may(tree, monkeypatch):
    root, depth = tree("a.txt"), 1100
    monkeypatch.chdir(root)
    for _ in range(depth):
        Path("d").mkdir()
        os.chdir("d")
    Path("b.txt").write_text("deep")
    try:
        assert sources(root) == ["a.txt", "d/" * depth + "b.txt"]
    finally:  # too deep for pytest to clear away
        Path("b.txt").unlink()
        for _ in range(depth):
            os.chdir("..")
            Path("d").rmdir()


def test_a_missing_root_is_wrong_use(tree):
    with pytest.raises(UsageError, match=r"gone cannot be read: No such file.*that exist"):
        discover([tree("a.txt"), Path("gone")])


def test_no_root_is_wrong_use():
    with pytest.raises(UsageError, match="no file or folder is given"):
        discover([])


def test_an_empty_folder_is_answered_with_what_was_looked_for(tree):
    root = tree("a.png")
    with pytest.raises(UsageError) as error:
        discover([root], ["*.md", "x/*"])
    for part in (str(root), "*.txt *.md *.rst", "*.md or x/*", "by its own name"):
        assert part in str(error.value)


def test_a_folder_of_nothing_but_skipped_files_says_why(tree):
    root = tree()
    for i in range(7):
        os.mkfifo(root / f"{i}.txt")
    with pytest.raises(UsageError, match=r"4\.txt: a FIFO\. And 2 more\."):
        discover([root])
    with pytest.raises(UsageError, match=r"0\.txt: a FIFO\.$"):
        discover([root / "0.txt"])


class TestLeftOut:
    def test_hidden_names_and_virtual_environments_are_searched_on_demand(self, tree):
        root = tree(
            "a.txt", ".b.txt", ".git/c.txt", "venv/pyvenv.cfg", "venv/lib/d.md", "e/.f/g.txt"
        )
        assert sources(root) == ["a.txt"]
        everything = [".b.txt", ".git/c.txt", "a.txt", "e/.f/g.txt", "venv/lib/d.md"]
        assert sources(root, hidden=True) == everything
        assert sources(root / ".git", root / ".b.txt", root / "venv") == [
            ".git/c.txt", ".b.txt", "venv/lib/d.md",
        ]  # fmt: skip

    def test_an_embedded_collection_among_the_documents_is_none_of_them(self, tree):
        root = tree("a.txt", "db/x/corral.json", "db/x/edge_config.json", "db/x/segments/s.txt")
        assert sources(root, hidden=True, suffixes=(".txt", ".json")) == ["a.txt"]
        (root / "db/x/edge_config.json").unlink()
        assert len(sources(root, suffixes=(".txt", ".json"))) == 3

    def test_ignore_files_count_below_their_folder_and_the_nearest_decides(self, tree):
        root = tree(
            "a.txt", "b.log.txt", "build/c.txt", "x/build/d.txt", "x/keep.log.txt", "x/e.txt"
        )
        (root / ".gitignore").write_text("*.log.txt\nbuild/\n/a.txt\n")
        (root / "x" / ".gitignore").write_text("!keep.log.txt\ne.txt\n")
        assert sources(root) == ["x/keep.log.txt"]
        assert len(sources(root, no_ignore=True)) == 6
        assert sources(root / "a.txt") == ["a.txt"]

    def test_corralignore_comes_behind_gitignore(self, tree):
        root = tree("a.txt", "b.txt", "c.txt")
        (root / ".gitignore").write_text("a.txt\nb.txt\n")
        (root / ".corralignore").write_text("!b.txt\nc.txt\n")
        assert sources(root) == ["b.txt"]

    def test_what_a_repository_ignores_above_the_root_is_ignored(self, tree):
        root = tree("docs/a.txt", "docs/b.txt", ".git/config", at="repository")
        (root / ".gitignore").write_text("docs/a.txt\n")
        assert sources(root / "docs") == ["b.txt"]
        (root / ".git" / "config").unlink()
        (root / ".git").rmdir()
        assert sources(root / "docs") == ["a.txt", "b.txt"]

    def test_a_root_that_is_ignored_itself_is_searched_by_its_own_ignore_files(self, tree):
        root = tree("out/x/a.txt", "out/x/b.txt", ".git/config", at="repository")
        (root / ".gitignore").write_text("out/\n")
        (root / "out" / "x" / ".gitignore").write_text("b.txt\n")
        assert sources(root / "out") == ["x/a.txt"]
        assert sources(root / "out" / "x") == ["a.txt"]

    def test_an_ignore_file_that_cannot_be_read_leaves_nothing_out(self, tree):
        root = tree("a.txt", ".gitignore/b.txt")
        assert sources(root) == ["a.txt"]

    def test_patterns_leave_files_and_folders_out(self, tree):
        root = tree("a.txt", "b.md", "old/c.txt", "x/old/d.txt", "x/e.txt")
        assert sources(root, exclude=["*.md", "old/"]) == ["a.txt", "x/e.txt"]
        assert sources(root, exclude=["/old"]) == ["a.txt", "b.md", "x/e.txt", "x/old/d.txt"]
        assert sources(root, patterns=["*.txt"], exclude=["/a.*"])[0] == "old/c.txt"

    def test_a_pattern_that_is_none_is_wrong_use(self, tree):
        with pytest.raises(UsageError, match="--exclude: .*as in a .gitignore"):
            discover([tree("a.txt")], exclude=["!"])


class TestLists:
    def test_sources_are_relative_to_the_current_folder(self, tree, monkeypatch):
        root = tree("a/b.txt", "c/d.png", "e/f.md")
        monkeypatch.chdir(root)
        found = discover([], listed=[Path("a/b.txt"), root / "c" / "d.png", Path("e")])
        assert [file.source for file in found] == ["a/b.txt", "c/d.png", "e/f.md"]

    def test_what_is_missing_is_listed_as_failed(self, tree, monkeypatch):
        monkeypatch.chdir(tree("a.txt"))
        found = discover([], listed=[Path("a.txt"), Path("gone.txt")])
        assert found[0] == SourceFile(Path("a.txt"), "a.txt")
        assert (found[1].source, found[1].failed) == ("gone.txt", True)
        assert "No such file" in found[1].reason

    def test_standard_input_is_a_file_with_a_name_of_its_own(self, tree):
        root = tree("a.txt")
        assert sources(Path("-")) == ["-"]
        assert sources(root, Path("-"), stdin_name="page.html") == ["page.html", "a.txt"]
