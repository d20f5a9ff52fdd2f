"""The engine: requests in, tokens out, one step at a time.

Not thread-safe: `EngineWorker` owns it in production, tests drive it directly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from prefold.core.cache import Cache, eviction_step
from prefold.core.keys import SHARED, Scope
from prefold.core.policies import POLICIES, Cost
from prefold.core.radix import Node
from prefold.core.tokens import count, pack, unpack
from prefold.engine import sampling
from prefold.engine.answer import AnswerText
from prefold.engine.blend.blender import BLEND_MAX, Blender, refusal
from prefold.engine.decoder import Decoder, LeanDecoder
from prefold.engine.kv_events import BlockBook
from prefold.engine.kv_pool import KVPool
from prefold.engine.model_config import ModelConfig
from prefold.engine.options import EngineOptions
from prefold.engine.pins import Pinned, Pins, PinWish
from prefold.engine.plan import build
from prefold.engine.request import BlendUsage, FinishReason, Output, Request, TokenInfo, Usage
from prefold.engine.scheduler import Scheduler, Sequence
from prefold.engine.slots import SlotPool, Span, SpanStore
from prefold.engine.ticket import Answer, Ticket, generator_of, tokens_of
from prefold.engine.tiers.ladder import Ladder
from prefold.engine.tokenizer import Tokenizer
from prefold.errors import CapacityError, EngineFailed, InvalidTokens, NoRoom, PrefoldError, PromptTooLong

_log = logging.getLogger(__name__)

EVICTION_STEP = 256
"""Tokens, of which a whole multiple stays of what is evicted in part: slots come free in long runs then, without which
every step would pay for shorter and shorter ones. Also in `providers/data/prefold.toml`, for the simulator."""


@dataclass
class StepTimes:
    """Where the time went, in seconds since the start, by the engine's clock."""

    steps: int = 0
    planning: float = 0.0
    model: float = 0.0
    answering: float = 0.0


