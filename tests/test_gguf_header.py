"""The header reader gives what was written, and doubts what cannot be true."""

import struct
import time
import tracemalloc

import gguf
import numpy as np
import pytest
import tiny_models
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.errors import GGUFError, ModelNotFoundError
from corral.gguf_header import TensorInfo, read_header

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def u32(number):
    return struct.pack("<I", number)


def u64(number):
    return struct.pack("<Q", number)


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return u64(len(raw)) + raw


def pair(key, kind, value):
    return text(key) + u32(kind) + value


def array(kind, n, items=b""):
    return u32(kind) + u64(n) + items


def tensor(name="t", ne=(2,), kind=0, offset=0):
    return text(name) + u32(len(ne)) + b"".join(map(u64, ne)) + u32(kind) + u64(offset)


NAMED = pair("general.architecture", STRING, text("bert"))


def build(pairs=(NAMED,), tensors=(), *, data=b"", version=3, n_pairs=None, n_tensors=None):
    """A GGUF byte by byte; the counts can be made to lie."""
    header = b"GGUF" + u32(version)
    header += u64(len(tensors) if n_tensors is None else n_tensors)
    header += u64(len(pairs) if n_pairs is None else n_pairs)
    header += b"".join(pairs) + b"".join(tensors)
    return header + b"\0" * (-len(header) % 32) + data


@pytest.fixture
def read(tmp_path):
    def read_bytes(raw):
        path = tmp_path / "model.gguf"
        path.write_bytes(raw)
        return read_header(path)

    return read_bytes


# What is there


def test_a_header_holds_what_the_gguf_package_wrote():
    model = tiny_models.bert(pooling="mean")

    header = read_header(model.path)

    assert header.architecture == "bert"
    assert header.arch("embedding_length") == model.shape.n_embd
    assert header.arch("pooling_type") == gguf.PoolingType.MEAN
    assert header.arch("attention.causal") is False
    assert header.arch("no.such.key", "nothing") == "nothing"
    assert header.metadata["tokenizer.ggml.token_type"] == list(model.vocabulary.types)
    assert header.file_size == model.path.stat().st_size
    assert {name: info.shape for name, info in header.tensors.items()} == {
        name: weight.shape for name, weight in model.weights.items()
    }
    assert {info.type for info in header.tensors.values()} == {"F32"}


def test_every_type_of_value_is_read(read):
    written = {
        U8: ("B", 200), I8: ("b", -3), U16: ("H", 60_000), I16: ("h", -3000), U32: ("I", 1 << 31),
        I32: ("i", -5), F32: ("f", 0.5), BOOL: ("?", True), U64: ("Q", 1 << 63),
        I64: ("q", -(1 << 40)), F64: ("d", 0.1),
    }  # fmt: skip
    pairs = [pair(f"k{kind}", kind, struct.pack(f"<{c}", v)) for kind, (c, v) in written.items()]
    arrays = [
        pair(f"a{kind}", ARRAY, array(kind, 2, struct.pack(f"<2{c}", v, v)))
        for kind, (c, v) in written.items()
    ]
    nested = array(ARRAY, 2, array(U8, 2, b"\1\2") + array(STRING, 1, text("é")))

    found = read(build([NAMED, *pairs, *arrays, pair("nested", ARRAY, nested)])).metadata

    assert {kind: found[f"k{kind}"] for kind in written} == {k: v for k, (_, v) in written.items()}
    assert all(found[f"a{kind}"] == [value, value] for kind, (_, value) in written.items())
    assert found["nested"] == [[1, 2], ["é"]]
    assert found[f"k{BOOL}"] is True


def test_shapes_are_given_rows_first(read):
    header = read(
        build(tensors=[tensor("w", (32, 3), gguf.GGMLQuantizationType.Q8_0)], data=bytes(3 * 34))
    )

    assert header.tensors == {"w": TensorInfo((3, 32), "Q8_0")}


def test_a_tensor_without_dimensions_is_one_number(read):
    assert read(build(tensors=[tensor("s", ())], data=bytes(4))).tensors["s"].shape == ()


def test_strings_that_are_not_utf8_stay_apart(read):
    tokens = array(STRING, 2, text(b"\xff") + text(b"\xfe"))

    found = read(build([NAMED, pair("tokenizer.ggml.tokens", ARRAY, tokens)])).metadata

    assert found["tokenizer.ggml.tokens"] == ["\udcff", "\udcfe"]


