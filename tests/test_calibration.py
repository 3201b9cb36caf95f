"""How a model's contexts, threads and packs are chosen, kept and known again. No wall clocks."""

import json
import os

import pytest
import tiny_models

from corral import GGUFEmbeddings, calibration
from corral.calibration import Calibration, Setting, calibrate, describe, race, recall, share_cores
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType

BERT = tiny_models.bert()
SHA = "ab" * 32


def setting(n_contexts=2, n_threads=1, pack_tokens=384):
    return Setting(n_contexts=n_contexts, n_threads=n_threads, pack_tokens=pack_tokens)


RULE = setting()


class Clock:
    """Stands still, but for what a trial is said to take."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture(autouse=True)
def _own_cache(empty_cache, monkeypatch):  # noqa: ARG001 - it is the cache's being there
    monkeypatch.delenv("CORRAL_NO_CALIBRATION", raising=False)


@pytest.fixture
def _two_cores(monkeypatch):
    monkeypatch.setattr(calibration, "available_cores", lambda: 2)


def run_race(rates, cores=2, seconds=0.1, budget=2.0):
    """A race in which each trial takes some seconds and gives the rate that the mapping says."""
    clock = Clock()

    def measure(tried):
        clock.now += seconds
        return rates.get(tried, 1.0)

    return race(RULE, cores, measure, clock=clock, budget=budget)


# The race


def test_the_fastest_division_of_cores_wins_and_then_the_fastest_pack_for_it():
    found = run_race(
        {RULE: 100, setting(1, 2): 150, setting(1, 2, 256): 200, setting(2, 1, 256): 900}
    )
    assert found.setting == setting(1, 2, 256)
    assert setting(2, 1, 256) not in found.trials


def test_a_gain_within_the_noise_leaves_the_rule_in_force():
    assert run_race({RULE: 100, setting(1, 2): 102, setting(pack_tokens=512): 102}).setting == RULE


def test_all_divisions_into_powers_of_two_are_tried_and_no_setting_twice():
    found = run_race({}, cores=6, budget=100)
    tried = {(s.n_contexts, s.n_threads) for s in found.trials if s.pack_tokens == 384}
    assert tried == {(2, 1), (1, 6), (3, 2), (1, 4)}


def test_one_core_leaves_only_packs_to_try():
    rule = setting(1)
    found = race(rule, 1, lambda tried: tried.pack_tokens, clock=Clock())
    assert found.setting == setting(1, pack_tokens=512)
    assert {s.n_threads for s in found.trials} == {1}


def test_nothing_is_begun_that_would_end_after_the_budget():
    assert set(run_race({}, seconds=1.5).trials) == {RULE}
    assert len(run_race({}, seconds=0.9).trials) == 2


# The engine


@pytest.fixture
def engine():
    options = EngineOptions(pooling_type=PoolingType.MEAN)
    with Engine(BERT.path, options) as opened:
        yield opened


@pytest.mark.usefixtures("_two_cores")
def test_a_calibrated_engine_runs_as_was_found_and_the_next_one_need_not_look(engine):
    found = calibrate(engine, SHA, clock=Clock(step=1e-4))
    options = engine.options
    assert (options.n_contexts, options.n_threads, options.pack_tokens) == (
        found.n_contexts,
        found.n_threads,
        found.pack_tokens,
    )
    assert recall(SHA).setting == found

    def stopped():
        raise AssertionError("timed again")

    assert calibrate(engine, SHA, clock=stopped) == found


@pytest.mark.usefixtures("_two_cores")
def test_every_trial_gives_a_rate(engine):
    calibrate(engine, SHA, clock=Clock(step=1e-4))
    trials = recall(SHA).trials
    assert {(s.n_contexts, s.n_threads) for s in trials} == {(2, 1), (1, 2)}
    assert all(rate > 0 for rate in trials.values())


@pytest.mark.usefixtures("_two_cores")
def test_a_model_that_is_too_slow_keeps_to_the_rule(engine):
    assert calibrate(engine, SHA, clock=Clock(step=1.0)) == RULE
    assert list(recall(SHA).trials) == [RULE]


@pytest.mark.usefixtures("_two_cores")
def test_a_cache_that_cannot_be_written_costs_only_the_keeping(engine, empty_cache, caplog):
    empty_cache.parent.mkdir(exist_ok=True)
    empty_cache.write_text("a file where the folder should be")
    calibrate(engine, SHA, clock=Clock(step=1.0))
    assert "the calibration is not kept" in caplog.text
    assert recall(SHA) is None


# What is kept


def keep(text, sha=SHA):
    path = calibration._path(sha)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


FOUND = Calibration(setting=setting(1, 2), trials={RULE: 10.0, setting(1, 2): 4321.0})


def test_what_is_written_is_read_again():
    assert Calibration.from_json(FOUND.to_json()) == FOUND


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "[]",
        "{}",
        json.dumps({"n_contexts": 1, "n_threads": 1, "pack_tokens": 1, "trials": []}),
        FOUND.to_json().replace('"n_threads": 2', '"n_threads": 0'),
        FOUND.to_json().replace('"n_threads": 2', '"n_threads": "2"'),
    ],
)
def test_a_damaged_file_is_passed_over_with_a_warning(damage, caplog):
    keep(damage)
    assert recall(SHA) is None
    assert "passed over" in caplog.text


def test_another_model_build_processor_or_number_of_cores_is_not_known(monkeypatch):
    keep(FOUND.to_json())
    assert recall(SHA) == FOUND
    assert recall("cd" * 32) is None
    for name, value in (
        ("_processor", lambda: "another"),
        ("available_cores", lambda: 77),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(calibration, name, value)
            assert recall(SHA) is None
    with monkeypatch.context() as changed:
        changed.setattr(calibration, "distribution", lambda _: type("D", (), {"read_text": str}))
        assert recall(SHA) is None


def test_the_environment_can_forbid_it(monkeypatch):
    keep(FOUND.to_json())
    monkeypatch.setenv("CORRAL_NO_CALIBRATION", "1")
    assert recall(SHA) is None


@pytest.mark.usefixtures("_two_cores")
def test_a_line_says_how_a_model_runs_and_how_that_is_known():
    assert describe(SHA) == "2 x 1 threads, packs of 384 tokens (not yet calibrated)"
    keep(FOUND.to_json())
    assert describe(SHA) == "1 x 2 threads, packs of 384 tokens (calibrated: 4,321 tokens/s)"


# The machine


@pytest.mark.parametrize(
    ("text", "cores"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("max 100000\n", None), ("", None)],
)
def test_a_control_groups_quota_counts_as_cores(tmp_path, text, cores):
    file = tmp_path / "cpu.max"
    file.write_text(text)
    assert calibration._quota(file) == cores
    assert calibration._quota(tmp_path / "none") is None


def test_a_quota_lowers_the_number_of_cores_and_never_raises_it(monkeypatch):
    monkeypatch.setattr(calibration, "_quota", lambda _: 1)
    assert calibration.available_cores() == 1
    monkeypatch.setattr(calibration, "_quota", lambda _: 10_000)
    assert 1 <= calibration.available_cores() <= os.cpu_count()


def test_cores_are_counted_where_there_is_no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert calibration.available_cores() == 1


def test_a_processor_has_a_name_where_there_is_no_proc(monkeypatch):
    assert calibration._processor()
    monkeypatch.setattr(calibration.Path, "read_text", lambda _: (_ for _ in ()).throw(OSError()))
    assert calibration._processor()


@pytest.mark.usefixtures("_two_cores")
@pytest.mark.parametrize(
    ("n_contexts", "n_threads", "on_gpu", "expected"),
    [
        (None, None, False, (2, 1)),
        (None, None, True, (1, 2)),
        (1, None, False, (1, 2)),
        (None, 2, False, (1, 2)),
        (None, 8, False, (1, 8)),
        (5, None, False, (5, 1)),
        (3, 4, False, (3, 4)),
    ],
)
def test_the_rule_gives_each_core_a_context_and_a_gpu_one(n_contexts, n_threads, on_gpu, expected):
    shared = share_cores(n_contexts, n_threads, on_gpu=on_gpu)
    assert (shared["n_contexts"], shared["n_threads"]) == expected


# GGUFEmbeddings


@pytest.fixture
def _known(monkeypatch):
    """A calibration for every model."""
    monkeypatch.setattr(
        "corral.embeddings.recall",
        lambda _: Calibration(setting=setting(3, 1, 256), trials={setting(3, 1, 256): 1.0}),
    )


def runs_as(**options):
    with GGUFEmbeddings(BERT.path, **options) as embeddings:
        found = embeddings._open.engine.options
        return found.n_contexts, found.n_threads, found.pack_tokens


@pytest.mark.usefixtures("_known")
def test_a_known_calibration_is_used():
    assert runs_as() == (3, 1, 256)


@pytest.mark.usefixtures("_known", "_two_cores")
def test_what_is_given_is_taken_and_the_calibration_is_not():
    assert runs_as(n_contexts=1) == (1, 2, 384)
    assert runs_as(n_threads=2) == (1, 2, 384)
    assert runs_as(pack_tokens=200) == (2, 1, 200)


@pytest.mark.usefixtures("_two_cores")
def test_calibrating_makes_it_known_for_the_next_opening(monkeypatch):
    monkeypatch.setattr(calibration, "_find", lambda *_: FOUND)
    with GGUFEmbeddings(BERT.path) as embeddings:
        embeddings.calibrate()
        assert embeddings.n_contexts == 1
        assert embeddings.embed(["text"]).shape == (1, BERT.shape.n_embd)
    assert runs_as() == (1, 2, 384)


@pytest.mark.parametrize("options", [{"n_contexts": 2}, {"n_threads": 1}, {"pack_tokens": 100}])
def test_calibrating_does_nothing_where_options_were_given(monkeypatch, options):
    monkeypatch.setattr("corral.embeddings.calibrate", None)
    with GGUFEmbeddings(BERT.path, **options) as embeddings:
        embeddings.calibrate()


def test_calibrating_does_nothing_where_the_environment_forbids_it(monkeypatch):
    monkeypatch.setattr("corral.embeddings.calibrate", None)
    monkeypatch.setenv("CORRAL_NO_CALIBRATION", "1")
    with GGUFEmbeddings(BERT.path) as embeddings:
        embeddings.calibrate()
