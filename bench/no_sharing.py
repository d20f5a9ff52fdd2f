"""What the prefix cache costs where nothing is shared: an engine that keeps all it can, beside one that keeps nothing.

    python bench/no_sharing.py [--model default|tiny] [--policy default] [--rounds 9] [--json]

Both engines run the same model on the same kind of traffic, which no cache could help: random prompts, each of its own.
The one that keeps nothing forgets every request when it is answered, and evicts by `lru`; what is left is the same
engine without the upkeep of a full tree: finding room, the policy's learning, slots in pieces. The cache is full before
the first round, so that each new token needs an eviction. The engines take turns within each round, each first in every
second one; ratios are taken round by round. CPU time is of the whole process: with one thread it tells more than
wall-clock time where the machine is busy.

`tiny` is a random model of two narrow layers, beside whose steps upkeep weighs most.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import torch

from prefold import __version__
from prefold.core.policies import POLICIES
from prefold.core.tokens import pack
from prefold.engine.checkpoint import resolve
from prefold.engine.decoder import Decoder
from prefold.engine.engine import Engine
from prefold.engine.loading import load_decoder, make_pool
from prefold.engine.model_config import ModelConfig
from prefold.engine.options import EngineOptions
from prefold.engine.request import Output, Request, SamplingOptions
from prefold.engine.tokenizer import Tokenizer

VOCABULARY = 400


@dataclass(frozen=True)
class Job:
    """A burst of requests: how many, at most how many at a time, tokens of each prompt and of its answer."""

    requests: int
    running: int
    prompt: int
    new: int


JOBS = {"default": Job(32, 16, 200, 16), "tiny": Job(256, 32, 300, 24)}


def tiny_model(folder: Path) -> None:
    """A random model, and a tokenizer that names its ids."""
    import tokenizers  # noqa: PLC0415 - the default model needs neither
    import transformers  # noqa: PLC0415

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**shape, vocab_size=VOCABULARY, num_key_value_heads=2, eos_token_id=2)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = tokenizers.models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))


def run(engine: Engine, job: Job, dice: random.Random, *, forgets: bool) -> tuple[float, float]:
    """Seconds of time and of CPU time for a job."""
    prompts = [pack(dice.choices(range(3, VOCABULARY), k=job.prompt)) for _ in range(job.requests)]
    ended = []

    def take(output: Output) -> None:
        if output.usage is not None:
            ended.append(output.usage)

    options = SamplingOptions(max_tokens=job.new, temperature=0.0, ignore_eos=True)
    begin, begin_cpu, seen = time.perf_counter(), time.process_time(), 0
    for prompt in prompts:
        engine.submit(Request(prompt, options, take))
    while engine.busy:
        engine.step()
        if forgets and len(ended) > seen:
            seen = len(ended)
            engine.reset()
    return time.perf_counter() - begin, time.process_time() - begin_cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(JOBS), default="default")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="default", help="of the engine with the cache")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache-dir", type=Path, default=platformdirs.user_cache_path("prefold"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    job = JOBS[arguments.model]

    with tempfile.TemporaryDirectory() as temporary:
        if arguments.model == "tiny":
            folder = Path(temporary)
            torch.manual_seed(arguments.seed)
            tiny_model(folder)
            checkpoint = resolve(str(folder), cache_dir=arguments.cache_dir, progress=lambda *_: None)
        else:
            checkpoint = resolve(None, cache_dir=arguments.cache_dir, progress=lambda *_: None)
        decoder = load_decoder(checkpoint, getattr(torch, arguments.dtype), torch.device("cpu"))
        config, tokenizer = checkpoint.config, Tokenizer(checkpoint.folder)
        return measure(arguments, job, decoder, config, tokenizer)


def measure(
    arguments: argparse.Namespace, job: Job, decoder: Decoder, config: ModelConfig, tokenizer: Tokenizer
) -> int:
    """Alternate the engines and print what came of it."""
    # Room for twice what runs at a time: the cache is never far from full, and evicts for each request.
    slots = 2 * job.running * (job.prompt + job.new)

    def engine(policy: str) -> Engine:
        options = EngineOptions(dtype=arguments.dtype, policy=policy, max_running=job.running)
        return Engine(decoder, config, tokenizer, options, time.monotonic, make_pool(config, options, slots))

    keeping, forgetting = engine(arguments.policy), engine("lru")
    dice = random.Random(arguments.seed)
    for _ in range(1 + 2 * slots // (job.requests * (job.prompt + job.new))):
        run(keeping, job, dice, forgets=False)
    run(forgetting, job, dice, forgets=True)
    evicted = keeping.cache.counters.evicted
    times: dict[str, list[tuple[float, float]]] = {"keeping": [], "forgetting": []}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        order = ("keeping", "forgetting") if number % 2 else ("forgetting", "keeping")
        for name in order:
            one = keeping if name == "keeping" else forgetting
            times[name].append(run(one, job, dice, forgets=name == "forgetting"))
    tokens = job.requests * (job.prompt + job.new)
    ratios = {
        what: [kept[at] / forgot[at] for kept, forgot in zip(times["keeping"], times["forgetting"], strict=True)]
        for at, what in enumerate(("time", "CPU time"))
    }
    figures = {
        "prefold": __version__,
        "model": arguments.model,
        "policy": arguments.policy,
        "job": f"{job.requests} x ({job.prompt} + {job.new}), {job.running} at a time",
        "evicted_share": (keeping.cache.counters.evicted - evicted) / (tokens * arguments.rounds),
        "hits": keeping.cache.counters.hit / keeping.cache.counters.input,
        "tokens_per_second": tokens / statistics.median(seconds for seconds, _ in times["keeping"]),
        "ratios": ratios,
    }
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return 0
    print(f"{figures['model']} model, {figures['job']}, policy {figures['policy']}")
    print(f"evicted {figures['evicted_share']:.2f} tokens for each new one, hits {figures['hits']:.4f} of the input")
    for what, values in ratios.items():
        print(
            f"{what:10} keeping / forgetting: median {statistics.median(values):.4f} "
            f"({min(values):.3f} .. {max(values):.3f})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
