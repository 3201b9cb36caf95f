"""A reference leads to one whole GGUF with weights, or to an error that shows the way out."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import tiny_models

from corral import models
from corral.errors import GGUFError, ModelError, ModelNotFoundError
from corral.models.hub import fetch
from corral.models.resolve import resolve


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_models.bert().path.read_bytes())
    return path


# Paths


@pytest.mark.usefixtures("empty_cache")
def test_a_path_leads_to_its_file(tiny):
    found = resolve(str(tiny))

    assert (found.ref, found.path, found.profile) == (str(tiny), tiny, None)
    assert found.header.architecture == "bert"


def test_a_relative_path_and_a_home_path_become_absolute(tiny, monkeypatch):
    monkeypatch.chdir(tiny.parent)
    monkeypatch.setenv("HOME", str(tiny.parent))

    assert resolve("tiny.gguf").path == resolve("~/tiny.gguf").path == tiny


@pytest.mark.parametrize("ref", ["nowhere.gguf", "./minilm", "some/where"])
def test_a_path_with_nothing_there_says_so_and_names_the_other_forms(ref):
    with pytest.raises(ModelNotFoundError, match=rf"there is no file {ref}.*hf:owner/repo.*minilm"):
        resolve(ref)


def test_an_unknown_name_names_the_built_in_ones():
    with pytest.raises(
        ModelNotFoundError, match=r"no model 'minilmm'.*path of a GGUF.*hf:owner/repo.*: minilm\."
    ):
        resolve("minilmm")


def test_a_folder_names_the_ggufs_in_it(tiny):
    with pytest.raises(ModelNotFoundError, match=r"is a folder.*one of those in it: tiny\.gguf"):
        resolve(str(tiny.parent))


def test_an_empty_folder_says_that_none_is_in_it(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"is a folder.*none is in it"):
        resolve(str(tmp_path))


def test_a_vocabulary_only_file_is_refused():
    path = tiny_models.vocabulary_only(tiny_models.bert())

    with pytest.raises(GGUFError, match="vocabulary-only GGUF"):
        resolve(str(path))


def test_a_truncated_file_is_refused():
    path = tiny_models.truncated(tiny_models.bert())

    with pytest.raises(GGUFError, match="truncated GGUF"):
        resolve(str(path))


def test_one_of_several_parts_is_refused(tmp_path):
    path = tmp_path / "model-00001-of-00003.gguf"
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_uint16("split.count", 3)
    writer.add_tensor("t", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with pytest.raises(ModelError, match=r"one of 3 parts.*llama-gguf-split --merge"):
        resolve(str(path))


def test_the_built_in_model_is_resolved_by_name(minilm_path):
    found = resolve("minilm")

    assert found.path == minilm_path
    assert found.profile.name == "all-minilm-l6"
    assert found.header.metadata["general.license"] == "apache-2.0"


# SHA-256


@pytest.mark.usefixtures("empty_cache")
def test_the_sha256_is_the_files(tiny):
    assert resolve(str(tiny)).sha256 == hashlib.sha256(tiny.read_bytes()).hexdigest()


def test_the_sha256_is_kept_while_the_file_stays_the_same(tiny, empty_cache):
    first = resolve(str(tiny)).sha256
    [note] = (empty_cache / "sha256").iterdir()
    note.write_text("f" * 64)

    assert resolve(str(tiny)).sha256 == "f" * 64

    os.utime(tiny, ns=(1, 1))
    assert resolve(str(tiny)).sha256 == first


@pytest.mark.parametrize("damage", [b"", b"half", b"\xff" * 64])
def test_a_damaged_note_is_not_believed(tiny, empty_cache, damage):
    right = resolve(str(tiny)).sha256
    [note] = (empty_cache / "sha256").iterdir()
    note.write_bytes(damage)

    assert resolve(str(tiny)).sha256 == right


def test_the_sha256_does_without_a_cache(tiny, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CORRAL_CACHE", str(tmp_path / "file" / "below"))

    assert resolve(str(tiny)).sha256 == hashlib.sha256(tiny.read_bytes()).hexdigest()


# The hub


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as huggingface_hub needs for a repository with three files."""

    def answer(self, *, with_body):
        path = self.path.partition("?")[0]
        if path == "/api/models/owner/repo/tree/main":
            names = ["README.md", "model.Q8_0.gguf", "model.F16.gguf"]
            files = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in names]
            status, body, headers = 200, json.dumps(files).encode(), {}
        elif path.startswith("/owner/repo/resolve/main/model."):
            status, body = 200, self.server.gguf
            tag = self.server.tag or hashlib.sha256(body).hexdigest()
            headers = {"ETag": f'"{tag}"', "X-Repo-Commit": "b" * 40}
        else:
            status, body, headers = 404, b"", {"X-Error-Code": "RepoNotFound"}
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def do_GET(self):
        self.answer(with_body=True)

    def do_HEAD(self):
        self.answer(with_body=False)

    def log_message(self, *_):
        pass


