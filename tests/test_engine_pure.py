"""The engine's decisions: pooling, splitting, packing, normalising. No llama.cpp in here."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from corral.engine.batching import Job, Limits, common_prefix, plan_jobs
from corral.engine.options import EngineOptions, Sizes
from corral.engine.pooling import PoolingType, SplitRule, combine, split_rule
from corral.engine.vectors import defect, finish, normalize, parse_norm, sound
from corral.errors import PoolingError, UsageError

WHOLE, LAST, MEAN, ALL = (
    SplitRule.WHOLE,
    SplitRule.LAST_PART,
    SplitRule.WEIGHTED_MEAN,
    SplitRule.COLLECT,
)


@pytest.mark.parametrize(
    ("pooling_type", "when_causal_with_memory"),
    [
        (PoolingType.NONE, ALL),
        (PoolingType.MEAN, MEAN),
        (PoolingType.CLS, WHOLE),
        (PoolingType.LAST, LAST),
        (PoolingType.RANK, LAST),
    ],
)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("has_memory", [True, False])
def test_only_causal_models_with_memory_may_split(
    pooling_type, when_causal_with_memory, causal, has_memory
):
    expected = when_causal_with_memory if causal and has_memory else WHOLE
    assert split_rule(pooling_type, causal=causal, has_memory=has_memory) is expected


@pytest.mark.parametrize("value", ["mean", "MEAN", 1, PoolingType.MEAN])
def test_pooling_types_are_read_by_name_and_number(value):
    assert PoolingType.parse(value) is PoolingType.MEAN


@pytest.mark.parametrize("value", ["median", 5, -1])
def test_an_unknown_pooling_type_is_refused_with_the_choices(value):
    with pytest.raises(PoolingError, match="none, mean, cls, last, rank"):
        PoolingType.parse(value)


def test_parts_combine_as_their_rule_says():
    rows = [np.array([1, 2], np.float32), np.array([4, 8], np.float32)]
    np.testing.assert_array_equal(combine(LAST, rows, [3, 1]), [4, 8])
    np.testing.assert_allclose(combine(MEAN, rows, [3, 1]), [7 / 4, 14 / 4])
    tokens = [np.array([[1, 2]], np.float32), np.array([[4, 8], [0, 1]], np.float32)]
    np.testing.assert_array_equal(combine(ALL, tokens, [1, 2]), [[1, 2], [4, 8], [0, 1]])


def tokens_of(job: Job) -> int:
    return sum(len(part) for decode in job.decodes for part in decode)


def limits(**given):
    return Limits(**{"pack_tokens": 100, "n_ubatch": 100, "n_seq_max": 9, **given})


LENGTHS = st.lists(st.integers(1, 300), max_size=60)
LIMITS = st.builds(
    Limits,
    pack_tokens=st.integers(1, 128),
    n_ubatch=st.integers(1, 128),
    n_seq_max=st.integers(1, 8),
    n_contexts=st.integers(1, 4),
    full_tokens=st.integers(1, 64),
    fills_up=st.booleans(),
    tails=st.booleans(),
    job_tokens=st.integers(1, 1000),
)


@given(LENGTHS, LIMITS, st.integers(0, 20))
def test_jobs_hold_every_token_once_and_keep_the_limits(lengths, limits, n_prefix):
    n_tokens = {index: n_prefix + length for index, length in enumerate(lengths)}
    jobs = plan_jobs(n_tokens, limits, n_prefix)
    seen = dict.fromkeys(n_tokens, n_prefix)
    for job in jobs:
        assert job.n_prefix == n_prefix
        assert job.widest <= limits.n_ubatch
        assert job.n_cells == n_prefix + tokens_of(job)
        assert len(job.indexes) <= limits.n_seq_max
        for decode in job.decodes:
            assert len(decode) == 1 or sum(map(len, decode)) <= limits.pack_tokens
            for part in decode:
                assert part.start == seen[part.index]
                seen[part.index] = part.stop
        assert all(seen[index] == n_tokens[index] for index in job.indexes)
    assert seen == n_tokens


def test_sequences_are_packed_longest_first():
    first, second = plan_jobs({0: 1, 1: 7, 2: 3, 3: 6}, limits(pack_tokens=13, n_ubatch=13))
    assert [part.index for part in first.decodes[0]] == [1, 3]
    assert [part.index for part in second.decodes[0]] == [2, 0]


@pytest.mark.parametrize(
    ("lengths", "n_contexts", "expected"),
    [
        pytest.param([100] * 5, 2, [200, 200, 100], id="one sequence is not divided"),
        pytest.param([100] * 6, 2, [200, 200, 100, 100], id="the last pack is"),
        pytest.param([100] * 6, 1, [200, 200, 200], id="one context"),
        pytest.param([20] * 6, 2, [120], id="too little to divide"),
        pytest.param([90, 50, 40, 20], 2, [110, 90], id="into alike halves"),
        pytest.param([110, 90], 3, [110, 90], id="as far as it goes"),
        pytest.param([150, 30], 2, [180], id="half of it would be too little"),
        pytest.param([200, 70, 70], 3, [200, 70, 70], id="not the fullest but one that can be"),
        pytest.param([80, 80, 20, 20], 3, [100, 100], id="too little to divide again"),
    ],
)
def test_the_last_packs_are_divided_so_that_no_context_is_idle(lengths, n_contexts, expected):
    jobs = plan_jobs(
        dict(enumerate(lengths)),
        limits(pack_tokens=200, n_ubatch=200, n_contexts=n_contexts, full_tokens=64),
    )
    assert sorted(map(tokens_of, jobs), reverse=True) == expected


@given(LENGTHS, LIMITS)
def test_only_the_last_decodes_of_a_job_have_ends_of_sequences(lengths, limits):
    n_tokens = dict(enumerate(lengths))
    for job in plan_jobs(n_tokens, replace(limits, tails=True)):
        have_ends = [
            [part.stop == n_tokens[part.index] for part in decode] for decode in job.decodes
        ]
        n_bodies = sum(not any(ends) for ends in have_ends)
        assert n_bodies == len(have_ends) or not any(map(any, have_ends[:n_bodies]))


@pytest.mark.parametrize(
    ("lengths", "given", "with_rows"),
    [
        pytest.param([100, 90, 80], {"full_tokens": 6}, 6, id="two tokens of each"),
        pytest.param([100, 90, 1], {"full_tokens": 6}, 7, id="more where one has no more"),
        pytest.param([100], {"full_tokens": 64}, 100, id="the rest would not be full"),
        pytest.param([128], {"full_tokens": 64}, 64, id="the rest is full, too"),
        pytest.param([100], {"full_tokens": 64, "fills_up": True}, 64, id="the rest is filled up"),
        pytest.param([40], {"full_tokens": 64}, 1, id="it is computed in less precision anyway"),
        pytest.param([40], {"full_tokens": 64, "fills_up": True}, 40, id="it is filled up"),
        pytest.param([20, 5], {"full_tokens": 64}, 25, id="not worth a decode of its own"),
        pytest.param([30, 5], {"full_tokens": 64}, 2, id="worth a decode"),
        pytest.param([250], {"full_tokens": 64}, 64, id="longer than a decode"),
        pytest.param([100, 90, 80], {"tails": False}, 270, id="rows of all are needed"),
    ],
)
def test_a_few_tokens_at_the_ends_are_decoded_with_rows(lengths, given, with_rows):
    (job,) = plan_jobs(
        dict(enumerate(lengths)),
        limits(pack_tokens=300, n_ubatch=300, **{"tails": True, "job_tokens": 1000, **given}),
    )
    ended = [
        decode for decode in job.decodes if any(part.stop == lengths[part.index] for part in decode)
    ]
    assert sum(len(part) for decode in ended for part in decode) == with_rows


def test_jobs_with_a_common_end_are_alike_and_as_many_as_keep_all_contexts_at_work():
    jobs = plan_jobs(
        dict.fromkeys(range(50), 70),
        limits(pack_tokens=140, n_ubatch=140, n_seq_max=250, n_contexts=2, tails=True,
               job_tokens=1200),
    )  # fmt: skip
    assert sorted(tokens_of(job) for job in jobs) == [840, 840, 910, 910]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=2, max_size=5),
)
def test_the_common_prefix_is_common_and_leaves_a_token_to_each(prefix, suffixes):
    sequences = [np.array([*prefix, *suffix, 9], np.int32) for suffix in suffixes]
    n = common_prefix(sequences, at_least=1)
    assert len(prefix) <= n < min(map(len, sequences))
    assert len({tuple(sequence[:n]) for sequence in sequences}) == 1
    longer = {tuple(sequence[: n + 1]) for sequence in sequences}
    assert len(longer) > 1 or n + 1 == min(map(len, sequences))


def test_a_short_prefix_or_a_lone_sequence_shares_nothing():
    a, b = np.array([1, 2, 3, 4], np.int32), np.array([1, 2, 3, 5], np.int32)
    assert common_prefix([a, b], at_least=3) == 3
    assert common_prefix([a, b], at_least=4) == 0
    assert common_prefix([a, b, np.array([7], np.int32)], at_least=1) == 0
    assert common_prefix([a], at_least=1) == 0


@dataclass(frozen=True)
class Shape:
    n_ctx_train: int = 512
    n_vocab: int = 1000
    n_embd: int = 64
    n_layer: int = 2


def sizes(rule=WHOLE, *, pooling_type=PoolingType.MEAN, n_ubatch=None, n_contexts=1, **shape):
    options = EngineOptions(pooling_type=pooling_type, n_ubatch=n_ubatch, n_contexts=n_contexts)
    return Sizes.derive(options, Shape(**shape), rule=rule, n_seq_max=254)


def test_an_encoder_takes_what_it_was_trained_for_or_what_n_ubatch_allows():
    assert sizes().max_tokens == 512
    assert sizes(n_ubatch=100).max_tokens == 100
    assert sizes(n_ubatch=100).limits.pack_tokens == 100
    assert sizes(n_ubatch=4096).max_tokens == 512


def test_a_causal_model_takes_what_it_was_trained_for_at_any_n_ubatch():
    assert sizes(LAST, n_ctx_train=32768, n_ubatch=16).max_tokens == 32768
    assert sizes(LAST, n_ctx_train=32768).limits.n_ubatch == 512


def test_packs_are_smaller_where_logits_would_fill_memory():
    assert sizes(n_vocab=30_522).limits.pack_tokens == 384
    assert sizes(n_vocab=250_002).limits.pack_tokens == 268
    assert sizes(n_vocab=10**9).limits.pack_tokens == 128


@pytest.mark.parametrize("name", ["n_contexts", "n_threads", "n_ubatch", "pack_tokens"])
def test_sizes_of_nothing_are_refused(name):
    with pytest.raises(UsageError, match=f"{name} is 0"):
        EngineOptions(pooling_type=PoolingType.MEAN, **{name: 0})


@pytest.mark.parametrize(
    ("shape", "n_contexts", "job_tokens"),
    [
        pytest.param(Shape(n_vocab=400, n_embd=64), 1, 113, id="tiny"),
        pytest.param(Shape(n_vocab=32_000, n_embd=512, n_layer=4), 16, 2862, id="small"),
        pytest.param(Shape(n_vocab=151_669, n_embd=1024, n_layer=28), 4, 4681, id="512 MiB"),
        pytest.param(Shape(n_vocab=151_669, n_embd=1024, n_layer=28), 16, 1170, id="2 GiB in all"),
        pytest.param(Shape(n_vocab=151_665, n_embd=4096, n_layer=36), 1, 910, id="large"),
        pytest.param(Shape(n_vocab=9, n_embd=32_768, n_layer=200), 256, 1, id="at least one"),
    ],
)
def test_the_more_the_logits_cost_the_more_sequences_end_together(shape, n_contexts, job_tokens):
    found = sizes(LAST, n_contexts=n_contexts, **asdict(shape))
    assert found.limits.job_tokens == job_tokens


def test_only_where_the_last_token_holds_the_row_are_ends_decoded_apart():
    assert sizes(LAST).limits.tails
    assert not sizes(WHOLE).limits.tails
    assert not sizes(SplitRule.WEIGHTED_MEAN).limits.tails
    assert not sizes(SplitRule.COLLECT).limits.tails
    assert sizes(LAST, pooling_type=PoolingType.RANK).limits.fills_up
    assert not sizes(LAST, pooling_type=PoolingType.LAST).limits.fills_up


ROWS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 40)),
    elements=st.floats(-1e4, 1e4, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3),
)


@given(ROWS, st.sampled_from([1, 2, 3, 7]))
def test_p_norms_give_rows_of_length_one(rows, p):
    lengths = np.linalg.norm(normalize(rows, p).astype(np.float64), ord=p, axis=1)
    expected = np.where((rows != 0).any(axis=1), 1.0, 0.0)
    np.testing.assert_allclose(lengths, expected, atol=1e-6)


@given(ROWS)
def test_max_int16_puts_the_largest_magnitude_at_32760(rows):
    peaks = np.abs(normalize(rows, 0)).max(axis=1)
    np.testing.assert_allclose(peaks, np.where((rows != 0).any(axis=1), 32760, 0), rtol=1e-6)


def test_none_leaves_rows_alone_and_copies_them():
    rows = np.array([[3, 4]], np.float32)
    same = normalize(rows, -1)
    np.testing.assert_array_equal(same, rows)
    assert same is not rows


def test_lengths_that_overflow_float32_are_still_one():
    np.testing.assert_allclose(normalize(np.array([[3e38, 3e38]], np.float32)), [[0.5**0.5] * 2])


@pytest.mark.parametrize(
    ("name", "number"), [("none", -1), ("max-int16", 0), ("L1", 1), ("l2", 2), ("5", 5), (7, 7)]
)
def test_norms_are_read_by_name_and_number(name, number):
    assert parse_norm(name) == number


@pytest.mark.parametrize("value", ["euclid", -2, ""])
def test_an_unknown_norm_is_refused_with_the_choices(value):
    with pytest.raises(UsageError, match="none, max-int16, l1, l2"):
        parse_norm(value)


def test_layer_norm_comes_before_truncation_and_truncation_before_normalisation():
    row = np.array([1.0, 2.0, 3.0, 10.0], np.float32)
    centred = (row - row.mean()) / np.sqrt(row.var() + 1e-5)
    expected = centred[:2] / np.linalg.norm(centred[:2])
    np.testing.assert_allclose(finish(row, dim=2, layer_norm=True), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ([1.0, float("nan")], "not finite"),
        ([1.0, float("inf")], "not finite"),
        ([0.0, 0.0], "length is 0"),
        ([1e-7, 0.0], "length is 1e-07"),
        ([1e-3, 0.0], None),
    ],
)
def test_rows_that_point_nowhere_are_found(row, found):
    assert (defect(np.array(row, np.float32)) or "None").find(found or "None") >= 0


def test_a_score_may_be_zero_but_not_nan():
    assert defect(np.zeros(1, np.float32), may_be_zero=True) is None
    assert defect(np.array([np.nan], np.float32), may_be_zero=True)


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 5))),
    st.booleans(),
)
def test_rows_that_are_sound_at_a_glance_have_no_defect(rows, may_be_zero):
    if sound(list(rows), may_be_zero=may_be_zero):
        assert [defect(row, may_be_zero=may_be_zero) for row in rows] == [None] * len(rows)


def test_ordinary_rows_are_sound_and_one_bad_row_or_shape_makes_them_suspect():
    rows = list(np.eye(3, dtype=np.float32))
    zero, nan, longer = np.zeros(3), np.array([np.nan, 1, 1]), np.ones((2, 3))
    assert sound(rows)
    assert sound([*rows, zero.astype(np.float32)], may_be_zero=True)
    for bad in (zero, nan, longer):
        assert not sound([*rows, bad.astype(np.float32)])
