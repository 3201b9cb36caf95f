"""The build with MKL: in whose place it comes, and when the one that was there stays."""

import ctypes
import re
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest

from corral import fast

STEPS = {
    "fetch": "mkl-static==2026.*",
    "compile": "wheel",
    "unpack": "--target",
    "try": "-c",
    "install": "--force-reinstall",
}


class Runs:
    """Records commands instead of running them; those of one step may fail, all or `only` some."""

    def __init__(self, failing=None, only=None):
        self.steps, self.commands, self.variables = [], {}, []
        self.failing, self.left = failing, only

    def __call__(self, command, variables):
        (step,) = [step for step, word in STEPS.items() if word in command]
        self.steps.append(step)
        self.commands[step] = command
        self.variables.append(variables)
        if step != self.failing or self.left == 0:
            return 0
        self.left = None if self.left is None else self.left - 1
        return 1


@pytest.fixture(autouse=True)
def _plain_build_on_linux(monkeypatch):
    monkeypatch.setattr(fast, "uses_mkl", lambda: False)
    monkeypatch.setattr(fast, "uses_loops", lambda: False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(fast.platform, "machine", lambda: "x86_64")


def test_the_same_version_is_compiled_with_mkl_tried_and_then_installed(monkeypatch):
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=OFF")
    monkeypatch.setenv("CXXFLAGS", "-g0")
    runs, said = Runs(), []
    assert fast.build(runs, say=said.append) == "llama.cpp now multiplies matrices with MKL."
    assert runs.steps == list(STEPS)
    assert f"llama-cpp-python=={version('llama-cpp-python')}" in runs.commands["compile"]
    flags = runs.variables[1]["CMAKE_ARGS"]
    assert flags.startswith("-DGGML_NATIVE=OFF ")
    assert "-DGGML_BLAS_VENDOR=Intel10_64lp_seq" in flags
    assert re.fullmatch(r"-g0 -include \S+/fast_loops\.h", runs.variables[1]["CXXFLAGS"])
    assert "PYTHONPATH" in runs.variables[3]
    assert any("ten minutes" in line for line in said)


def test_loops_that_are_in_the_build_are_told_of(monkeypatch):
    monkeypatch.setattr(fast, "uses_loops", lambda: True)
    assert fast.build(Runs(), say=str).endswith("MKL, and its loops are vectorised.")


def test_a_llama_cpp_that_the_loops_do_not_go_with_is_compiled_without_them():
    runs, said = Runs("compile", only=1), []
    assert "now multiplies matrices with MKL" in fast.build(runs, say=said.append)
    assert runs.steps == ["fetch", "compile", *list(STEPS)[1:]]
    assert ["CXXFLAGS" in variables for variables in runs.variables[1:3]] == [True, False]
    assert any("without corral's own loops" in line for line in said)


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
    assert runs.steps[-1] == failing


@pytest.mark.parametrize(("system", "machine"), [("darwin", "x86_64"), ("linux", "aarch64")])
def test_nothing_is_run_where_there_is_no_mkl(monkeypatch, system, machine):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(fast.platform, "machine", lambda: machine)
    runs = Runs()
    assert f"this is {system} {machine}" in fast.build(runs, say=str)
    assert runs.steps == []


def test_a_build_with_mkl_is_not_built_again(monkeypatch):
    monkeypatch.setattr(fast, "uses_mkl", lambda: True)
    runs = Runs()
    assert "already" in fast.build(runs, say=str)
    assert runs.steps == []


def test_the_command_says_what_became_of_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    fast.main()
    assert "this is win32" in capsys.readouterr().out


class TestWhatABuildUses:
    @pytest.fixture(autouse=True)
    def _a_package_of_our_own(self, monkeypatch, tmp_path):
        monkeypatch.undo()  # the stand-ins for what is asked here
        self.package = tmp_path / "llama_cpp"
        (self.package / "lib").mkdir(parents=True)
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)

    def install(self, library=None, name="libggml-blas.so"):
        (self.package / "__init__.py").touch()
        if library is not None:
            (self.package / "lib" / name).write_bytes(library)

    def test_a_blas_library_with_mkl_in_it_tells(self):
        self.install(b"\x7fELF mkl_blas_sgemm")
        assert fast.uses_mkl()

    @pytest.mark.parametrize("library", [None, b"\x7fELF openblas_sgemm"])
    def test_no_blas_or_another_one_does_not(self, library):
        self.install(library)
        assert not fast.uses_mkl()

    def test_the_loops_tell_by_their_name(self):
        self.install(b"\x7fELF corral_fast_loops", "libggml-cpu.so")
        assert fast.uses_loops()
        assert not fast.uses_mkl()

    def test_no_llama_cpp_does_not(self):
        self.package.rename(self.package.with_name("elsewhere"))
        assert not fast.uses_mkl()


