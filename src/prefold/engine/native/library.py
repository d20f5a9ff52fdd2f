"""The compiled kernel as Python calls it. Structures stand as in `native.cpp`, field for field."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p
from pathlib import Path

import torch

from prefold.engine.native.build import NoKernel, build
from prefold.engine.progress import Progress

_STRIP = 32
_HALF = 16


class _Threads(Structure):
    _fields_ = [("parallel", c_void_p), ("thread", c_void_p), ("threads", c_void_p), ("count", c_int64)]


class Pages(Structure):
    """The memory of a pool."""

    _fields_ = [
        ("layers", c_int64),
        ("pages", c_int64),
        ("heads", c_int64),
        ("size", c_int64),
        ("bits", c_int64),
        ("keys", c_void_p),
        ("values", c_void_p),
    ]


class PlanView(Structure):
    """A step's plan: see `attention.h`."""

    _fields_ = [("groups", c_void_p), ("group_count", c_int64), ("rows", c_void_p), ("runs", c_void_p)]


class LinearView(Structure):
    """A packed weight."""

    _fields_ = [
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("columns", c_int64),
        ("depth", c_int64),
        ("paired", c_int64),
    ]


class LayerView(Structure):
    """A layer's weights."""

    _fields_ = [
        ("qkv", LinearView),
        ("output", LinearView),
        ("gate_up", LinearView),
        ("down", LinearView),
        ("input_norm", c_void_p),
        ("output_norm", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
    ]


class ModelView(Structure):
    """A model's shape and weights."""

    _fields_ = [
        ("layers", c_int64),
        ("hidden", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("size", c_int64),
        ("inner", c_int64),
        ("norm_epsilon", c_float),
        ("scale", c_float),
        ("embedding", c_void_p),
        ("cosine", c_void_p),
        ("sine", c_void_p),
        ("norm", c_void_p),
        ("head", LinearView),
        ("layer", POINTER(LayerView)),
    ]


class BatchView(Structure):
    """A step's tokens."""

    _fields_ = [
        ("rows", c_int64),
        ("tokens", c_void_p),
        ("positions", c_void_p),
        ("write", c_void_p),
        ("sample_count", c_int64),
        ("samples", c_void_p),
    ]


class _Attended(Structure):
    _fields_ = [
        ("rows", c_int64),
        ("heads", c_int64),
        ("layer", c_int64),
        ("scale", c_float),
        ("queries", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("write", c_void_p),
        ("out", c_void_p),
    ]


class Packed:
    """One matrix product with fixed weights; two weights are interleaved by 16 columns, so that gate and up meet.

    Args:
        kernel: what multiplies.
        weights: (out, in) each, side by side in the result.
        biases: (out,) each, or None.
    """

    def __init__(self, kernel: Kernel, weights: list[torch.Tensor], biases: list[torch.Tensor | None]) -> None:
        self._kernel = kernel
        self._paired = len(weights) == 2
        self.columns = sum(len(weight) for weight in weights)
        self.depth = weights[0].shape[1]
        self._weight = pack(weights, paired=self._paired)
        given = [bias.float()[:, None] for bias in biases if bias is not None]
        self._bias = pack(given, paired=self._paired).flatten() if given else None
        self.bfloat16 = weights[0].dtype == torch.bfloat16

    @property
    def view(self) -> LinearView:
        """For the kernel; valid as long as this object."""
        return LinearView(
            self._weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            self.columns,
            self.depth,
            self._paired,
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(T, in) to (T, out)."""
        x = x.contiguous()
        result = x.new_empty((len(x), self.columns))
        self._kernel.apply(self, x, result)
        return result


def pack(weights: list[torch.Tensor], *, paired: bool) -> torch.Tensor:
    """Weights as strips of 32 columns, [strip][unit of depth][32][numbers of a unit], zeros behind the last column."""
    per_unit = 4 // weights[0].element_size() if weights[0].shape[1] > 1 else 1
    columns = sum(len(weight) for weight in weights)
    strips, depth = -(-columns // _STRIP), weights[0].shape[1]
    packed = zeros(strips * _STRIP * depth, weights[0].dtype).view(strips, depth // per_unit, _STRIP, per_unit)
    if paired:
        for half, weight in enumerate(weights):
            place = packed[:, :, half * _HALF : (half + 1) * _HALF]
            place.copy_(weight.view(strips, _HALF, -1, per_unit).transpose(1, 2))
        return packed
    first = 0
    for weight in weights:  # each begins and ends in the middle of a strip, if it likes
        for strip in range(first // _STRIP, -(-(first + len(weight)) // _STRIP)):
            low, high = max(first, strip * _STRIP), min(first + len(weight), (strip + 1) * _STRIP)
            place = packed[strip, :, low - strip * _STRIP : high - strip * _STRIP]
            place.copy_(weight[low - first : high - first].view(high - low, -1, per_unit).transpose(0, 1))
        first += len(weight)
    return packed


def zeros(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory that the operating system clears as it is first touched, in large pages where it has them."""
    memory = mmap.mmap(-1, max(count * dtype.itemsize, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count)


class Kernel:
    """A loaded kernel.

    Args:
        path: the compiled file.

    Raises:
        NoKernel: if it cannot be loaded, or torch computes with an OpenMP runtime that it cannot share.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
            loaded = ctypes.CDLL(None)
            self._openmp = [
                ctypes.cast(getattr(loaded, name), c_void_p).value
                for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
            ]
        except OSError as error:
            raise NoKernel(f"the compiled kernel cannot be loaded: {error}") from error
        except AttributeError as error:
            raise NoKernel(f"torch's OpenMP runtime cannot be shared: {error}") from error
        self._library.prefold_buffer_new.restype = c_void_p
        self.name = path.name.partition("-")[0]

    def buffer(self) -> Buffer:
        """Memory to compute in."""
        return Buffer(self._library)

    def apply(self, linear: Packed, x: torch.Tensor, result: torch.Tensor) -> None:
        """A product; both tensors are contiguous."""
        self._library.prefold_apply(
            c_int(linear.bfloat16),
            ctypes.byref(self._threads()),
            ctypes.byref(linear.view),
            c_void_p(x.data_ptr()),
            c_int64(len(x)),
            c_void_p(result.data_ptr()),
        )

    def attend(
        self,
        buffer: Buffer,
        pages: Pages,
        plan: PlanView,
        layer: int,
        scale: float,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        write: torch.Tensor,
    ) -> torch.Tensor:
        """See `KVPool.attend`."""
        q, k, v, write = q.contiguous(), k.contiguous(), v.contiguous(), write.contiguous()
        out = torch.empty_like(q)
        call = _Attended(
            len(q),
            q.shape[1],
            layer,
            scale,
            q.data_ptr(),
            k.data_ptr(),
            v.data_ptr(),
            write.data_ptr(),
            out.data_ptr(),
        )
        _check(
            self._library.prefold_attend(
                c_int(q.dtype == torch.bfloat16),
                ctypes.byref(self._threads()),
                buffer.handle,
                ctypes.byref(pages),
                ctypes.byref(call),
                ctypes.byref(plan),
            )
        )
        return out

    def forward(
        self,
        buffer: Buffer,
        model: ModelView,
        pages: Pages,
        batch: BatchView,
        plan: PlanView,
        logits: torch.Tensor,
        *,
        bfloat16: bool,
    ) -> None:
        """A whole step; logits: (S, V) float32, filled."""
        _check(
            self._library.prefold_forward(
                c_int(bfloat16),
                ctypes.byref(self._threads()),
                buffer.handle,
                ctypes.byref(model),
                ctypes.byref(pages),
                ctypes.byref(batch),
                ctypes.byref(plan),
                c_void_p(logits.data_ptr()),
            )
        )

    def copy(self, pages: Pages, slots: torch.Tensor, records: torch.Tensor, *, out: bool, bfloat16: bool) -> None:
        """Slots to records, or records to slots."""
        self._library.prefold_copy(
            c_int(bfloat16),
            ctypes.byref(self._threads()),
            ctypes.byref(pages),
            c_void_p(slots.data_ptr()),
            c_int64(len(slots)),
            c_void_p(records.data_ptr()),
            c_int(out),
        )

    def _threads(self) -> _Threads:
        return _Threads(*self._openmp, torch.get_num_threads())


class Buffer:
    """Memory that the kernel computes in, kept from step to step; for one thread at a time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.handle = c_void_p(library.prefold_buffer_new())

    def __del__(self) -> None:
        self._library.prefold_buffer_free(self.handle)


def _check(result: int) -> None:
    if result:
        raise RuntimeError("the CPU kernel found too little memory")  # as torch says it, so that the engine goes on


def load_kernel(folder: Path, progress: Progress, environ: Mapping[str, str] = os.environ) -> Kernel:
    """The kernel for this CPU, compiled if need be.

    Raises:
        NoKernel: if it cannot be had.
    """
    return Kernel(build(folder, environ, progress))
