"""What an engine can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from prefold.core.policies import POLICIES
from prefold.errors import UsageError

TierWrite = Literal["evict", "through"]
Order = Literal["lpm", "fcfs"]
DType = Literal["bfloat16", "float32"]
KernelChoice = Literal["auto", "native", "torch"]
KVDType = Literal["", "bfloat16", "float32", "int8", "int4", "fp8"]
Role = Literal["both", "prefill", "decode"]


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine.

    Attributes:
        dtype: of weights and activations.
        device: `cpu`, `cuda`, `cuda:1`, ...
        kv_memory: bytes for K and V.
        kv_dtype: how K and V are kept; as `dtype` says where empty. `int8` holds about twice the tokens of `bfloat16`,
            `int4` about four times as many, at some loss: see docs/quantised-kv.md. `fp8` needs a CUDA device.
        step_tokens: most tokens in one forward pass, beside those of running answers, which leave prompts at least a
            quarter of it. Larger is faster for long prompts; smaller keeps the pauses between the tokens of running
            answers short.
        max_running: most requests that run at the same time.
        order: who is admitted first: `lpm`, the longest cached prefix, or `fcfs`, the first to come.
        max_overtakes: how often a waiting request may be overtaken before it goes first under `lpm`; so nobody waits
            for more than those that were there before it and this many others.
        grid: hits and chunks of a prompt are cut at multiples of this many tokens. 1 uses every cached token; with a
            larger one, a prompt sees the same shapes cold and warm, which makes its logits equal to the bit if nothing
            else runs and the prefix came from prompts, not from answers.
        policy: who is evicted, a name from `core.policies.POLICIES`.
        pin_limit: share of the K/V memory that pinned prefixes may hold, 0 to 0.9: the rest is for everybody.
        kernel: what the model runs on. `native` is the kernel in C++, for CPUs, compiled on first use; `torch` is
            torch's own; `auto` is the native one where it can be had, and torch's on other devices and on a grid.
        threads: CPU threads for the model, None to leave torch's choice.
        kv_events: ZMQ address at which to tell which blocks are cached, such as `tcp://127.0.0.1:5557`; empty for none.
        kv_replay: ZMQ address at which those who missed events can ask for them; empty for none.
        tiers: where K/V that leaves the pool is kept, such as `host=8GiB`, `disk=./kv,50GiB` or `redis://host:6379/0`;
            see `engine.tiers.spec`. In any order.
        tier_write: when it goes there: `evict`, as it leaves the pool; `through`, also as soon as it is computed, and
            then slow tiers take everything, not only what was asked for twice.
        blend: reuse marked chunks of prompts wherever they stand, which is not exact; see `engine.blend`.
        blend_recompute: share of their tokens that is computed all the same, 0 to 1.
        blend_memory: bytes for the K and V of chunks, beside `kv_memory`.
        role: `both` computes prompts and answers; `prefill` computes prompts for other engines, and has put their
            blocks into the tiers that these share with it before it answers; `decode` finds them there.
    """

    dtype: DType = "bfloat16"
    device: str = "cpu"
    kv_memory: int = 2 << 30
    kv_dtype: KVDType = ""
    step_tokens: int = 1024
    max_running: int = 64
    order: Order = "lpm"
    max_overtakes: int = 64
    grid: int = 1
    policy: str = "default"
    pin_limit: float = 0.5
    kernel: KernelChoice = "auto"
    threads: int | None = None
    kv_events: str = ""
    kv_replay: str = ""
    tiers: tuple[str, ...] = ()
    tier_write: TierWrite = "evict"
    blend: bool = False
    blend_recompute: float = 0.15
    blend_memory: int = 512 << 20
    role: Role = "both"

    def __post_init__(self) -> None:
        self._check_ranges()
        self._check_names()
        if self.role != "both" and all(tier.startswith("host=") for tier in self.tiers):
            raise UsageError(
                f"The role {self.role} needs a tier that it shares with its peers",
                hint="add one such as --tier redis://HOST:6379/0 or --tier disk=FOLDER,SIZE",
            )
        if self.tier_write != "evict" and not self.tiers:
            raise UsageError(
                f"tier_write is {self.tier_write} without a tier",
                hint="add one such as --tier host=8GiB, or leave --tier-write out",
            )
        if self.kv_replay and not self.kv_events:
            raise UsageError("kv_replay is set without kv_events", hint="set kv_events too, or neither")
        for name in ("blend_memory", "blend_recompute"):
            if not self.blend and getattr(self, name) != getattr(EngineOptions, name):
                raise UsageError(f"{name} is set while blend is off", hint="set blend too, or neither")

    def _check_ranges(self) -> None:
        for name in ("kv_memory", "step_tokens", "max_running", "grid"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="it must be at least 1")
        for name in ("max_overtakes", "blend_memory"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="it must be 0 or more")
        for name, most in (("pin_limit", 0.9), ("blend_recompute", 1)):
            if not 0 <= getattr(self, name) <= most:
                raise UsageError(f"{name} is {getattr(self, name)}", hint=f"it is a share, 0 to {most}")
        if self.grid > self.step_tokens:
            raise UsageError(
                f"grid {self.grid} exceeds step_tokens {self.step_tokens}", hint="a step must hold a whole chunk"
            )

    def _check_names(self) -> None:
        for name, kind in (("kv_dtype", KVDType), ("tier_write", TierWrite), ("role", Role), ("kernel", KernelChoice)):
            known, given = get_args(kind), getattr(self, name)
            if given not in known:
                raise UsageError(f"Unknown {name} {given!r}", hint=f"known: {', '.join(filter(None, known))}")
        if self.policy not in POLICIES:
            raise UsageError(f"Unknown eviction policy {self.policy!r}", hint=f"known: {', '.join(sorted(POLICIES))}")

    @property
    def writes_through(self) -> bool:
        """Whether K/V goes to the tiers as soon as it is computed."""
        return self.tier_write == "through" or self.role == "prefill"

    @property
    def stored_dtype(self) -> str:
        """How K and V are kept."""
        return self.kv_dtype or self.dtype