# The loops themselves

VEC_H = """
#include <cmath>
static const float GELU_COEF_A = 0.044715f;
static const float SQRT_2_OVER_PI = 0.79788456080286535587989211986876f;
static void ggml_vec_silu_f32(const int n, float * y, const float * x) {
    for (int i = 0; i < n; ++i) y[i] = x[i] / (1 + std::exp(-x[i]));
}
"""
CALLS = """
extern "C" float greatest(int n, const float * x) { float s; ggml_vec_max_f32(n, &s, x); return s; }
extern "C" void gelu(int n, float * y, const float * x) { ggml_vec_gelu_f32(n, y, x); }
"""


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    """The loops, compiled as a file of ggml-cpu is, with a stand-in for its vec.h."""
    folder = tmp_path_factory.mktemp("loops")
    (folder / "vec.h").write_text(VEC_H)
    (folder / "simd-mappings.h").touch()
    (folder / "ops.cpp").write_text(CALLS)
    library = folder / "ops.so"
    subprocess.run(
        ["g++", "-std=c++17", "-O3", "-shared", "-fPIC", "-Wall", "-Werror", "-I", folder,
         "-include", fast._LOOPS, folder / "ops.cpp", "-o", library],
        check=True,
    )  # fmt: skip
    assert b"corral_fast_loops" in library.read_bytes()
    loaded = ctypes.CDLL(str(library))
    loaded.greatest.restype = ctypes.c_float
    return loaded


def address(array):
    return ctypes.c_void_p(array.ctypes.data)


SIZES = pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 64, 255, 256, 257, 1536])


@SIZES
def test_the_greatest_value_is_numpys(loops, n):
    values = np.random.default_rng(n).standard_normal(n).astype(np.float32) - 5
    for place in {0, n // 2, n - 1}:
        values[place] += 100
        assert loops.greatest(n, address(values)) == values.max()
        values[place] -= 100


def test_the_greatest_of_none_or_of_hidden_scores_is_minus_infinity(loops):
    hidden = np.full(70, -np.inf, np.float32)
    assert loops.greatest(0, address(hidden)) == -np.inf
    assert loops.greatest(70, address(hidden)) == -np.inf
    hidden[69] = -1e30
    assert loops.greatest(70, address(hidden)) == np.float32(-1e30)


@SIZES
def test_gelu_is_its_formula(loops, n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32) * 4
    y = np.empty_like(x)
    loops.gelu(n, address(y), address(x))
    exact = x.astype(np.float64)
    u = np.sqrt(2 / np.pi) * (exact + 0.044715 * exact**3)
    np.testing.assert_allclose(y, 0.5 * exact * (1 + np.tanh(u)), atol=1e-6)


def test_gelu_of_large_values_is_nothing_or_the_value(loops):
    x = np.array([-1e4, -30, -0.0, 0.0, 30, 1e4], np.float32)
    y = np.empty_like(x)
    loops.gelu(len(x), address(y), address(x))
    np.testing.assert_allclose(y, [0, 0, 0, 0, 30, 1e4], rtol=1e-6)


def test_the_loops_leave_every_other_file_alone(tmp_path):
    source = tmp_path / "other.cpp"
    source.write_text("int main() { return 0; }")
    done = subprocess.run(
        ["g++", "-std=c++17", "-E", "-P", "-include", fast._LOOPS, source],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split("\n", 1)[0] == source.read_text()
