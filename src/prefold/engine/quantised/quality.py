"""What keeping K and V in fewer bits costs, measured against the same model with K and V as it computes them.

Both read the same text side by side, a chunk at a time, each with K and V of its own ("teacher-forced": what the model
would say is compared after every token, and then both go on with the text's). Then both answer by themselves from the
same prompts ("free-running"), where one changed token changes all that follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import torch

from prefold.engine.checkpoint import Checkpoint
from prefold.engine.decoder import Decoder
from prefold.engine.kv_pool import KVPool
from prefold.engine.loading import load_decoder, make_pool
from prefold.engine.options import EngineOptions, KVDType
from prefold.engine.plan import Batch, Item
from prefold.engine.quantised.numbers import form_for
from prefold.engine.tokenizer import Tokenizer

TEXTS = ("english", "code", "chinese")

_CHUNK = 256
_PROMPT = 128
_PROMPTS_PER_TEXT = 3
_ANSWER = 48


@dataclass(frozen=True, slots=True)
class Quality:
    """How one way of keeping K and V compares with the reference.

    Attributes:
        name: of the way, as in `EngineOptions.kv_dtype`.
        bytes_per_token: of K and V.
        tokens: read with the text.
        relative_error: of all logits, as one vector: |theirs - reference| / |reference|.
        largest_error: of a logit.
        changed: share of the text's tokens after which another token is the likeliest.
        perplexity: of the text; lower is better.
        reference_perplexity: the same of the reference.
        agreed: share of the tokens of free-running answers that are the reference's, place by place.
        agreed_prefix: tokens of an answer before the first one that is not, on average.
        answers: number of answers.
        answer_tokens: tokens of each.
    """

    name: str
    bytes_per_token: int
    tokens: int
    relative_error: float
    largest_error: float
    changed: float
    perplexity: float
    reference_perplexity: float
    agreed: float
    agreed_prefix: float
    answers: int
    answer_tokens: int

    @property
    def tokens_per_gib(self) -> int:
        """Tokens whose K and V fit 1 GiB."""
        return (1 << 30) // self.bytes_per_token


def packaged_text(name: str) -> str:
    """One of `TEXTS`, some thousand tokens, written for this purpose: no model has seen it in training."""
    return (files(__package__) / "texts" / f"{name}.txt").read_text(encoding="utf-8")


def compare(checkpoint: Checkpoint, options: EngineOptions, progress: Callable[[str], None]) -> list[Quality]:
    """Compare all ways of keeping K and V that a model and a device have, on the packaged texts.

    Args:
        checkpoint: the model.
        options: its `dtype`, which is the reference, and `device`.
        progress: told what is being done.

    Raises:
        UnsupportedModel: if the model's head size does not fit.
        UsageError: if the device cannot be used.
    """
    config, device, dtype = checkpoint.config, torch.device(options.device), getattr(torch, options.dtype)
    names: list[KVDType] = ["int8", "int4"]
    form_for("int8", config.head_dim, device)
    if options.dtype == "float32":
        names.insert(0, "bfloat16")
    if device.type == "cuda":
        names.insert(-1, "fp8")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    progress(f"Loading {checkpoint.name}")
    decoder, tokenizer = load_decoder(checkpoint, dtype, device), Tokenizer(checkpoint.folder)
    longest = config.context_length - _ANSWER

    def maker(name: KVDType) -> Callable[[int], KVPool]:
        return lambda slots: make_pool(config, replace(options, kv_dtype=name), slots)

    texts = {name: tokenizer.encode(packaged_text(name), add_special=False)[:longest] for name in TEXTS}
    return measure(decoder, texts, maker(""), {name: maker(name) for name in names}, progress, device=device)


@torch.inference_mode()
def measure(
    decoder: Decoder,
    texts: Mapping[str, Sequence[int]],
    reference: Callable[[int], KVPool],
    others: Mapping[str, Callable[[int], KVPool]],
    progress: Callable[[str], None],
    *,
    device: torch.device,
) -> list[Quality]:
    """Compare ways of keeping K and V.

    Args:
        decoder: the model.
        texts: tokens by name, so many that an answer still fits the model's context length, and at least two.
        reference: makes a pool of so many slots that keeps K and V as they are.
        others: the ways to compare, by name; each makes such a pool.
        progress: told what is being done.
        device: of the model.
    """
    run = _Run(decoder, device)
    tallies = {name: _Tally() for name in others}
    for name, text in texts.items():
        progress(f"Reading {len(text):,} tokens of {name}")
        run.read(text, reference(len(text)), {tallies[name]: make(len(text)) for name, make in others.items()})
    prompts = [prompt for text in texts.values() for prompt in _prompts(text)]
    slots = sum(len(prompt) + _ANSWER for prompt in prompts)
    progress(f"Answering {len(prompts)} prompts")
    expected = run.answer(prompts, reference(slots))
    found: list[Quality] = []
    for name, make in others.items():
        progress(f"Answering {len(prompts)} prompts with K/V in {name}")
        pool = make(slots)
        same = run.answer(prompts, pool) == expected  # (prompts, _ANSWER)
        found.append(tallies[name].quality(name, pool.bytes_per_token, same))
    return found


def _prompts(text: Sequence[int]) -> list[Sequence[int]]:
    """Pieces of a text, evenly spread."""
    length = min(_PROMPT, len(text))
    last = len(text) - length
    starts = {last * number // _PROMPTS_PER_TEXT for number in range(_PROMPTS_PER_TEXT)}
    return [text[start : start + length] for start in sorted(starts)]


@dataclass(eq=False)
class _Tally:
    """Sums over the tokens of all texts."""

    tokens: int = 0
    predicted: int = 0
    squares: float = 0.0
    reference_squares: float = 0.0
    largest: float = 0.0
    changed: int = 0
    surprise: float = 0.0
    reference_surprise: float = 0.0

    def add(self, logits: torch.Tensor, reference: torch.Tensor, following: torch.Tensor) -> None:
        """Take in a chunk: logits (T, V) each, and the tokens that follow, (T,) or at the text's end one fewer."""
        difference = logits - reference
        self.tokens += len(logits)
        self.predicted += len(following)
        self.squares += float(difference.square().sum(dtype=torch.float64))
        self.reference_squares += float(reference.square().sum(dtype=torch.float64))
        self.largest = max(self.largest, float(difference.abs().max()))
        self.changed += int((logits.argmax(-1) != reference.argmax(-1)).sum())
        self.surprise += _surprise(logits, following)
        self.reference_surprise += _surprise(reference, following)

    def quality(self, name: str, bytes_per_token: int, same: torch.Tensor) -> Quality:
        """The figures, with which tokens of the answers were the reference's, (answers, tokens)."""
        return Quality(
            name,
            bytes_per_token,
            self.tokens,
            relative_error=math.sqrt(self.squares / self.reference_squares),
            largest_error=self.largest,
            changed=self.changed / self.tokens,
            perplexity=math.exp(self.surprise / self.predicted),
            reference_perplexity=math.exp(self.reference_surprise / self.predicted),
            agreed=float(same.double().mean()),
            agreed_prefix=float(same.double().cumprod(-1).sum(-1).mean()),
            answers=same.shape[0],
            answer_tokens=same.shape[1],
        )


