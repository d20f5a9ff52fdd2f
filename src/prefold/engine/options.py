"""What an engine can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prefold.core.policies import POLICIES
from prefold.errors import UsageError

Order = Literal["lpm", "fcfs"]
DType = Literal["bfloat16", "float32"]


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine.

    Attributes:
        dtype: of weights, activations, K and V.
        device: `cpu`, `cuda`, `cuda:1`, ...
        kv_memory: bytes for K and V.
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
        threads: CPU threads for the model, None to leave torch's choice.
        kv_events: ZMQ address at which to tell which blocks are cached, such as `tcp://127.0.0.1:5557`; empty for none.
        kv_replay: ZMQ address at which those who missed events can ask for them; empty for none.
    """

    dtype: DType = "bfloat16"
    device: str = "cpu"
    kv_memory: int = 2 << 30
    step_tokens: int = 1024
    max_running: int = 64
    order: Order = "lpm"
    max_overtakes: int = 64
    grid: int = 1
    policy: str = "lru"
    threads: int | None = None
    kv_events: str = ""
    kv_replay: str = ""

    def __post_init__(self) -> None:
        for name in ("kv_memory", "step_tokens", "max_running", "grid"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="it must be at least 1")
        if self.max_overtakes < 0:
            raise UsageError(f"max_overtakes is {self.max_overtakes}", hint="it must be 0 or more")
        if self.grid > self.step_tokens:
            raise UsageError(
                f"grid {self.grid} exceeds step_tokens {self.step_tokens}", hint="a step must hold a whole chunk"
            )
        if self.policy not in POLICIES:
            raise UsageError(f"Unknown eviction policy {self.policy!r}", hint=f"known: {', '.join(sorted(POLICIES))}")
        if self.kv_replay and not self.kv_events:
            raise UsageError("kv_replay is set without kv_events", hint="set kv_events too, or neither")
