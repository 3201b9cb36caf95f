"""The one room that knows llama.cpp: load, tokenise, decode, copy rows out, free.

No pointer leaves it. Whatever makes llama.cpp abort the process is checked before the call, and
everything else is raised as an EngineError. Names are llama.h's.

Thread safety: a Model may be used from any thread; a Context by one thread at a time.
"""

import ctypes
import logging
import os
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from corral.engine.pooling import PoolingType
from corral.errors import EngineError, GGUFError

os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # an abort would start gdb for seconds
import llama_cpp.llama_cpp as llama

__all__ = ["N_SEQ_MAX", "Context", "ContextParams", "DecodeAbortedError", "Model", "system_info"]

N_SEQ_MAX: Final = 256
"""llama-cparams.h LLAMA_MAX_SEQ."""

_INT32_MAX: Final = 2**31 - 1
_RC_ABORTED: Final = 2
_RC_MEANING: Final = {
    1: "no slot in memory for the batch",
    _RC_ABORTED: "aborted",
    -1: "the batch is invalid",
    -2: "memory could not be allocated",
    -3: "the computation failed",
}
_ERROR_LEVEL: Final = 4

log = logging.getLogger(__name__)
_last_errors: deque[str] = deque(maxlen=4)


def _log(level: int, text: bytes, _user_data: object) -> None:
    line = text.decode("utf-8", "replace").strip()
    if line:
        log.debug("%s", line)
        if level == _ERROR_LEVEL:
            _last_errors.append(line)


_log_callback = llama.llama_log_callback(_log)  # llama.cpp keeps no reference of its own
_context_lock = threading.Lock()  # creating a context may write the model's n_ctx_train (YaRN)


def _start() -> None:
    llama.llama_log_set(_log_callback, ctypes.c_void_p(0))
    llama.llama_backend_init()


_start()


def system_info() -> str:
    """Say which instruction sets and back ends this build of llama.cpp uses."""
    return bytes(llama.llama_print_system_info()).decode()


class DecodeAbortedError(EngineError):
    """A decode was stopped through Context.abort."""


