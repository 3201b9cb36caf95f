"""One function a table: what is compared, on which input, and what is to be reached."""

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import inputs
import numpy as np
import peers
import tiny_models
from timing import Plan, Spread, Turns, Way, in_turns

from corral import GGUFEmbeddings, GGUFReranker
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType

__all__ = ["TABLES", "Ratio", "Table"]

OURS = "corral"
_BATCH_SIZES = (8, 16, 32)
_LAYERS, _N_EMBD, _N_FF = 6, 384, 1536  # of all-MiniLM-L6-v2
_FLOP_PER_TOKEN = _LAYERS * 2 * (4 * _N_EMBD**2 + 2 * _N_EMBD * _N_FF)  # attention not counted
_MATMUL = "F32 matmul"
_PREFIX, _SUFFIX, _N_SUFFIXES = 200, 100, 50
_LONG = 2048
_N_LARGE = 32


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure, and what it should reach.

    Args:
        what: is compared with what.
        value: of the rounds.
        wanted: by the plain build, and by the one with MKL.
        at_most: whether it should stay under that instead.
    """

    what: str
    value: Spread
    wanted: tuple[float, float]
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What a comparison gave.

    Args:
        title: shown.
        unit: of the values.
        values: by way.
        ratios: of ours to others.
        notes: what is missing, and why.
    """

    title: str
    unit: str
    values: dict[str, Spread]
    ratios: list[Ratio]
    notes: list[str] = field(default_factory=list)


@contextlib.contextmanager
def _opened(plan: Plan) -> Iterator[GGUFEmbeddings]:
    """Open our side as an ingest does: calibrated."""
    with GGUFEmbeddings("minilm", **_one_core(plan)) as embeddings:
        embeddings.calibrate()
        yield embeddings


def _one_core(plan: Plan) -> dict[str, int]:
    # Both are given: the rule would give one context all cores.
    return {"n_contexts": 1, "n_threads": 1} if plan.one_core else {}


def _rates(turns: Turns, skip: str = "") -> dict[str, Spread]:
    return {name: turns.rate(name) for name in turns.rates if name != skip}


def _unit(plan: Plan) -> str:
    return "tokens/CPU second" if plan.one_core else "tokens/s"


def _others(turns: Turns) -> str:
    return f"other processes took {turns.disturbance:.0%} of the cores at most"


def chunks(plan: Plan) -> Table:
    """Chunks of 20 to 256 tokens, by every peer that is installed."""
    with _opened(plan) as ours, peers.sentence_transformers() as torch:
        texts = inputs.chunks(ours, 200, least=20, most=256)
        n_tokens = inputs.count(ours, texts)
        embed = {OURS: ours.embed, "Llama.embed": peers.llama_embed(ours.model_path)[0]}
        notes = []
        if langchain := peers.langchain(ours.model_path):
            embed["LlamaCppEmbeddings"] = langchain
        else:
            notes.append("langchain-community is not installed: its LlamaCppEmbeddings is left out")
        sizes = {f"sentence-transformers, {size} a batch": size for size in _BATCH_SIZES}
        if torch:
            embed |= {name: torch(size) for name, size in sizes.items()}
        else:
            notes.append("sentence-transformers is not installed: it is left out")
        matmul, flop = peers.matmul(512, _N_EMBD, _N_FF, times=200)
        ways = [
            Way(name, lambda f=function: f(texts), n_tokens) for name, function in embed.items()
        ]
        for way in (*ways, Way(_MATMUL, matmul, flop)):
            way.run() if way.name != "Llama.embed" else embed["Llama.embed"](texts[:2])
        turns = in_turns([*ways, Way(_MATMUL, matmul, flop)], plan)
    ratios = [
        Ratio(f"{OURS} / {peer}", turns.ratio(OURS, peer), (3.5, 3.5))
        for peer in ("Llama.embed", "LlamaCppEmbeddings")
        if peer in turns.rates
    ]
    if torch:
        best = turns.best(list(sizes))
        ratios.append(Ratio(f"{OURS} / {best}", turns.ratio(OURS, best), (0.75, 1.0)))
    share = turns.ratio(OURS, _MATMUL, of_rates=_FLOP_PER_TOKEN)
    gflops = turns.rate(_MATMUL).median / 1e9
    ratios.append(Ratio(f"share of {_MATMUL} ({gflops:.0f} GFLOP/s)", share, (0.40, 0.52)))
    title = f"{len(texts)} chunks of 20 to 256 tokens, all-MiniLM-L6-v2 F32"
    return Table(title, _unit(plan), _rates(turns, _MATMUL), ratios, [*notes, _others(turns)])