class Engine:
    """A model with a prefix cache.

    Args:
        decoder: the model.
        config: its shape.
        tokenizer: for stops and text.
        options: see `EngineOptions`.
        clock: monotonic seconds.
        kv: K and V; as many tokens are cached as it has slots.
        events: told which blocks the cache holds, where somebody wants to know.
        ladder: of the tiers below, where there are any; closed with the engine.
    """

    def __init__(
        self,
        decoder: Decoder,
        config: ModelConfig,
        tokenizer: Tokenizer,
        options: EngineOptions,
        clock: Callable[[], float],
        kv: KVPool,
        events: BlockBook | None = None,
        ladder: Ladder | None = None,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.options = options
        self.times = StepTimes()
        self.pool = SlotPool(kv.capacity)
        store = SpanStore(self.pool) if events is None else events.store(self.pool)
        self.cache: Cache[Span] = Cache(
            kv.capacity,
            store,
            Span((), 0, 0),
            policy=POLICIES[options.policy](),
            cost=Cost(config.attention_span),  # one that knows of copies in tiers would go here
            grain=options.grid,
            pin_limit=options.pin_limit,
            eviction_step=eviction_step(kv.capacity, EVICTION_STEP),
            leaving=None if ladder is None else ladder.leaving,
        )
        self.pins = Pins(self.cache, clock)
        self.scheduler = Scheduler(self.cache, self.pool, options, self._ready, ladder)
        self.events = events
        self.ladder = ladder
        self.device = torch.device(options.device)
        self.kv = kv
        self.blend_refusal = refusal(decoder, kv) if options.blend else "blending is off"
        """Why no chunk is reused, of any request; empty where they are."""
        self.blender: Blender | None = None
        if not self.blend_refusal and isinstance(decoder, LeanDecoder):
            self.blender = Blender(decoder, kv, options.blend_recompute, options.blend_memory, self.device)
        self._was_aside = False
        self._decoder = decoder
        self._clock = clock
        self._arrivals = 0
        self._tickets: dict[Sequence, Ticket] = {}

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs, or a chunk is yet to be learnt."""
        return bool(self._tickets) or (self.blender is not None and self.blender.learning)

    @property
    def loading(self) -> float | None:
        """Seconds until a request that waits for K/V from a tier goes without it; None if none waits for that."""
        return None if self.ladder is None or not self.ladder.loading else self.ladder.patience()

    @property
    def threads(self) -> int:
        """CPU threads that the model computes with."""
        return torch.get_num_threads()

    def validate(self, request: Request) -> None:
        """Refuse a request that could never run. Reads nothing that changes, so any thread may call it.

        Raises:
            InvalidTokens: for an empty prompt or a token outside the vocabulary.
            InvalidRequest: for chunks that are empty, overlap or do not lie in the prompt.
            PromptTooLong: if prompt and answer exceed the context length or the K/V memory.
        """
        length = count(request.prompt)
        if not length:
            raise InvalidTokens("The prompt is empty", hint="send at least one token")
        highest = max(unpack(request.prompt))
        if highest >= self.config.vocab_size:
            raise InvalidTokens(
                f"Token id {highest} is outside the vocabulary",
                hint=f"this model's ids end at {self.config.vocab_size - 1}",
            )
        request.check_chunks()
        total = tokens_of(request)
        for limit, what in ((self.config.context_length, "context length"), (self.pool.capacity, "K/V memory")):
            if total > limit:
                raise PromptTooLong(
                    f"{length} prompt tokens and up to {request.sampling.max_tokens} new ones exceed "
                    f"the {what} of {limit} tokens",
                    hint="shorten the prompt or lower max_tokens",
                    param="max_tokens" if length < limit else "prompt",
                )

    def submit(self, request: Request) -> Ticket:
        """Queue a request.

        Raises:
            InvalidTokens, PromptTooLong: see `validate`.
            NoRoom: if what is pinned leaves too little room for it.
        """
        self.validate(request)
        return self.enqueue(request)

    def enqueue(self, request: Request) -> Ticket:
        """Queue a request that `validate` has passed.

        Raises:
            NoRoom: if what is pinned leaves too little room for it.
        """
        self.pins.expire()
        needed, attainable = tokens_of(request), self._attainable(request)
        if needed > attainable:
            raise NoRoom(
                f"The request may need {needed} tokens; pinned prefixes leave {attainable}",
                hint="unpin something, lower max_tokens, or give the pool more memory",
            )
        ticket = Ticket(request)
        for choice in range(request.sampling.choices):
            self._arrivals += 1
            # Only the first choice counts as a request; the others find its whole prompt.
            sequence = Sequence(request, choice, self._arrivals, request.prompt, cached=None if choice == 0 else 0)
            if len(request.opening) < len(request.prompt) and not self._refusal(request):
                sequence.run, sequence.private = request.opening, True
                sequence.fresh = unpack(request.prompt[len(request.opening) :])
            text = AnswerText(self.tokenizer.stream(), request.sampling.stop)
            ticket.answers[choice] = Answer(text, generator_of(request.sampling, choice), sequence)
            self._tickets[sequence] = ticket
            self.scheduler.add(sequence)
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Stop a request and free what it holds, at once; does nothing if it has ended.

        What it computed stays cached.
        """
        for answer in list(ticket.answers.values()):
            self._end(answer.sequence, "cancelled")
        self._tell()

    def cancel_all(self) -> None:
        """Stop every request."""
        for ticket in set(self._tickets.values()):
            self.cancel(ticket)

    def abandon(self, error: PrefoldError) -> None:
        """Tell every request that the engine is lost; touches nothing else, since nothing else is sure any more."""
        for ticket in set(self._tickets.values()):
            for choice in ticket.answers:
                ticket.request.on_output(Output(choice, finish="error", error=error))
        self._tickets.clear()

    def pin(self, wish: PinWish, scope: Scope = SHARED) -> Pinned:
        """Keep a cached prefix; see `Pins.add`. `pins` has the rest.

        Raises:
            CapacityError: if pins would hold too much, or leave too little for a request that was accepted.
        """
        before = self.cache.pinned
        pinned = self.pins.add(wish, scope)
        if self.cache.pinned > before:
            for ticket in set(self._tickets.values()):
                request = ticket.request
                if tokens_of(request) > self._attainable(request):
                    self.pins.remove(pinned.id)
                    raise CapacityError(
                        f"Pinning {pinned.tokens} tokens would leave too little room for a request that was accepted",
                        hint="try again when it has finished, or give the pool more memory",
                    )
        return pinned

    def reset(self) -> int:
        """Forget everything that no running request and no pin holds; returns the number of tokens."""
        if self.blender is not None:
            self.blender.clear()
        freed = self.cache.reset() if self.ladder is None else self.ladder.quietly(self.cache.reset)
        if self.events is not None and not self.cache.tree.size:
            self.events.cleared()
        self._tell()
        return freed

    def share(self, run: bytes, scope: Scope = SHARED) -> Future[bool]:
        """Bring what is cached of a prompt to the tiers that other engines see; see `Ladder.share`."""
        if self.ladder is None:
            done: Future[bool] = Future()
            done.set_result(True)
            return done
        known = self.cache.tree.peek(run, scope)
        return self.ladder.share(known.node.path(), known.length)

    def clear_tiers(self) -> Future[int]:
        """Empty the tiers; the number of blocks that were in them, once that is done."""
        if self.ladder is not None:
            return self.ladder.clear()
        nothing: Future[int] = Future()
        nothing.set_result(0)
        return nothing

    def close(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Tell nobody anything any more, and bring to the tiers what they should keep.

        Args:
            enough: asked now and then; whether to leave it at what has been brought.
        """
        if self.events is not None:
            self.events.close()
        if self.ladder is not None:
            leaves = [node for node in self.cache.tree.nodes() if not node.children]
            self.ladder.close(leaves, enough)

    def step(self) -> bool:
        """Run one forward pass; False if there was nothing to run."""
        ran = self._step()
        self._tell()
        return ran

    # Inside

    def _attainable(self, request: Request) -> int:
        """Tokens that a request may take up when nothing else runs."""
        run = request.prompt if self._refusal(request) else request.opening
        return self.cache.attainable(run, request.scope)

    def _refusal(self, request: Request) -> str:
        """Why none of a request's chunks is reused; empty where they are."""
        size = count(request.prompt) - count(request.opening)
        if self.blend_refusal or size <= BLEND_MAX:
            return self.blend_refusal
        return f"{size} tokens follow what stands before the first chunk, and up to {BLEND_MAX} are blended"

    def _ready(self, path: list[Node[Span]]) -> None:
        if self.events is not None:
            self.events.ready(path)

    def _tell(self) -> None:
        if self.events is not None:
            self.events.flush()

    def _step(self) -> bool:
        self.pins.expire()
        if not self._was_aside and self._aside():
            return True
        begin = self._clock()
        chunks = self.scheduler.schedule(begin)
        self._was_aside = False
        if not chunks:
            if self._aside():
                return True
            self._refuse_oldest()
            return False
        batch = build(chunks, self.kv, self.device)
        sampled = [chunk.sequence for chunk in chunks if chunk.sample]
        planned = self._clock()
        try:
            logits = self._decoder.forward(batch, self.kv)
        except RuntimeError as error:  # torch's own, out of memory among them: these requests fail, the engine goes on
            _log.exception("A step of %d tokens failed", len(batch.tokens))
            for sequence in list(self.scheduler.running):
                reason = str(error).splitlines()[0]
                self._end(sequence, "error", EngineFailed(f"The model failed: {reason}", hint="see the server's log"))
            return True
        tokens = self._choose(logits, sampled)
        ran = self._clock()
        failed = {sequence for sequence, token in zip(sampled, tokens, strict=True) if token is None}
        self.scheduler.commit([chunk for chunk in chunks if chunk.sequence not in failed])
        times = self.times  # counted before anybody hears of the step
        times.steps += 1
        times.planning += planned - begin
        times.model += ran - planned
        if self.ladder is not None:
            self.ladder.computed(sum(chunk.stop - chunk.start for chunk in chunks if chunk.of_prompt), ran - planned)
        for row, (sequence, token) in enumerate(zip(sampled, tokens, strict=True)):
            self._take(sequence, token, logits[row])
        times.answering += self._clock() - ran
        return True

    def _aside(self) -> bool:
        """Run a step for blending, which no other request joins; False if there is none to run.

        Two such steps do not follow each other while others have something to run. What is to be learnt goes first, or
        it would never be reused where one prompt with chunks follows another.
        """
        if self.blender is None:
            return False
        if self.blender.learning:
            try:
                self.blender.learn(self.options.step_tokens)
            except RuntimeError:  # it was for requests to come
                _log.exception("Computing a chunk by itself failed")
        elif (sequence := self.scheduler.blendable()) is not None:
            self._blend(self.blender, sequence)
        else:
            return False
        self._was_aside = True
        return True

    def _blend(self, blender: Blender, sequence: Sequence) -> None:
        """Run a prompt's chunks and what follows them."""
        request, ticket = sequence.request, self._tickets[sequence]
        begin = self._clock()
        prompt = sequence.run + pack(sequence.fresh)
        start = count(sequence.run)
        slots = sequence.slots(0, count(prompt))
        try:
            logits, blend = blender.run(prompt, request.chunks, request.scope, start, slots)
        except RuntimeError as error:
            _log.exception("Blending a prompt of %d tokens failed", count(prompt))
            reason = str(error).splitlines()[0]
            self._end(sequence, "error", EngineFailed(f"The model failed: {reason}", hint="see the server's log"))
            return
        (token,) = self._choose(logits, [sequence])
        if token is not None:
            self.scheduler.blended(sequence)
        if ticket.blend is None or ticket.blend.is_exact:  # other choices, and preempted ones, blend again
            ticket.blend = blend
        self.times.steps += 1
        self.times.model += self._clock() - begin
        self._take(sequence, token, logits[0])
        if token is not None:
            blender.note(request.prompt, request.chunks, request.scope)

    def _refuse_oldest(self) -> None:
        """Nothing runs and yet the oldest request does not fit: only pins can be in its way."""
        if self.scheduler.waiting and not self.scheduler.running and self.loading is None:
            room = self.cache.free + self.cache.evictable
            held = NoRoom(
                f"Pinned prefixes leave room for {room} tokens only",
                hint="unpin something or give the pool more memory",
            )
            self._end(self.scheduler.waiting[0], "error", held)

    def _choose(self, logits: torch.Tensor, sampled: list[Sequence]) -> list[int | None]:
        if not sampled:
            return []
        answers = [self._tickets[sequence].answers[sequence.choice] for sequence in sampled]
        return sampling.choose(
            logits, [sequence.request.sampling for sequence in sampled], [answer.generator for answer in answers]
        )

    def _take(self, sequence: Sequence, token: int | None, logits: torch.Tensor) -> None:
        """Take what was chosen, where anything could be."""
        if token is None:
            nothing = EngineFailed("The model gave no finite logits", hint="check the weights, or use --dtype fp32")
            self._end(sequence, "error", nothing)
        else:
            self._accept(sequence, token, logits)

    def _accept(self, sequence: Sequence, token: int, logits: torch.Tensor) -> None:
        """Take a chosen token into its answer and say so."""
        ticket = self._tickets[sequence]
        options = ticket.request.sampling
        text = ticket.answers[sequence.choice].text
        sequence.fresh.append(token)
        sequence.generated += 1
        ticket.completion += 1
        if ticket.completion == 1:
            self._computed(ticket, sequence)
        infos = () if options.logprobs is None else (sampling.describe(logits, token, options.logprobs),)
        if token in self.config.eos_token_ids and not options.ignore_eos:
            self._end(sequence, "stop", tokens=(token,), infos=infos)
            return
        piece = text.push(token)
        if text.stopped or sequence.generated == options.max_tokens:
            self._end(sequence, "stop" if text.stopped else "length", text=piece, tokens=(token,), infos=infos)
        else:
            ticket.request.on_output(Output(sequence.choice, piece, (token,), infos))

    def _computed(self, ticket: Ticket, sequence: Sequence) -> None:
        """The whole prompt of a request has K and V for the first time, and holds them."""
        self.pins.used(sequence.nodes())
        request = ticket.request
        if request.pin is not None:
            try:
                ticket.pin = self.pin(request.pin, request.scope)
            except CapacityError as error:  # the answer goes on without
                ticket.pin = error

    def _end(
        self,
        sequence: Sequence,
        reason: FinishReason,
        error: PrefoldError | None = None,
        *,
        text: str = "",
        tokens: tuple[int, ...] = (),
        infos: tuple[TokenInfo, ...] = (),
    ) -> None:
        self.scheduler.release(sequence, self._clock(), stop=reason)
        ticket = self._tickets.pop(sequence)
        answer = ticket.answers.pop(sequence.choice)
        if sequence.choice == 0:
            ticket.cached = sequence.cached or 0
        text += answer.text.finish()
        if answer.text.stopped and reason == "length":
            reason = "stop"
        usage = None
        if not ticket.answers:
            blend = ticket.blend
            if blend is None and ticket.request.chunks:
                blend = BlendUsage(len(ticket.request.chunks), reason=self._refusal(ticket.request))
            usage = Usage(count(ticket.request.prompt), ticket.cached, ticket.completion, blend)
        pin = None if usage is None else ticket.pin
        ticket.request.on_output(Output(sequence.choice, text, tokens, infos, reason, usage, error, pin))