def _multiple(n: int, of: int) -> int:
    return -(-n // of) * of


class Model:
    """One set of weights."""

    def __init__(self, path: Path, *, n_gpu_layers: int = 0) -> None:
        """Load a GGUF.

        Args:
            path: of the file.
            n_gpu_layers: layers to put on a GPU; -1 for all.

        Raises:
            GGUFError: llama.cpp cannot load it; its own words are in the message.
        """
        if n_gpu_layers and not llama.llama_supports_gpu_offload():
            log.warning(
                "n_gpu_layers is %d, and this build of llama.cpp has no GPU: the CPU does it all. "
                "docs/performance.md says how to build it for one",
                n_gpu_layers,
            )
        params = llama.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.load_mode = llama.LLAMA_LOAD_MODE_MMAP
        _last_errors.clear()
        self._model = llama.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            reason = "; ".join(_last_errors) or "no reason given"
            raise GGUFError(f"llama.cpp cannot load {path}: {reason}")
        self._vocab = llama.llama_model_get_vocab(self._model)
        self._close_lock = threading.Lock()
        self._open_contexts = 0
        self.n_embd_out: int = llama.llama_model_n_embd_out(self._model)
        self.n_ctx_train: int = llama.llama_model_n_ctx_train(self._model)
        self.n_cls_out: int = llama.llama_model_n_cls_out(self._model)
        self.n_vocab: int = llama.llama_vocab_n_tokens(self._vocab)
        self.n_embd: int = llama.llama_model_n_embd(self._model)
        self.n_layer: int = llama.llama_model_n_layer(self._model)
        self.needs_encode: bool = llama.llama_model_has_encoder(self._model)

    def tokenize(self, text: str) -> NDArray[np.int32]:
        """Token ids by llama.cpp's own tokenizer, without special tokens; (n,) int32.

        Text that looks like a control token is text.
        """
        raw = text.encode("utf-8", "replace")
        ids, n = self._tokenize(raw, room=len(raw) + 2)
        if n < 0:  # a normaliser that expands needs more room than bytes
            ids, n = self._tokenize(raw, room=-n)
        if n < 0:
            raise EngineError(f"llama_tokenize returned {n} for a text of {len(raw)} bytes")
        return ids[:n]

    def _tokenize(self, raw: bytes, *, room: int) -> tuple[NDArray[np.int32], int]:
        ids = np.empty(min(room, _INT32_MAX), dtype=np.int32)
        pointer = ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        with self._close_lock:
            if not self._model:
                raise EngineError("the model is closed")
            n = llama.llama_tokenize(self._vocab, raw, len(raw), pointer, len(ids), False, False)  # noqa: FBT003 - C has no keywords
        return ids, n

    def close(self) -> None:
        """Free the weights; closing twice is harmless.

        Raises:
            EngineError: a context is still open.
        """
        if self._open_contexts:
            raise EngineError(f"the model has {self._open_contexts} open contexts. This is a bug.")
        with self._close_lock:
            if self._model:
                llama.llama_model_free(self._model)
                self._model = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParams:
    """What a context is asked for.

    Args:
        pooling_type: as in llama.h.
        causal: attention; None takes the model's.
        n_ctx: tokens that memory holds, all sequences together.
        n_ubatch: most tokens of one decode (n_batch is the same).
        n_threads: of one decode.
        flash_attn: None lets llama.cpp choose.
    """

    pooling_type: PoolingType
    causal: bool | None = None
    n_ctx: int = 512
    n_ubatch: int = 512
    n_threads: int = 1
    flash_attn: bool | None = None


def _shape(params: ContextParams) -> tuple[int, int]:
    """n_ctx and n_ubatch that llama.cpp takes, with N_SEQ_MAX sequences, without aborting.

    MEAN asserts `min(pad256(n_ctx), n_ubatch) % n_seq_max == 0`, every type `n_seq_max <= n_batch`
    (llama-context.cpp graph_reserve; upstream issue ggml-org/llama.cpp#27175).
    """
    n_ubatch = _multiple(max(params.n_ubatch, 1), N_SEQ_MAX)
    return _multiple(max(params.n_ctx, n_ubatch), N_SEQ_MAX), n_ubatch


class Context:
    """State for decoding with a model."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        """Make a context.

        Raises:
            EngineError: llama.cpp cannot; its own words are in the message.
        """
        n_ctx, n_ubatch = _shape(params)
        c_params = llama.llama_context_default_params()
        c_params.n_ctx = n_ctx
        c_params.n_batch = c_params.n_ubatch = n_ubatch
        c_params.n_seq_max = N_SEQ_MAX
        c_params.n_threads = c_params.n_threads_batch = params.n_threads
        c_params.embeddings = True
        c_params.pooling_type = int(params.pooling_type)
        c_params.attention_type = -1 if params.causal is None else int(not params.causal)
        c_params.flash_attn_type = -1 if params.flash_attn is None else int(params.flash_attn)
        c_params.kv_unified = True
        self._abort_flag = ctypes.create_string_buffer(2)
        c_params.abort_callback = _ABORT_IF_SET
        c_params.abort_callback_data = ctypes.addressof(self._abort_flag)
        self._context: Any = None
        self._model = model
        with _context_lock:
            _last_errors.clear()
            self._context = llama.llama_init_from_model(model._model, c_params)  # noqa: SLF001 - same room
        if not self._context:
            reason = "; ".join(_last_errors) or "no reason given"
            raise EngineError(f"llama.cpp cannot make a context of {params}: {reason}")
        model._open_contexts += 1  # noqa: SLF001 - same room
        self._memory = llama.llama_get_memory(self._context)
        self.pooling_type = params.pooling_type
        self.n_ctx: int = llama.llama_n_ctx(self._context)
        self.n_ubatch: int = llama.llama_n_ubatch(self._context)
        self.n_ctx_train = model.n_ctx_train
        self.has_memory: bool = bool(self._memory)
        self.causal: bool = self.has_memory and bool(llama.llama_get_causal_attn(self._context))
        self.width: int = (
            model.n_cls_out if params.pooling_type is PoolingType.RANK else model.n_embd_out
        )

    def decode(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: NDArray[np.int32],
        *,
        wants_rows: bool = True,
    ) -> None:
        """Run the model over a batch.

        Tokens of a sequence stand together and their positions rise by one, going on from
        what memory holds of it.

        Args:
            tokens: ids, (n_tokens,) int32, read in place.
            positions: in their sequences, (n_tokens,) int32, read in place.
            sequences: ids of the sequences, (n_tokens,) int32.
            wants_rows: whether rows will be asked for. Without, a context with memory only takes
                the tokens into it, and is spared the logits of every one of them.

        Raises:
            DecodeAbortedError: `abort` was called.
            EngineError: llama.cpp refused the batch or failed; memory is cleared.
        """
        self._check(tokens, positions, sequences)
        n = len(tokens)
        pointers = (_SEQ_IDS.ctypes.data + 4 * sequences.astype(np.uint64)).astype(np.uintp)
        ones = np.ones(n, dtype=np.int32)
        flags = np.full(n, wants_rows, dtype=np.int8)
        llama.llama_set_embeddings(self._context, wants_rows)
        batch = llama.llama_batch(
            n_tokens=n,
            token=tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            embd=None,
            pos=positions.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            n_seq_id=ones.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            seq_id=pointers.ctypes.data_as(ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=flags.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )
        rc = llama.llama_decode(self._context, batch)
        if rc == 0:
            return
        self.clear()
        if rc == _RC_ABORTED:
            raise DecodeAbortedError("the decode was aborted")
        meaning = _RC_MEANING.get(rc, "an unknown code")
        raise EngineError(f"llama_decode returned {rc} ({meaning}) for a batch of {n} tokens")

    def _check(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: NDArray[np.int32],
    ) -> None:
        """Refuse what would abort the process or corrupt its memory."""
        if self._context is None:
            raise EngineError("the context is closed")
        n = len(tokens)
        if not n == len(positions) == len(sequences):
            raise EngineError(
                f"{n} tokens with {len(positions)} positions and {len(sequences)} sequence ids"
            )
        limits = (
            ("tokens in the batch", n, n, 1, self.n_ubatch, "n_ubatch"),
            ("token ids", tokens.min(initial=0), tokens.max(initial=0), 0, self._model.n_vocab - 1,
             "the vocabulary"),
            ("positions", positions.min(initial=0), positions.max(initial=0), 0,
             self._model.n_ctx_train - 1, "n_ctx_train"),
            ("sequence ids", sequences.min(initial=0), sequences.max(initial=0), 0,
             N_SEQ_MAX - 1, "n_seq_max"),
        )  # fmt: skip
        for what, low, high, least, most, source in limits:
            if low < least or high > most:
                raise EngineError(f"{what}: {low} to {high}; {source} allows {least} to {most}")

    def pooled_row(self, sequence: int) -> NDArray[np.float32]:
        """Copy the pooled row of a sequence of the last batch; (width,) float32."""
        return self._copy(llama.llama_get_embeddings_seq(self._context, sequence), sequence)

    def token_rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Copy the rows of tokens [start, stop) of the last batch; (stop - start, width) float32.

        The context's pooling type is NONE.
        """
        return np.stack(
            [
                self._copy(llama.llama_get_embeddings_ith(self._context, i), i)
                for i in range(start, stop)
            ]
        )

    def _copy(self, pointer: Any, number: int) -> NDArray[np.float32]:  # noqa: ANN401 - ctypes has no type for it
        if not pointer:
            raise EngineError(f"llama.cpp holds no row number {number} of the last batch")
        address = ctypes.addressof(pointer.contents)
        row = np.empty(self.width, dtype=np.float32)
        ctypes.memmove(row.ctypes.data, address, row.nbytes)
        return row

    def clear(self) -> None:
        """Forget all sequences."""
        if self.has_memory:
            llama.llama_memory_clear(self._memory, False)  # noqa: FBT003 - C has no keywords

    def copy_sequence(self, source: int, target: int) -> None:
        """Let a sequence begin with all that memory holds of another one."""
        llama.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def remove_sequence(self, sequence: int) -> None:
        """Forget one sequence."""
        llama.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def abort(self) -> None:
        """Stop the decode that runs now, or the next one; from any thread."""
        self._abort_flag[0] = b"\x01"

    def resume(self) -> None:
        """Take an abort back."""
        self._abort_flag[0] = b"\x00"

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        if self._context:
            llama.llama_free(self._context)
            self._context = None
            self._model._open_contexts -= 1  # noqa: SLF001 - same room


_SEQ_IDS: Final = np.arange(N_SEQ_MAX, dtype=np.int32)

# ggml calls `bool abort(void *data)` after every node. A Python callback would wait for the GIL
# there, hundreds of times a decode. C's strlen has a fitting calling convention on every platform
# that llama-cpp-python supports: with the flag's first byte set, the length, 1, reads as true.
_libc = ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)
_ABORT_IF_SET: Final = llama.ggml_abort_callback(
    ctypes.cast(_libc.strlen, ctypes.c_void_p).value or 0
)
