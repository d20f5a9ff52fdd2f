"""Vectors in 8 or 4 bits a number.

A vector is cut into groups of `GROUP` channels. Each group is turned by the same Hadamard matrix, which spreads a few
large channels, as keys have them, over all (QuaRot, Ashkboos et al., 2024), and is then stored as a float16 scale and
whole numbers. Nothing is calibrated, and no group knows of another, or of another token: a record means the same
wherever it goes. On the default model the turn makes the divergence of what the model says two to four times smaller;
zero points beside the scales, a codebook of Gaussian quantiles and scales found by search bought less than their bits
or their time were worth (docs/quantised-kv.md).

Since the matrix is orthogonal, turned queries and turned keys have the products that they had before, and turning the
weighted sum of turned values back gives the sum of the values. So stored vectors need not be turned back one by one.

Shapes: `D` channels, `g = D / GROUP` groups, `B` bytes of a packed vector: the scales of all groups, then the numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from prefold.engine.size import GROUP
from prefold.errors import UnsupportedModel, UsageError

_SCALE_BYTES = 2


class Form(ABC):
    """How the numbers of a group are stored.

    Attributes:
        name: as in `EngineOptions.kv_dtype`.
        bits: of one number.
    """

    name: ClassVar[str]
    bits: ClassVar[int]

    @property
    def format(self) -> str:
        """Name of the records' form: see `KVPool`."""
        return f"{self.name}-hadamard{GROUP}"

    @abstractmethod
    def scales(self, groups: torch.Tensor) -> torch.Tensor:
        """What a step from one whole number to the next is worth: (..., g, GROUP) float32 to (..., g, 1) float32."""

    @abstractmethod
    def pack(self, steps: torch.Tensor) -> torch.Tensor:
        """Numbers in units of their scale, (..., g, GROUP) float32, to uint8 (..., g, GROUP * bits / 8)."""

    @abstractmethod
    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """The reverse of `pack`, to float32."""


class Int8(Form):
    """Whole numbers from -127 to 127."""

    name = "int8"
    bits = 8

    def scales(self, groups: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        return groups.abs().amax(-1, keepdim=True) / 127

    def pack(self, steps: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        return steps.round().clamp_(-127, 127).to(torch.int8).view(torch.uint8)

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        return packed.view(torch.int8).to(torch.float32)


class Int4(Form):
    """Whole numbers from -8 to 7, of which -8 is that of the largest magnitude, whichever sign it has.

    All 16 numbers are used that way (the q4_0 of llama.cpp). Byte `i` of a group has number `i` in its lower half and
    number `i + GROUP / 2` in its upper one, both plus 8.
    """

    name = "int4"
    bits = 4

    def scales(self, groups: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        low, high = groups.aminmax(dim=-1, keepdim=True)
        return torch.where(high > -low, high, low) / -8

    def pack(self, steps: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        codes = (steps.round() + 8).clamp_(0, 15).to(torch.uint8)
        return codes[..., : GROUP // 2] | codes[..., GROUP // 2 :] << 4

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        numbers = torch.empty((*packed.shape[:-1], GROUP), dtype=torch.float32, device=packed.device)
        numbers[..., : GROUP // 2] = packed & 15
        numbers[..., GROUP // 2 :] = packed >> 4
        return numbers.sub_(8)


class Float8(Form):
    """float8_e4m3fn: 3 bits of mantissa, the largest number 448."""

    name = "fp8"
    bits = 8

    def scales(self, groups: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        return groups.abs().amax(-1, keepdim=True) / 448

    def pack(self, steps: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        return steps.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """See `Form`."""
        return packed.view(torch.float8_e4m3fn).to(torch.float32)


FORMS: dict[str, Form] = {form.name: form for form in (Int8(), Int4(), Float8())}


def form_for(name: str, head_dim: int, device: torch.device) -> Form:
    """The form of that name, for a model and a device.

    Raises:
        UnsupportedModel: if a head is not made of whole groups.
        UsageError: if the device has no arithmetic for it.
    """
    if name == Float8.name and device.type != "cuda":
        # Measured: torch reads 0.35 thousand million of them a second on two cores, and 17 of int8.
        raise UsageError(
            f"K/V in fp8 needs a CUDA device: on {device.type}, reading them takes some 50 times as long as int8",
            hint="use --kv-dtype int8, which takes the same memory and is more exact",
        )
    if head_dim % GROUP:
        raise UnsupportedModel(
            f"K/V in {name} takes head sizes that are multiples of {GROUP}; this model's is {head_dim}",
            hint="leave --kv-dtype out, or choose another model",
        )
    return FORMS[name]


def packed_bytes(size: int, form: Form) -> int:
    """Bytes of a packed vector of `size` channels."""
    return size // GROUP * _SCALE_BYTES + size * form.bits // 8


def quantise(turned: torch.Tensor, form: Form) -> torch.Tensor:
    """Pack vectors, (..., D) float32 from `turn`, into (..., B) uint8.

    What is not finite, or has a scale above float16's range, gives NaN when it is read: the engine says so then.
    """
    groups = turned.view(*turned.shape[:-1], -1, GROUP)
    scales = form.scales(groups).to(torch.float16)
    steps = scales.to(torch.float32)
    packed = form.pack(torch.where(steps == 0, 0.0, groups / steps))
    return torch.cat((scales.view(torch.uint8).flatten(-2), packed.flatten(-2)), dim=-1)


def dequantise(packed: torch.Tensor, form: Form, dtype: torch.dtype) -> torch.Tensor:
    """What `quantise` made of turned vectors, (..., B) uint8, in numbers: (..., D) of `dtype`, still turned."""
    count = packed.shape[-1] * 8 // (8 * _SCALE_BYTES + GROUP * form.bits)
    scales = packed[..., : count * _SCALE_BYTES].view(torch.float16).unsqueeze(-1)
    numbers = form.unpack(packed[..., count * _SCALE_BYTES :].view(*packed.shape[:-1], count, -1))
    # In float32: a scale rounded to bfloat16 would be wrong by up to 0.4 % for the whole group.
    return numbers.mul_(scales.to(torch.float32)).flatten(-2).to(dtype)


def turn(vectors: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Multiply each group by the matrix from `hadamard`, (..., D) to (..., D) float32; twice is not at all."""
    groups = vectors.to(torch.float32).reshape(*vectors.shape[:-1], -1, GROUP)
    return torch.matmul(groups, matrix).flatten(-2)


def hadamard(device: torch.device) -> torch.Tensor:
    """The orthonormal Hadamard matrix of Sylvester's construction, (GROUP, GROUP) float32; it is its own inverse."""
    matrix = torch.ones((1, 1), device=device)
    while len(matrix) < GROUP:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return matrix / math.sqrt(GROUP)