@pytest.fixture
def resolve_from_hub(tmp_path, tiny):
    """Resolve in a child process, which reads HF_ENDPOINT when it imports huggingface_hub."""
    pytest.importorskip("huggingface_hub")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.gguf, server.tag = tiny.read_bytes(), None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = {
        **os.environ,
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "CORRAL_CACHE": str(tmp_path / "cache"),
    }

    def run(ref, **environment):
        code = f"from corral.models import resolve; print(resolve({ref!r}).path)"
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**base, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    run.server = server
    yield run
    server.shutdown()
    server.server_close()


def test_a_quantisation_picks_the_file_and_is_found_again_without_the_hub(resolve_from_hub):
    first = resolve_from_hub("hf:owner/repo:q8_0")
    again = resolve_from_hub("hf:owner/repo:q8_0", HF_HUB_OFFLINE="1")

    assert first.stdout.strip().endswith("model.Q8_0.gguf"), first.stderr
    assert again.stdout == first.stdout, again.stderr


def test_a_file_name_picks_the_file(resolve_from_hub):
    assert resolve_from_hub("hf:owner/repo:model.F16.gguf").stdout.strip().endswith("F16.gguf")


def test_several_candidates_are_listed(resolve_from_hub):
    assert (
        "ModelNotFoundError: hf:owner/repo: 2 GGUF files fit. Add one of these names after a "
        "colon: model.F16.gguf, model.Q8_0.gguf"
    ) in resolve_from_hub("hf:owner/repo").stderr


def test_a_missing_repository_is_not_found(resolve_from_hub):
    failed = resolve_from_hub("hf:owner/other")

    assert failed.returncode == 1
    assert "hf:owner/other could not be fetched from the hub: 404" in failed.stderr


@pytest.mark.parametrize("damage", [b"", b"more"])
def test_a_file_that_is_not_what_the_hub_says_is_refused_and_gone(resolve_from_hub, damage):
    server, whole = resolve_from_hub.server, resolve_from_hub.server.gguf
    server.tag = hashlib.sha256(whole).hexdigest()
    server.gguf = whole[:-100] + bytes(100) + damage

    failed = resolve_from_hub("hf:owner/repo:q8_0")
    found = hashlib.sha256(server.gguf).hexdigest()

    assert failed.returncode == 1
    assert f"ModelError: hf:owner/repo:q8_0: model.Q8_0.gguf has the hash {found}" in failed.stderr
    assert f"the hub says {server.tag}" in failed.stderr

    server.gguf = whole
    again = resolve_from_hub("hf:owner/repo:q8_0")
    assert again.stdout.strip().endswith("model.Q8_0.gguf"), again.stderr


def test_a_file_that_changed_on_the_disk_is_refused_without_the_hub(resolve_from_hub):
    path = Path(resolve_from_hub("hf:owner/repo:q8_0").stdout.strip())
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    failed = resolve_from_hub("hf:owner/repo:q8_0", HF_HUB_OFFLINE="1")

    assert "is deleted from the hub's cache" in failed.stderr
    assert not path.exists()


def test_a_small_file_is_checked_by_the_hash_that_git_has_of_it(resolve_from_hub):
    server = resolve_from_hub.server
    blob = b"blob %d\0" % len(server.gguf) + server.gguf
    server.tag = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
    assert resolve_from_hub("hf:owner/repo:q8_0").returncode == 0

    server.tag = "a" * 40
    assert "the hub says aaaa" in resolve_from_hub("hf:owner/repo:f16").stderr


def test_of_a_mirror_that_gives_no_hash_nothing_is_used_without_one_from_the_user(
    resolve_from_hub,
):
    server = resolve_from_hub.server
    server.tag = "of-the-mirror"
    found = hashlib.sha256(server.gguf).hexdigest()

    refused = resolve_from_hub("hf:owner/repo:q8_0")

    assert refused.returncode == 1
    assert "no hash is known of model.Q8_0.gguf" in refused.stderr
    assert f"take hf:owner/repo:q8_0@sha256:{found}" in refused.stderr

    pinned = resolve_from_hub(f"hf:owner/repo:q8_0@sha256:{found.upper()}")
    assert pinned.stdout.strip().endswith("model.Q8_0.gguf"), pinned.stderr
    again = resolve_from_hub("hf:owner/repo:q8_0")  # the same bytes came through before
    assert again.stdout == pinned.stdout, again.stderr


def test_a_hash_in_the_reference_refuses_what_the_hub_has_instead(resolve_from_hub):
    failed = resolve_from_hub(f"hf:owner/repo:q8_0@sha256:{'a' * 64}")

    assert failed.returncode == 1
    assert f"the reference says {'a' * 64}" in failed.stderr
    assert "is deleted from the hub's cache" in failed.stderr


