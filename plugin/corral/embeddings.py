"""GGUFEmbeddings: the vectors that a model's authors would compute, for LangChain and for numpy."""

import os
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from corral.calibration import calibrate, recall, share_cores
from corral.closing import Closing
from corral.engine.driver import Row
from corral.engine.pool import Rows
from corral.engine.pooling import PoolingType
from corral.engine.readouts import pool_rows
from corral.engine.sequences import OverLength, Piece, SequenceBuilder, TextSequences
from corral.engine.tokenizer import GGUFTokenizer
from corral.engine.vectors import finish, parse_norm
from corral.engine.worker import WorkerEngine
from corral.errors import EngineError, PoolingError, UsageError
from corral.loading import OpenModel, open_model, parse_attention

__all__ = ["Embedded", "GGUFEmbeddings", "TextInfo"]

_UNPOOLED = (PoolingType.NONE, PoolingType.RANK)

_ROWS_AT_ONCE = 1024
"""That are normalised together; a few MB in float64."""


@dataclass(frozen=True, slots=True)
class TextInfo:
    """What became of one text.

    Args:
        n_tokens: of the whole text, prefix and special tokens included.
        truncated: whether the model read less than all of it.
        model: that embedded it, as it was named.
    """

    n_tokens: int
    truncated: bool
    model: str


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors with what is to be known of them.

    Args:
        vectors: of each text, in input order: (dim,) float32, with pooling NONE (n_tokens, dim).
        infos: one a text.
        defects: why a vector cannot be used, by the number of its text.
    """

    vectors: list[Row]
    infos: list[TextInfo]
    defects: dict[int, str]


class GGUFEmbeddings(Embeddings, Closing):
    """Embeddings by a model in one GGUF file, run in this process by llama.cpp.

    Usable from many threads at once. Use it as a context manager, or call `close`, to free the
    model before the object goes.

    Attributes:
        model_path: the GGUF.
        pooling_type: in force.
        dim: length of the vectors.
        max_tokens: longest text, prefix and special tokens included, that is read whole.
        query_prefix: text put before queries.
        document_prefix: text put before documents.
    """

    def __init__(  # noqa: PLR0913 - the public surface: all options, by keyword
        self,
        model: str | os.PathLike[str] = "minilm",
        *,
        dim: int | None = None,
        force_dim: bool = False,
        pooling_type: PoolingType | int | str | None = None,
        attention: Literal["causal", "non-causal"] | None = None,
        over_length: str = "truncate",
        long_model: "GGUFEmbeddings | str | os.PathLike[str] | None" = None,
        normalize: str | int | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        n_contexts: int | None = None,
        n_threads: int | None = None,
        n_ubatch: int | None = None,
        pack_tokens: int | None = None,
        n_gpu_layers: int = 0,
        flash_attn: bool | None = None,
        token_rows: bool = False,
        isolate: bool = False,
    ) -> None:
        """Open a model.

        Args:
            model: a path to a GGUF, `hf:owner/repo[:file-or-quant]`, or the name of a built-in.
            dim: leading dimensions to keep, one that the model was trained for (Matryoshka);
                None keeps all.
            force_dim: take `dim` even if the model was not trained for it.
            pooling_type: overrides the model's own, with a warning.
            attention: overrides the model's own.
            over_length: what becomes of a text that is longer than the model takes: "error";
                "truncate", which keeps prefix and special tokens; "window", the mean over
                overlapping windows weighted by their tokens, an approximation.
            long_model: embeds the texts that are longer than `model` takes, whole; it is a model
                with pooling LAST. Its vectors live in a space, and may have a length, of their own.
                Given by name, it is opened with the options here that are of no model's own
                (over_length, normalize, n_contexts, n_threads, n_gpu_layers, flash_attn,
                isolate).
            normalize: "l2", "l1", "max-int16", "none", or p of the p-norm; None is "none" for the
                rows of pooling NONE and for scores, else "l2".
            query_prefix: text put before queries; None takes the profile's.
            document_prefix: text put before documents; None takes the profile's.
            n_contexts: contexts to run side by side; None takes what was calibrated, else one a
                core, with a GPU one.
            n_threads: threads of each context; None takes what was calibrated, else shares the
                cores out.
            n_ubatch: most tokens of a decode; None lets it follow the texts. Encoders read a text
                in one decode, so it also bounds their texts.
            pack_tokens: most tokens of a decode of several texts; None takes what was calibrated,
                else 384.
            n_gpu_layers: layers to put on a GPU; -1 for all.
            flash_attn: None lets llama.cpp choose.
            token_rows: have the model give a row for each token, of which the vectors are pooled
                here: what `rows_of` and late chunking need. The vectors stay the same.
            isolate: run the model in a process of its own. Where llama.cpp dies of a text, or the
                system takes the process for want of memory, it is started anew, the other texts
                get their vectors, and the one is reported as having none.

        Raises:
            ModelError: there is no such model, or it cannot be used.
            UsageError: an option is out of range.
        """
        self._over_length = OverLength.parse(over_length)
        norm = None if normalize is None else parse_norm(normalize)
        options: dict[str, Any] = {
            "causal": parse_attention(attention),
            "n_ubatch": n_ubatch,
            "n_gpu_layers": n_gpu_layers,
            "flash_attn": flash_attn,
            **share_cores(n_contexts, n_threads, on_gpu=n_gpu_layers != 0),
        }
        if pack_tokens is not None:
            options["pack_tokens"] = pack_tokens
        opened = open_model(
            os.fspath(model),
            pooling_type=pooling_type,
            options=options,
            token_rows=token_rows,
            isolate=isolate,
        )
        self._open = opened
        self.model: str = opened.resolved.ref
        self.tokenizer: GGUFTokenizer = opened.tokenizer
        self.limit_source: str = opened.limit_source
        self._tunable = n_contexts is n_threads is pack_tokens is None and n_gpu_layers == 0
        if self._tunable and (known := recall(opened.resolved.sha256)):
            opened.engine.retune(**asdict(known.setting))
        self._close = weakref.finalize(self, opened.engine.close)
        profile = opened.resolved.profile
        if query_prefix is None:
            query_prefix = profile.query_prefix if profile else ""
        if document_prefix is None:
            document_prefix = profile.document_prefix if profile else ""
        self.query_prefix: str = query_prefix
        self.document_prefix: str = document_prefix
        self.model_path: Path = opened.resolved.path
        self.pooling_type: PoolingType = opened.pooling_type
        self.max_tokens: int = opened.max_tokens
        self._pools_here = token_rows and opened.pooling_type not in _UNPOOLED
        self._has_rows = token_rows or opened.pooling_type is PoolingType.NONE
        self._layer_norm = bool(profile and profile.layer_norm)
        self._norm = norm if norm is not None else _default_norm(opened.pooling_type)
        self._owned: GGUFEmbeddings | None = None
        try:
            self.dim: int = _check_dim(opened, dim, force=force_dim)
            self._force_dim = force_dim
            self._long = _open_long(
                long_model,
                over_length=over_length,
                normalize=normalize,
                n_contexts=n_contexts,
                n_threads=n_threads,
                n_gpu_layers=n_gpu_layers,
                flash_attn=flash_attn,
                isolate=isolate,
            )
            if self._long is not long_model:
                self._owned = self._long
            for prefix in (self.query_prefix, self.document_prefix):
                self.sequences(prefix).check_prefix()
        except BaseException:
            self.close()
            raise

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents, each with the document prefix.

        Raises:
            EngineError: the model gave a vector that is none.
            PoolingError: the pooling type is NONE.
        """
        self._refuse_token_rows()
        return [row.tolist() for row in self._embed_or_raise(texts, self.document_prefix)[0]]

    def embed_query(self, text: str) -> list[float]:
        """Embed a query with the query prefix; raises as `embed_documents`."""
        vector: list[float] = self.embed_query_row(text).tolist()
        return vector

    def embed_query_row(self, text: str) -> NDArray[np.float32]:
        """Embed a query with the query prefix; (dim,) float32; raises as `embed_documents`."""
        self._refuse_token_rows()
        (row,), _ = self._embed_or_raise([text], self.query_prefix, queries=True)
        return row

    @overload
    def embed(
        self, texts: Sequence[str], *, return_info: Literal[False] = False
    ) -> NDArray[np.float32]: ...
    @overload
    def embed(
        self, texts: Sequence[str], *, return_info: Literal[True]
    ) -> tuple[NDArray[np.float32], list[TextInfo]]: ...
    def embed(
        self, texts: Sequence[str], *, return_info: bool = False
    ) -> NDArray[np.float32] | tuple[NDArray[np.float32], list[TextInfo]]:
        """Embed documents, each with the document prefix.

        Args:
            texts: the documents.
            return_info: whether to say what became of each.

        Returns:
            (n_texts, dim) float32, of unit length unless `normalize` says otherwise; with
            `return_info` also an info for each text. Where the rows differ in shape (pooling NONE,
            or a `long_model` of another length) an object array of rows.

        Raises:
            EngineError: the model gave a vector that is none.
        """
        rows, infos = self._embed_or_raise(texts, self.document_prefix)
        vectors = self._stack(rows)
        return (vectors, infos) if return_info else vectors

    def embed_checked(self, texts: Sequence[str], *, prefix: str | None = None) -> Embedded:
        """Embed texts, and report what cannot be used instead of raising.

        Args:
            texts: the texts.
            prefix: text put before each; None takes the document prefix.
        """
        return self._embed(texts, self.document_prefix if prefix is None else prefix)

    def require_trained(self, dim: int) -> None:
        """Refuse a number of leading dimensions that the model was not trained for.

        Raises:
            UsageError: it was not, and `force_dim` is not set; says for which it was. Or it gives
                fewer dimensions.
        """
        _check_dim(self._open, dim, force=self._force_dim)

    def shortened(self, row: Row, dim: int) -> Row:
        """Return the leading dimensions of a vector, normalised anew; (dim,) float32."""
        return finish(row, dim=dim, layer_norm=False, norm=self._norm)

    def rows_of(self, sequences: Sequence[NDArray[np.int32]]) -> Rows:
        """Run the model over token ids, for the rows of their tokens as they are.

        Args:
            sequences: each (n_tokens,) int32 with 1 <= n_tokens <= max_tokens, special tokens
                included.

        Returns:
            Of each sequence (n_tokens, width) float32, not normalised.

        Raises:
            EngineError: the model failed, or is closed.
            PoolingError: it was opened without `token_rows`.
        """
        if not self._has_rows:
            raise PoolingError("the model gives no token rows; open it with token_rows=True")
        return self._open.engine.run(sequences)

    def pool(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Make a vector of token rows, as the model's own pooling would of a text with these.

        Args:
            rows: (n_tokens, width) float32, as `rows_of` gives them; at least one.

        Returns:
            (dim,) float32, normalised as every vector of this object.

        Raises:
            PoolingError: the pooling type is NONE or RANK.
        """
        pooled = pool_rows(self.pooling_type, rows)
        return finish(pooled, dim=self.dim, layer_norm=self._layer_norm, norm=self._norm)

    def _embed(
        self,
        texts: Sequence[str],
        prefix: str,
        *,
        queries: bool = False,
        numbers: Sequence[int] | None = None,
    ) -> Embedded:
        """Embed texts; `queries` and `numbers` are for the long model's prefix and its errors."""
        built = self.sequences(prefix).build(texts, numbers=numbers)
        if self._long is None:
            return self._run(built)
        far = self._long
        long = [index for index, text in enumerate(built) if text.n_tokens > self.max_tokens]
        short = [index for index, text in enumerate(built) if text.n_tokens <= self.max_tokens]
        beyond = far._embed(  # noqa: SLF001 - another object of this class
            [texts[index] for index in long],
            far.query_prefix if queries else far.document_prefix,
            queries=queries,
            numbers=long,
        )
        return _merge((short, self._run([built[index] for index in short])), (long, beyond))

    def sequences(self, prefix: str) -> SequenceBuilder:
        """Give what turns texts with this prefix into what the model reads."""
        return SequenceBuilder(
            tokenizer=self.tokenizer,
            prefix=prefix,
            max_tokens=self.max_tokens,
            limit_source=self.limit_source,
            over_length=OverLength.TRUNCATE if self._long else self._over_length,
        )

    @property
    def settings(self) -> dict[str, str | int | bool]:
        """What decides the vectors, by name: part of a collection's fingerprint."""
        return {
            "model_sha256": self._open.resolved.sha256,
            "pooling_type": self.pooling_type.name.lower(),
            "causal": self._open.engine.causal,
            "query_prefix": self.query_prefix,
            "document_prefix": self.document_prefix,
            "dim": self.dim,
            "layer_norm": self._layer_norm,
            "normalize": self._norm,
            "over_length": str(self._over_length),
            "max_tokens": self.max_tokens,
        }

    def calibrate(self) -> None:
        """Find out, once, what runs this model fastest on this machine; up to about two seconds.

        It is kept, and later openings of the model use it. Where one of n_contexts, n_threads and
        pack_tokens was given, or a GPU works, nothing happens. Nobody else may be using the object.
        """
        if self._tunable and not os.environ.get("CORRAL_NO_CALIBRATION"):
            calibrate(self._open.engine, self._open.resolved.sha256)

    @property
    def width(self) -> int:
        """Values of a token's row."""
        return self._open.engine.n_embd_out

    @property
    def n_contexts(self) -> int:
        """Contexts that can work side by side."""
        return self._open.engine.n_contexts

    @property
    def busy_seconds(self) -> float:
        """Seconds that the model has worked, all contexts together."""
        return self._open.engine.busy_seconds

    @property
    def deaths(self) -> int:
        """How often the model's own process died and was started anew; 0 without `isolate`."""
        own = self._open.engine.deaths if isinstance(self._open.engine, WorkerEngine) else 0
        return own + (self._owned.deaths if self._owned else 0)

    def close(self) -> None:
        """Free the model; using the object afterwards is an error, closing twice is harmless."""
        self._close()
        if self._owned:
            self._owned.close()

    def _run(self, built: Sequence[TextSequences]) -> Embedded:
        pieces = [piece for text in built for piece in text.pieces]
        keys = [piece.ids.tobytes() for piece in pieces]
        distinct = dict(zip(keys, (piece.ids for piece in pieces), strict=True))
        result = self._open.engine.run(list(distinct.values()))
        number_of = dict(zip(distinct, range(len(distinct)), strict=True))
        numbers = [number_of[key] for key in keys]
        rows: Sequence[Row] = result.rows
        if self._pools_here:
            rows = [pool_rows(self.pooling_type, row) for row in rows]
        whole, defects, first = [], {}, 0
        for number, text in enumerate(built):
            parts = numbers[first : first + len(text.pieces)]
            first += len(parts)
            for found in filter(None, map(result.defects.get, parts)):
                defects[number] = found
            whole.append(self._joined([rows[part] for part in parts], text.pieces))
        infos = [TextInfo(text.n_tokens, text.truncated, self.model) for text in built]
        return Embedded(self._finished(whole), infos, defects)

    def _joined(self, rows: Sequence[Row], pieces: Sequence[Piece]) -> Row:
        """Make one row of a text's pieces."""
        if len(rows) == 1:
            return rows[0]
        if self.pooling_type is PoolingType.NONE:
            return np.concatenate(rows)
        weights = [max(1, piece.weight) for piece in pieces]
        row: Row = np.average(np.stack(rows), axis=0, weights=weights)
        return row

    def _finished(self, rows: Sequence[Row]) -> list[Row]:
        """Make vectors of rows, many at once where they are alike."""
        at_once = _ROWS_AT_ONCE if len({row.shape for row in rows}) == 1 else 1
        return [
            row
            for first in range(0, len(rows), at_once)
            for row in finish(
                np.stack(rows[first : first + at_once]),
                dim=self.dim,
                layer_norm=self._layer_norm,
                norm=self._norm,
            )
        ]

    def _embed_or_raise(
        self, texts: Sequence[str], prefix: str, *, queries: bool = False
    ) -> tuple[list[Row], list[TextInfo]]:
        embedded = self._embed(texts, prefix, queries=queries)
        if embedded.defects:
            number, found = next(iter(embedded.defects.items()))
            raise EngineError(
                f"the model gave {len(embedded.defects)} of {len(texts)} texts a vector that is "
                f"none, alone on a fresh context too; text {number}: {found}"
            )
        return embedded.vectors, embedded.infos

    def _stack(self, rows: list[Row]) -> NDArray[np.float32]:
        if not rows:
            return np.empty((0, self.dim), dtype=np.float32)
        if len({row.shape for row in rows}) == 1 and self.pooling_type is not PoolingType.NONE:
            return np.stack(rows)
        ragged = np.empty(len(rows), dtype=object)
        ragged[:] = rows
        return ragged

    def _refuse_token_rows(self) -> None:
        if self.pooling_type is PoolingType.NONE:
            raise PoolingError(
                "pooling_type none gives a row for each token, and LangChain takes one a text; "
                "use embed() for the rows, or another pooling_type"
            )


def _default_norm(pooling_type: PoolingType) -> int:
    return parse_norm("none" if pooling_type in _UNPOOLED else "l2")


def _open_long(
    model: "GGUFEmbeddings | str | os.PathLike[str] | None",
    **options: Any,  # noqa: ANN401 - GGUFEmbeddings' own
) -> GGUFEmbeddings | None:
    if model is None:
        return None
    opened = model if isinstance(model, GGUFEmbeddings) else GGUFEmbeddings(model, **options)
    if opened.pooling_type is not PoolingType.LAST:
        if opened is not model:
            opened.close()
        raise PoolingError(
            f"long_model {opened.model_path} pools by {opened.pooling_type.name.lower()}; texts "
            "over the limit go to a model with pooling LAST, which reads them in several decodes"
        )
    return opened


def _check_dim(opened: OpenModel, dim: int | None, *, force: bool) -> int:
    engine = opened.engine
    full = engine.n_cls_out if opened.pooling_type is PoolingType.RANK else engine.n_embd_out
    profile = opened.resolved.profile
    trained = sorted({full, *(profile.trained_dims if profile else ())})
    if dim is None:
        return full
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise UsageError(f"dim is {dim!r}; it must be a whole number")
    if not 1 <= dim <= full:
        raise UsageError(f"dim is {dim}; the model gives {full} dimensions")
    if dim not in trained and not force:
        raise UsageError(
            f"dim is {dim}; the model was trained for {', '.join(map(str, trained))}, and other "
            "lengths are silently poor. Take one of those, or force_dim=True, --force-dim"
        )
    return dim


def _merge(*parts: tuple[Sequence[int], Embedded]) -> Embedded:
    """Put results for parts of the texts together, in the order of the texts' numbers."""
    placed = sorted(
        (
            (index, part.vectors[number], part.infos[number], part.defects.get(number))
            for indexes, part in parts
            for number, index in enumerate(indexes)
        ),
        key=itemgetter(0),
    )
    return Embedded(
        [vector for _, vector, _, _ in placed],
        [info for _, _, info, _ in placed],
        {index: found for index, _, _, found in placed if found},
    )