def _surprise(logits: torch.Tensor, following: torch.Tensor) -> float:
    """Sum of the tokens' negative log likelihoods, in nats."""
    likely = logits[: len(following)].log_softmax(-1)
    return -float(likely.gather(1, following[:, None]).sum(dtype=torch.float64))


@dataclass(frozen=True, slots=True)
class _Run:
    """The model, run by hand: sequences lie one after the other in the pool."""

    decoder: Decoder
    device: torch.device

    def read(self, text: Sequence[int], reference: KVPool, others: dict[_Tally, KVPool]) -> None:
        """Run a text through all pools, a chunk at a time."""
        tokens = torch.tensor(text)
        for start in range(0, len(text), _CHUNK):
            stop = min(start + _CHUNK, len(text))
            rows = ((0, stop - start),)
            items = [Item(rows, ((start, stop),), causal=True, first=True)]
            if start:
                items.append(Item(rows, ((0, start),), causal=False, first=False))
            places = torch.arange(start, stop)
            every = torch.arange(stop - start)
            step = (tokens[start:stop], places, places, every, items)
            expected = self._forward(reference, *step)
            for tally, pool in others.items():
                tally.add(self._forward(pool, *step), expected, tokens[start + 1 : stop + 1])

    def answer(self, prompts: Sequence[Sequence[int]], pool: KVPool) -> torch.Tensor:
        """Greedy answers to all prompts at once, (prompts, _ANSWER) int64 on the CPU."""
        bases = [0]
        for prompt in prompts:
            bases.append(bases[-1] + len(prompt) + _ANSWER)
        chosen: list[torch.Tensor] = []
        for step in range(_ANSWER):
            if step == 0:
                fed = torch.cat([torch.tensor(prompt) for prompt in prompts])
                positions = torch.cat([torch.arange(len(prompt)) for prompt in prompts])
                sizes = [len(prompt) for prompt in prompts]
            else:
                fed = chosen[-1]
                positions = torch.tensor([len(prompt) + step - 1 for prompt in prompts])
                sizes = [1] * len(prompts)
            ends = torch.tensor(sizes).cumsum(0)
            write = positions + torch.tensor(bases[:-1]).repeat_interleave(torch.tensor(sizes))
            items = []
            for end, size, base, prompt in zip(ends.tolist(), sizes, bases, prompts, strict=False):
                keys = ((base, base + len(prompt) + step),)
                items.append(Item(((end - size, end),), keys, causal=step == 0, first=True))
            logits = self._forward(pool, fed, positions, write, ends - 1, items)
            chosen.append(logits.argmax(-1))
        return torch.stack(chosen, dim=1)

    def _forward(
        self,
        pool: KVPool,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        write: torch.Tensor,
        samples: torch.Tensor,
        items: list[Item],
    ) -> torch.Tensor:
        """Logits of some rows, (samples, V), on the CPU; so are the arguments."""
        tokens, positions, write, samples = (x.to(self.device) for x in (tokens, positions, write, samples))
        batch = Batch(tokens, positions, write, samples, pool.prepare(tuple(items)))
        return self.decoder.forward(batch, pool).cpu()