@pytest.mark.parametrize("pin", ["", "abc", "g" * 64, "a" * 40])
def test_a_hash_that_is_none_is_refused_before_anything_is_fetched(pin):
    with pytest.raises(ModelNotFoundError, match=rf"64 hexadecimal digits.* {len(pin)} characters"):
        fetch(f"hf:owner/repo:q8_0@sha256:{pin}")


class FakeHub:
    """huggingface_hub with a repository of given files, and a cache that may hold one of them."""

    def __init__(self, names):
        self.names = names
        self.cached = None
        self.tag = None
        self.asked = []

    def HfApi(self):  # noqa: N802 - its name
        return self

    def list_repo_files(self, repo):
        assert repo == "owner/repo"
        if self.names is None:
            raise RuntimeError("no network")
        return self.names

    def snapshot_download(self, repo, *, local_files_only):
        assert (repo, local_files_only) == ("owner/repo", True)
        if self.cached is None:
            raise FileNotFoundError("no snapshot")
        return str(self.cached)

    def hf_hub_download(self, repo, name):
        if self.cached is not None:
            return str(self.cached / name)
        raise RuntimeError(f"connection to {repo}/{name}\nis gone")

    def hf_hub_url(self, repo, name, *, revision):
        return f"{repo}@{revision}/{name}"

    def get_hf_file_metadata(self, url):
        if self.tag is None:
            raise RuntimeError("no network")
        return SimpleNamespace(etag=self.tag, url=self.asked.append(url))


@pytest.fixture
def fake_hub(monkeypatch):
    fake = FakeHub(["README.md", "a.Q4_K.gguf"])
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return fake


def test_a_repository_without_a_gguf_says_so(fake_hub):
    fake_hub.names = ["README.md"]

    with pytest.raises(ModelNotFoundError, match="the repository has no GGUF file"):
        fetch("hf:owner/repo")


@pytest.mark.usefixtures("fake_hub")
def test_a_quantisation_that_is_not_there_lists_those_that_are():
    with pytest.raises(ModelNotFoundError, match=r"no GGUF file has 'Q8_0'.*: a\.Q4_K\.gguf"):
        fetch("hf:owner/repo:Q8_0")


@pytest.mark.usefixtures("empty_cache")
def test_without_the_hub_its_cache_is_asked(fake_hub, tmp_path):
    fake_hub.names, fake_hub.cached = None, tmp_path
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.Q8_0.gguf").touch()

    with pytest.raises(ModelError, match="no hash is known of b.Q8_0.gguf"):
        fetch("hf:owner/repo:Q8_0")
    pin = f"@sha256:{hashlib.sha256(b'').hexdigest()}"
    for ref in (f"hf:owner/repo:Q8_0{pin}", "hf:owner/repo:Q8_0"):
        assert fetch(ref) == tmp_path / "sub" / "b.Q8_0.gguf"


@pytest.mark.usefixtures("empty_cache")
def test_a_file_that_the_cache_has_no_link_to_is_checked_by_what_the_hub_says(fake_hub, tmp_path):
    fake_hub.cached = tmp_path / "snapshots" / "c0ffee"
    file = fake_hub.cached / "sub" / "a.Q4_K.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"model")
    fake_hub.tag = hashlib.sha256(b"model").hexdigest()
    assert fetch("hf:owner/repo:sub/a.Q4_K.gguf") == file
    assert fake_hub.asked == ["owner/repo@c0ffee/sub/a.Q4_K.gguf"]

    fake_hub.tag = "f" * 64
    with pytest.raises(ModelError, match="the hub says ffff"):
        fetch("hf:owner/repo:sub/a.Q4_K.gguf")
    assert not file.exists()


def test_without_the_hub_and_a_cache_the_hubs_failure_is_told(fake_hub):
    fake_hub.names = None

    with pytest.raises(ModelNotFoundError, match=r"could not be fetched from the hub: no network$"):
        fetch("hf:owner/repo")


@pytest.mark.usefixtures("fake_hub")
def test_whatever_the_hub_raises_becomes_one_line():
    with pytest.raises(
        ModelNotFoundError, match=r"connection to owner/repo/a\.Q4_K\.gguf is gone$"
    ):
        fetch("hf:owner/repo")


@pytest.mark.parametrize("ref", ["hf:", "hf:owner", "hf:owner/", "hf:a/b/c", "hf::Q8_0"])
def test_a_reference_that_is_none_shows_the_form(ref):
    with pytest.raises(ModelNotFoundError, match=r"write hf:owner/repo\[:file-or-quant\]"):
        fetch(ref)


def test_without_huggingface_hub_the_error_has_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(ModelNotFoundError, match=r"pip install 'corral\[hub\]'"):
        resolve("hf:owner/repo")


def test_the_package_gives_what_it_says():
    assert all(hasattr(models, name) for name in models.__all__)