def causal(plan: Plan) -> Table:
    """Chunks on random weights of the shape of Qwen3-Embedding-0.6B."""
    with GGUFEmbeddings(inputs.large_causal_model().path, **_one_core(plan)) as ours:
        draw = random.Random(0)
        texts = [
            inputs.letters(ours.tokenizer, draw, draw.randint(20, 256)) for _ in range(_N_LARGE)
        ]
        title = (
            f"{len(texts)} chunks of 20 to 256 tokens, random Qwen3 of 28 layers, 1024 wide, F32"
        )
        return _beside_llama(replace(plan, rounds=1), ours, texts, title, n_warm=2, wanted=2.0)


def short(plan: Plan) -> Table:
    """10,000 texts of a word or two."""
    with _opened(plan) as ours:
        texts = inputs.short_texts(ours, 10_000)
        title = f"{len(texts):,} texts of 1 or 2 tokens (and 2 special ones), all-MiniLM-L6-v2 F32"
        return _beside_llama(plan, ours, texts, title, n_warm=100, wanted=3.5)


def _beside_llama(
    plan: Plan, ours: GGUFEmbeddings, texts: list[str], title: str, *, n_warm: int, wanted: float
) -> Table:
    """Time us beside Llama.embed, text by text and with the list, after a few texts."""
    as_list, one_by_one = peers.llama_embed(ours.model_path)
    embed = {
        OURS: ours.embed, "Llama.embed, one by one": one_by_one, "Llama.embed, a list": as_list
    }  # fmt: skip
    for function in embed.values():
        function(texts[:n_warm])
    n_tokens = inputs.count(ours, texts)
    ways = [Way(name, lambda f=function: f(texts), n_tokens) for name, function in embed.items()]
    turns = in_turns(ways, plan)
    ratios = [
        Ratio(f"{OURS} / {peer}", turns.ratio(OURS, peer), (wanted, wanted))
        for peer in embed
        if peer != OURS
    ]
    return Table(title, _unit(plan), _rates(turns), ratios, [_others(turns)])


def prefix(plan: Plan) -> Table:
    """A prefix that all texts share, decoded once and decoded for each."""
    model = inputs.causal_model(n_layer=4)
    begin = inputs.random_ids(_PREFIX, seed=1)
    sequences = [
        np.concatenate((begin, inputs.random_ids(_SUFFIX, seed=seed)))
        for seed in range(2, 2 + _N_SUFFIXES)
    ]
    n_tokens = _N_SUFFIXES * (_PREFIX + _SUFFIX)
    shared, unshared = "decoded once", "decoded for each"
    with contextlib.ExitStack() as stack:
        engines = {
            name: stack.enter_context(_causal_engine(model, share_prefix=name == shared))
            for name in (shared, unshared)
        }
        for engine in engines.values():
            engine.run(sequences[:2])
        ways = [Way(name, lambda e=e: e.run(sequences), n_tokens) for name, e in engines.items()]
        turns = in_turns(ways, plan)
    ratios = [Ratio(f"{shared} / {unshared}", turns.ratio(shared, unshared), (2.0, 2.0))]
    title = (
        f"{_N_SUFFIXES} suffixes of {_SUFFIX} tokens on a shared prefix of {_PREFIX}, "
        "Qwen3 of 4 layers, 512 wide"
    )
    return Table(title, _unit(plan), _rates(turns), ratios, [_others(turns)])


