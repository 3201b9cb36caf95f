"""`python -m corral.fast`: build llama-cpp-python anew, with MKL and vectorised loops in it.

For x86-64 Linux; it takes the compiler some ten minutes. MKL comes from PyPI, is linked statically
and thrown away after the build: nothing of it has to be found, set or kept at run time, and, being
the sequential one, it starts no threads beside ours. `fast_loops.h` is compiled in where llama.cpp
still has the loops that it stands for. Whatever fails, the build that was there stays.

Source of the flags: llama.cpp's ggml/src/ggml-blas/CMakeLists.txt and CMake's FindBLAS.
"""

import importlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

__all__ = ["Run", "build", "main", "uses_loops", "uses_mkl"]

_MKL: Final = ("mkl-static==2026.*", "mkl-include==2026.*")
_PACKAGE: Final = "llama-cpp-python"
_LOOPS: Final = Path(__file__).with_name("fast_loops.h")
_LOADS_MKL: Final = (
    "import sys\n"
    "from corral.engine import _llama\n"
    "from corral.fast import uses_mkl\n"
    "loaded = 'libggml-blas' in open('/proc/self/maps').read()\n"
    "sys.exit(not (loaded and uses_mkl()))\n"
)

Run = Callable[[list[str], Mapping[str, str]], int]
"""Runs a command with variables added to the environment, and gives its exit code."""


def main() -> None:
    """Build and say what became of it; a failure leaves a working build, and ends with 0 too."""
    click.echo(build(_run, say=click.echo))


def uses_mkl() -> bool:
    """Tell whether the llama-cpp-python that would be imported multiplies matrices with MKL."""
    return _has("libggml-blas.so", b"mkl_")


def uses_loops() -> bool:
    """Tell whether the llama-cpp-python that would be imported has the loops of `fast_loops.h`."""
    return _has("libggml-cpu.so", b"corral_fast_loops")


def _has(library: str, word: bytes) -> bool:
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return False
    path = Path(spec.origin).parent / "lib" / library
    return path.is_file() and word in path.read_bytes()


def build(run: Run, *, say: Callable[[str], object]) -> str:
    """Put a build with MKL in the place of the one that is installed.

    Args:
        run: runs the commands.
        say: is told what takes long.

    Returns:
        What became of it, for the user.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return _stays(f"MKL is for x86-64 Linux, and this is {sys.platform} {platform.machine()}")
    if uses_mkl():
        return "llama.cpp multiplies matrices with MKL already."
    with tempfile.TemporaryDirectory(prefix="corral-fast-") as folder:
        return _build_in(Path(folder), run, say)


def _build_in(folder: Path, run: Run, say: Callable[[str], object]) -> str:
    pip = [sys.executable, "-P", "-m", "pip"]
    install = [*pip, "install", "--quiet", "--no-deps"]
    mkl, made, trial = folder / "mkl", folder / "made", folder / "trial"
    say("Fetching MKL (250 MB).")
    if run([*install, "--ignore-installed", "--prefix", str(mkl), *_MKL], {}):
        return _stays("pip could not fetch MKL")
    say("Compiling llama.cpp with MKL: some ten minutes, in which pip prints nothing.")
    wheel = [*pip, "wheel", "--quiet", "--no-deps", "--no-cache-dir", "--no-binary", _PACKAGE]
    source = f"{_PACKAGE}=={version(_PACKAGE)}"
    compile_it = [*wheel, "--wheel-dir", str(made), source]
    if run(compile_it, {**_mkl_variables(mkl), **_loop_variables(folder)}):
        say("Compiling again, without corral's own loops: this llama.cpp may not go with them.")
        if run(compile_it, _mkl_variables(mkl)):
            return _stays("llama-cpp-python could not be compiled with MKL; pip says above why")
    wheels = [str(path) for path in made.glob("*.whl")]
    if run([*install, "--target", str(trial), *wheels], {}) or run(
        [sys.executable, "-c", _LOADS_MKL], {"PYTHONPATH": str(trial)}
    ):
        return _stays("the build with MKL does not run here")
    if run([*install, "--force-reinstall", *wheels], {}):
        return _stays("the build with MKL could not be installed")
    importlib.invalidate_caches()
    loops = ", and its loops are vectorised" if uses_loops() else ""
    return f"llama.cpp now multiplies matrices with MKL{loops}."


def _loop_variables(folder: Path) -> dict[str, str]:
    loops = folder / _LOOPS.name
    shutil.copyfile(_LOOPS, loops)  # where no name on the way has a blank in it
    own = os.environ.get("CXXFLAGS", "")
    return {"CXXFLAGS": f"{own} -include {loops}".strip()}


def _mkl_variables(mkl: Path) -> dict[str, str]:
    flags = (
        "-DGGML_BLAS=ON",
        "-DGGML_BLAS_VENDOR=Intel10_64lp_seq",
        "-DBLA_STATIC=ON",
        f"-DBLAS_INCLUDE_DIRS={mkl / 'include'}",
        "-DGGML_LTO=ON",
        "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--exclude-libs,ALL",  # torch brings an MKL of its own
    )
    own = os.environ.get("CMAKE_ARGS", "")
    return {"MKLROOT": str(mkl), "CMAKE_ARGS": " ".join((own, *flags)).strip()}


def _run(command: list[str], variables: Mapping[str, str]) -> int:
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode  # noqa: S603 - our own commands


def _stays(reason: str) -> str:
    return f"The plain build of llama.cpp stays: {reason}."


if __name__ == "__main__":
    main()