def test_a_vocabulary_of_150_000_tokens_is_read_within_half_a_second(tmp_path):
    path = tmp_path / "large.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_token_list([f"token {i}" for i in range(152_000)])
    writer.add_token_types([1] * 152_000)
    writer.add_token_merges([f"a{i} b{i}" for i in range(152_000)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    started = time.process_time()
    header = read_header(path)
    seconds = time.process_time() - started

    assert len(header.metadata["tokenizer.ggml.merges"]) == 152_000
    assert seconds < 0.5


# What is wrong with a file


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"nowhere\.gguf.*No such file"):
        read_header(tmp_path / "nowhere.gguf")


def test_a_folder_is_not_a_model(tmp_path):
    with pytest.raises(ModelNotFoundError, match="cannot be read as a model file"):
        read_header(tmp_path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a GGUF: the file is empty"),
        (b"PK\3\4 a zip", "not a GGUF: it starts with b'PK"),
        (b"GGUF", "truncated GGUF.*version at byte 4 takes 4 bytes"),
        (build(version=1), "version 1; versions 2 and 3"),
        (build(version=3 << 24), "version 50331648.*little-endian"),
        (build(n_tensors=10**12), "says that 1000000000000 tensors follow"),
        (build(n_pairs=10**12), "says that 1000000000000 metadata pairs follow"),
        (build([]), r"no general\.architecture"),
        (build([pair("general.architecture", U8, b"\7")]), r"no general\.architecture.*got 7"),
        (build([NAMED, NAMED]), "the metadata key 'general.architecture' twice"),
        (build([NAMED, pair("k", 13, b"")]), "gives 'k' the type 13"),
        (build([NAMED, u64(1 << 40)], n_pairs=2), "a string of 1099511627776 bytes"),
        (build([NAMED, u64(1 << 20)], n_pairs=2), "a metadata key at byte .* takes 1048576 bytes"),
        (build([NAMED, pair("k", ARRAY, array(77, 1))]), "array 'k' with items of type 77"),
        (build([NAMED, pair("k", ARRAY, array(U8, 1 << 40))]), "says that .* items of 'k' follow"),
        (build([NAMED, pair("k", ARRAY, array(STRING, 2, text("a") + u64(99)))]), "2 strings, and"),
        (build([NAMED, pair("k", ARRAY, array(STRING, 2, text("a" * 17)))])[:-9], "2 strings, and"),
        (build([NAMED, pair("k", ARRAY, array(ARRAY, 1) * 5 + bytes(64))]), "at depth 5"),
        (build([NAMED, pair("general.alignment", U32, u32(12))]), "general.alignment 12"),
        (build([NAMED, pair("general.alignment", STRING, text("x"))]), "general.alignment 'x'"),
        (build(tensors=[tensor(), tensor()], data=bytes(64)), "the tensor 't' twice"),
        (build(tensors=[tensor(ne=(1,) * 5)], data=bytes(64)), "'t' 5 dimensions; the most is 4"),
        (build(tensors=[tensor(kind=9999)], data=bytes(64)), "'t' the type 9999"),
        (build(tensors=[tensor(ne=(33,), kind=8)], data=bytes(64)), "33 items.*multiples of 32"),
        (build(tensors=[tensor(ne=(), kind=8)], data=bytes(64)), "rows of 1 items; Q8_0"),
        (build(tensors=[tensor(ne=(2**63, 2**63))], data=bytes(64)), "truncated GGUF"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_true_is_refused(read, raw, message):
    with pytest.raises(GGUFError, match=message):
        read(raw)


def test_a_file_cut_short_is_refused_with_both_sizes(read):
    whole = build(tensors=[tensor("a", (8,)), tensor("b", (8,), offset=32)], data=bytes(64))
    assert len(read(whole).tensors) == 2

    with pytest.raises(
        GGUFError,
        match=rf"truncated GGUF.*has {len(whole) - 1} bytes.*'b' ends at byte {len(whole)}",
    ):
        read(whole[:-1])


def test_a_token_that_stands_twice_is_refused_with_both_ids(read):
    tokens = array(STRING, 4, text("a") + text("b") + text("c") + text("b"))

    with pytest.raises(GGUFError, match=r"the token 'b' twice.*ids 1 and 3"):
        read(build([NAMED, pair("tokenizer.ggml.tokens", ARRAY, tokens)]))


def test_tokens_that_are_numbers_are_refused(read):
    with pytest.raises(GGUFError, match="tokens that are not strings"):
        read(build([NAMED, pair("tokenizer.ggml.tokens", ARRAY, array(U8, 2, b"\1\2"))]))


def test_metadata_of_many_millions_of_items_is_refused_before_it_takes_memory(read):
    raw = build([NAMED, pair("k", ARRAY, array(U8, (1 << 24) + 1, bytes((1 << 24) + 1)))])

    tracemalloc.start()
    try:
        with pytest.raises(GGUFError, match="more than 16777216 items"):
            read(raw)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


# Files that someone damaged

WHOLE = build(
    [
        NAMED,
        pair("n", U32, u32(7)),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, 3, text("a") + text("bc") + text(""))),
        pair("scores", ARRAY, array(F32, 3, struct.pack("<3f", 1, 2, 3))),
        pair("nested", ARRAY, array(ARRAY, 1, array(U8, 2, b"\1\2"))),
    ],
    [tensor("w", (32, 2), 8), tensor("b", (4,), 0, 96)],
    data=np.arange(112, dtype=np.uint8).tobytes(),
)


@pytest.mark.parametrize("n_bytes", range(len(WHOLE)))
def test_a_file_that_ends_anywhere_is_refused(read, n_bytes):
    with pytest.raises(GGUFError):
        read(WHOLE[:n_bytes])


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.dictionaries(
        st.integers(4, len(WHOLE) - 1), st.binary(min_size=1, max_size=8), min_size=1, max_size=4
    )
)
def test_a_file_with_any_bytes_changed_is_read_or_refused(read, changes):
    raw = bytearray(WHOLE)
    for at, new in changes.items():
        raw[at : at + len(new)] = new

    try:
        header = read(bytes(raw))
    except GGUFError:
        return
    assert header.file_size == len(raw)
    assert set(map(type, header.tensors.values())) <= {TensorInfo}