def rerank(plan: Plan) -> Table:
    """A query and 50 documents, on two layers, 64 wide."""
    return _rerank(plan, real_size=False)


def rerank_real(plan: Plan) -> Table:
    """A query and 50 documents, on random weights of the shape of Qwen3-Reranker-0.6B."""
    return _rerank(replace(plan, rounds=1), real_size=True)


def _rerank(plan: Plan, *, real_size: bool) -> Table:
    model = inputs.reranker_model(real_size=real_size)
    n_documents, n_prefix, n_document = 50, 150, 150
    shared, unshared, peer = OURS, "prefix decoded for each", "llama-cpp-python, pair by pair"
    with GGUFReranker(model.path, **_one_core(plan)) as ours, contextlib.ExitStack() as stack:
        parts = ours._parts  # noqa: SLF001 - the same ids without the sharing
        query, documents = inputs.pairs(
            parts.layout,
            parts.opened.tokenizer,
            n_documents,
            n_prefix=n_prefix,
            n_document=n_document,
        )
        pairs = [pair.ids for pair in parts.layout.build(query, documents)]
        options = replace(parts.opened.engine.options, share_prefix=False)
        engine = stack.enter_context(Engine(model.path, options))
        scores = peers.llama_rank(model.path, n_ctx=max(map(len, pairs)))
        prompts = [
            tiny_models.RERANK_TEMPLATE.format(query=query, document=document)
            for document in documents
        ]
        work = {
            shared: lambda: ours.rerank(query, documents),
            unshared: lambda: engine.run(pairs),
            peer: lambda: scores(prompts),
        }
        n_tokens = sum(map(len, pairs))
        if not real_size:
            for run in work.values():
                run()
        turns = in_turns([Way(name, run, n_tokens) for name, run in work.items()], plan)
    ratios = [
        Ratio(f"{shared} / {unshared}", turns.ratio(shared, unshared), (1.8, 1.8)),
        Ratio(f"{shared} / {peer}", turns.ratio(shared, peer), (3.0, 3.0)),
    ]
    shape = model.shape
    title = (
        f"{n_documents} documents of {n_document} tokens behind a prefix of {n_prefix}, random "
        f"Qwen3 reranker of {shape.n_layer} layers, {shape.n_embd} wide, F32"
    )
    return Table(title, _unit(plan), _rates(turns), ratios, [_others(turns)])


def _causal_engine(model: tiny_models.TinyModel, *, share_prefix: bool = True) -> Engine:
    n_cores = peers.N_CORES
    options = EngineOptions(
        pooling_type=PoolingType.LAST, n_contexts=n_cores, share_prefix=share_prefix
    )
    return Engine(model.path, options)


def long(plan: Plan) -> Table:
    """One long document on a causal model: peak memory, each in a process of its own."""
    del plan  # the kernel's count of pages needs no repetition
    model = inputs.causal_model()
    lengths = (_LONG, 4 * _LONG)
    peaks = {n: _peak_of_child(model.path, n) for n in lengths}
    values = {f"{n:,} tokens": Spread.of([peak]) for n, peak in peaks.items()}
    ratios = [
        Ratio(
            f"{4 * n:,} / {n:,} tokens", Spread.of([peaks[4 * n] / peaks[n]]), (1.2, 1.2),
            at_most=True,
        )
        for n in lengths[:-1]
    ]  # fmt: skip
    title = "Peak memory for one document, Qwen3 of 8 layers, 512 wide, 32,000 tokens F32"
    return Table(title, "MB", values, ratios)


def _peak_of_child(gguf: Path, n_tokens: int) -> float:
    child = subprocess.run(
        [sys.executable, Path(__file__).with_name("peak.py"), gguf, str(n_tokens)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(json.loads(child.stdout))


TABLES = {
    "chunks": chunks,
    "causal": causal,
    "short": short,
    "long": long,
    "prefix": prefix,
    "rerank": rerank,
    "rerank-real": rerank_real,
}
