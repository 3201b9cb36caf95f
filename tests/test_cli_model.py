"""`corral model` shows what a file says of itself, without loading it."""

import json
import subprocess
import sys

import gguf
import numpy as np
import pytest
import tiny_models
from commands import corral


def run(*arguments):
    return corral("model", *arguments).stdout


def shown(ref):
    return json.loads(run("show", str(ref), "--json"))


@pytest.fixture(autouse=True)
def _no_profiles_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.delenv("CORRAL_PROFILES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def write_gguf(tmp_path):
    def write(architecture, *, tensor="t", **metadata):
        path = tmp_path / "made.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in metadata.items():
            name = key.replace("__", ".")
            if isinstance(value, str):
                writer.add_string(name, value)
            elif isinstance(value, bool):
                writer.add_bool(name, value)
            else:
                writer.add_uint32(name, value)
        writer.add_tensor(tensor, np.zeros((2, 32), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


# show


def test_show_tells_all_about_the_built_in_model(minilm_path):
    found = shown("minilm")

    assert found == {
        "model": "minilm",
        "name": "all-MiniLM-L6-v2",
        "architecture": "bert",
        "pooling_type": "mean",
        "pooling_type_from": "bert.pooling_type",
        "attention": "non-causal",
        "dimensions": 384,
        "trained_dims": [],
        "context_length": 512,
        "max_tokens": 256,
        "max_tokens_from": "profile all-minilm-l6",
        "tokenizer": "WordPiece",
        "n_vocab": 30522,
        "query_prefix": "",
        "document_prefix": "",
        "layer_norm": False,
        "score": None,
        "profile": "all-minilm-l6",
        "model_card": "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        "note": "",
        "license": "apache-2.0",
        "weights": "F32",
        "path": str(minilm_path),
        "size": minilm_path.stat().st_size,
        "sha256": found["sha256"],
        "runs_as": found["runs_as"],
    }
    assert "threads, packs of" in found["runs_as"]
    assert len(found["sha256"]) == 64


def test_show_prints_a_line_for_each_thing_that_is_known(minilm_path):
    lines = dict(line.split("  ", 1) for line in run("show", "minilm").splitlines())
    values = {key.strip(): value.strip() for key, value in lines.items()}

    assert values["pooling type"] == "mean (bert.pooling_type)"
    assert values["max tokens"] == "256 (profile all-minilm-l6)"
    assert values["tokenizer"] == "WordPiece, 30522 tokens"
    assert values["query prefix"] == "none"
    assert values["size"] == "90.9 MB"
    assert values["path"] == str(minilm_path)
    assert not {"trained dims", "layer norm", "score", "note"} & values.keys()


def test_show_spells_a_prefix_so_that_its_last_space_and_line_end_are_seen(write_gguf):
    path = write_gguf("qwen3", general__name="Qwen3 Embedding 0.6B", qwen3__embedding_length=1024)

    text = run("show", str(path))

    assert r"passages that answer the query\nQuery:" in text
    assert "trained dims     32, 64, 128, 256, 512, 768, 1024\n" in text


def test_show_says_where_a_layer_norm_belongs(write_gguf):
    path = write_gguf("nomic-bert", general__name="nomic-embed-text-v1.5")

    text = run("show", str(path))

    assert "layer norm       before cutting" in text
    assert '"search_query: "' in text


def test_pooling_comes_from_the_gguf_then_its_head_then_the_profile(write_gguf):
    e5 = {"general__name": "e5-base"}
    for options, pooling, source in [
        ({"architecture": "bert", "bert__pooling_type": 2, **e5}, "cls", "bert.pooling_type"),
        (
            {"architecture": "bert", "tensor": "cls.output.weight", **e5},
            "rank",
            "the tensor cls.output.weight",
        ),
        ({"architecture": "bert", **e5}, "mean", "profile e5"),
        ({"architecture": "llama"}, None, "neither llama.pooling_type nor a profile"),
        (
            {"architecture": "bert", "bert__pooling_type": 77, **e5},
            None,
            "bert.pooling_type is 77, none of llama.h's",
        ),
    ]:
        found = shown(write_gguf(**options))
        assert (found["pooling_type"], found["pooling_type_from"]) == (pooling, source)
    assert "pooling type     unknown (neither" in run("show", str(write_gguf("llama")))


def test_the_limit_is_the_smaller_of_the_files_and_the_profiles(write_gguf):
    for context_length, limit, source in [
        (128, 128, "bert.context_length"),
        (512, 256, "profile all-minilm-l6"),
    ]:
        path = write_gguf(
            "bert", general__name="all-MiniLM-L6-v2", bert__context_length=context_length
        )
        found = shown(path)
        assert (found["max_tokens"], found["max_tokens_from"]) == (limit, source)
    assert shown(write_gguf("llama"))["max_tokens"] is None


@pytest.mark.parametrize(
    ("made", "attention"),
    [
        (tiny_models.bert, "non-causal"),
        (tiny_models.qwen3, "causal"),
        (tiny_models.llama, "causal"),
    ],
)
def test_attention_is_the_architectures(made, attention):
    assert shown(made().path)["attention"] == attention


def test_attention_may_be_given_by_the_file(write_gguf):
    assert shown(write_gguf("llama", llama__attention__causal=False))["attention"] == "non-causal"
    assert shown(write_gguf("bert"))["attention"] == "non-causal"


def test_a_files_own_strings_do_not_steer_the_terminal(write_gguf):
    text = run("show", str(write_gguf("bert", general__name="red\x1b[31m")))

    assert r"red\u001b[31m" in text
    assert "\x1b" not in text


def test_a_name_that_is_not_utf8_is_shown_all_the_same(write_gguf):
    path = write_gguf("bert", general__name="abc-XYZ-def")
    path.write_bytes(path.read_bytes().replace(b"XYZ", b"X\xffZ"))

    assert r"abc-X\udcffZ-def" in run("show", str(path))
    assert shown(path)["name"] == "abc-X\udcffZ-def"


def test_matrices_are_what_the_type_of_the_weights_is_taken_from(write_gguf):
    assert shown(write_gguf("bert"))["weights"] == "F32"


# list and pull


def test_list_says_what_is_here(minilm_path):
    assert f"90.9 MB  {minilm_path}" in run("list")


def test_list_says_how_to_bring_what_is_not(empty_cache):
    assert "not here yet: corral model pull minilm" in run("list")
    assert not empty_cache.exists()


def test_pull_prints_where_the_model_is(minilm_path):
    assert run("pull", "minilm") == f"{minilm_path}\n"


def test_pull_of_an_unknown_name_says_so():
    done = corral("model", "pull", "nonesuch")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no model 'nonesuch'" in done.stderr


# Speed


def in_child(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip


def test_nothing_heavy_is_imported_for_help():
    code = (
        "import sys; from corral.cli.model import model\n"
        "try: model(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'gguf', 'llama_cpp', 'huggingface_hub'} & sys.modules.keys()))"
    )

    done = in_child(code)

    assert "pull" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_show_needs_no_engine(minilm_path):
    code = (
        "import sys; from corral.cli.model import model\n"
        f"model(['show', {str(minilm_path)!r}], standalone_mode=False)\n"
        "print('llama_cpp' in sys.modules)"
    )

    done = in_child(code)

    assert done.stdout.endswith("False\n")
