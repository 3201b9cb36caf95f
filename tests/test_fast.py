"""The build with MKL: in whose place it comes, and when the one that was there stays."""

import sys
from importlib.metadata import version

import pytest

from corral import fast

STEPS = ("fetch", "compile", "unpack", "try", "install")


class Runs:
    """Records commands instead of running them; one of them may fail."""

    def __init__(self, failing=None):
        self.commands, self.variables, self.failing = [], [], failing

    def __call__(self, command, variables):
        self.commands.append(command)
        self.variables.append(variables)
        return int(STEPS[len(self.commands) - 1] == self.failing)


@pytest.fixture(autouse=True)
def _plain_build_on_linux(monkeypatch):
    monkeypatch.setattr(fast, "uses_mkl", lambda: False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(fast.platform, "machine", lambda: "x86_64")


def test_the_same_version_is_compiled_with_mkl_tried_and_then_installed(monkeypatch):
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=OFF")
    runs, said = Runs(), []
    assert "now multiplies matrices with MKL" in fast.build(runs, say=said.append)
    assert len(runs.commands) == len(STEPS)
    assert f"llama-cpp-python=={version('llama-cpp-python')}" in runs.commands[1]
    flags = runs.variables[1]["CMAKE_ARGS"]
    assert flags.startswith("-DGGML_NATIVE=OFF ")
    assert "-DGGML_BLAS_VENDOR=Intel10_64lp_seq" in flags
    assert "PYTHONPATH" in runs.variables[3]
    assert "--force-reinstall" in runs.commands[4]
    assert any("ten minutes" in line for line in said)


@pytest.mark.parametrize(
    ("failing", "word"),
    [
        ("fetch", "could not fetch MKL"),
        ("compile", "could not be compiled"),
        ("unpack", "does not run here"),
        ("try", "does not run here"),
        ("install", "could not be installed"),
    ],
)
def test_a_step_that_fails_leaves_the_plain_build_with_a_word(failing, word):
    runs = Runs(failing)
    found = fast.build(runs, say=str)
    assert found.startswith("The plain build of llama.cpp stays")
    assert word in found
    assert len(runs.commands) == STEPS.index(failing) + 1


@pytest.mark.parametrize(("system", "machine"), [("darwin", "x86_64"), ("linux", "aarch64")])
def test_nothing_is_run_where_there_is_no_mkl(monkeypatch, system, machine):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(fast.platform, "machine", lambda: machine)
    runs = Runs()
    assert f"this is {system} {machine}" in fast.build(runs, say=str)
    assert runs.commands == []


def test_a_build_with_mkl_is_not_built_again(monkeypatch):
    monkeypatch.setattr(fast, "uses_mkl", lambda: True)
    runs = Runs()
    assert "already" in fast.build(runs, say=str)
    assert runs.commands == []


def test_the_command_says_what_became_of_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    fast.main()
    assert "this is win32" in capsys.readouterr().out


class TestUsesMkl:
    @pytest.fixture(autouse=True)
    def _a_package_of_our_own(self, monkeypatch, tmp_path):
        monkeypatch.undo()  # the stand-in for uses_mkl
        self.package = tmp_path / "llama_cpp"
        (self.package / "lib").mkdir(parents=True)
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)

    def install(self, library=None):
        (self.package / "__init__.py").touch()
        if library is not None:
            (self.package / "lib" / "libggml-blas.so").write_bytes(library)

    def test_a_blas_library_with_mkl_in_it_tells(self):
        self.install(b"\x7fELF mkl_blas_sgemm")
        assert fast.uses_mkl()

    @pytest.mark.parametrize("library", [None, b"\x7fELF openblas_sgemm"])
    def test_no_blas_or_another_one_does_not(self, library):
        self.install(library)
        assert not fast.uses_mkl()

    def test_no_llama_cpp_does_not(self):
        self.package.rename(self.package.with_name("elsewhere"))
        assert not fast.uses_mkl()
