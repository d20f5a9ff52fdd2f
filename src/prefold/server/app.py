"""The server's endpoints: a raw ASGI callable over an engine's worker."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from prefold import __version__
from prefold.core.tokens import count, unpack
from prefold.engine.progress import Progress
from prefold.engine.worker import EngineWorker
from prefold.errors import EngineStopped, PrefoldError
from prefold.server import metrics
from prefold.server.asgi import ClientGone, Exchange, HttpError, Receive, Scope, Send
from prefold.server.fields import Fields, read_json, shown
from prefold.server.generation import Generation, result_of
from prefold.server.openai_requests import (
    Call,
    ServedModel,
    parse_chat,
    parse_completion,
    parse_prompt,
    parse_tokens,
)
from prefold.server.openai_responses import (
    ChatForm,
    Choice,
    CompletionForm,
    Form,
    Head,
    as_http_error,
    error_body,
    usage_object,
)
from prefold.server.pins import cache_object, outcomes, parse_pin, pin_all, pin_object, pins_object, read_pin_file

_log = logging.getLogger(__name__)

T = TypeVar("T")

TENANT_HEADER = "x-prefold-tenant"

BLEND_HEADER = "x-prefold-blend"
"""Of answers to requests that mark chunks: `approximate`, `exact`, or `possible` of a stream, whose usage says more."""

_PIN = "/cache/pins/"
"""Begins the path of a pin; its name ends it."""

SHARE_SECONDS = 10.0
"""Longest that an answer in the role prefill waits until the K/V of its prompts is in the tiers."""

INLINE_BYTES = 2048
"""Bodies up to this size are parsed and tokenised in the event loop, larger ones in a thread."""


def _new_id() -> str:
    return uuid.uuid4().hex


class PrefoldApp:
    """An OpenAI-compatible server as an ASGI application.

    Args:
        worker: runs the engine; started and stopped by the caller.
        names: what clients may call the model; the first is the one that answers carry.
        clock: monotonic seconds, for durations.
        wall_clock: Unix time, for `created`.
        new_id: makes ids.

    Attributes:
        stopping: set when the server is going down; `/health` then says so.
    """

    def __init__(
        self,
        worker: EngineWorker,
        names: tuple[str, ...],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        engine = worker.engine
        limit = min(engine.config.context_length, engine.cache.capacity)
        self.stopping = False
        self._worker = worker
        self._model = ServedModel(names, engine.tokenizer, engine.config.vocab_size, limit)
        self._metrics = metrics.Metrics(engine, names[0], clock)
        self._clock = clock
        self._wall_clock = wall_clock
        self._new_id = new_id
        self._begun = int(wall_clock())
        self._routes: MappingProxyType[str, tuple[str, Callable[[Exchange], Awaitable[None]]]] = MappingProxyType(
            {
                "/v1/chat/completions": ("POST", self._chat),
                "/v1/completions": ("POST", self._completions),
                "/v1/models": ("GET", self._list_models),
                "/tokenize": ("POST", self._tokenize),
                "/detokenize": ("POST", self._detokenize),
                "/cache": ("GET", self._show_cache),
                "/cache/reset": ("POST", self._reset),
                "/cache/pins": ("GET, POST", self._pins),
                "/health": ("GET", self._health),
                "/metrics": ("GET", self._show_metrics),
                "/version": ("GET", self._version),
            }
        )

    def pin(self, file: Path, progress: Progress) -> None:
        """Compute and pin what a file asks for; see `read_pin_file`. To be called before anybody is let in.

        Raises:
            UsageError: naming what cannot be pinned, and why.
        """
        pin_all(self._worker, read_pin_file(file, self._model), progress)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise NotImplementedError(f"no {scope['type']} here")
        exchange = Exchange(scope, receive, send)
        try:
            await self._route(exchange)
        except ClientGone:
            return
        except PrefoldError as error:
            await self._refuse(exchange, as_http_error(error))
        except RecursionError:
            await self._refuse(exchange, HttpError(400, "The body is nested too deeply", hint="nest less"))
        except Exception:  # noqa: BLE001 - the last resort: a fault of ours goes to the log, and the server goes on
            _log.exception("%s %s failed", exchange.method, shown(exchange.path))
            await self._refuse(exchange, HttpError(500, "The server failed at this request", hint="see its log"))

    async def _route(self, exchange: Exchange) -> None:
        route = self._routes.get(exchange.path)
        if route is None and exchange.path.startswith("/v1/models/"):
            route = "GET", self._show_model
        if route is None and exchange.path.startswith(_PIN):
            route = "DELETE", self._unpin
        if route is None:
            raise HttpError(404, f"There is no {shown(exchange.path)}", hint="see docs/http-api.md", code="not_found")
        method, handler = route
        if exchange.method not in method.split(", "):
            raise HttpError(
                405,
                f"{exchange.path} does not take {exchange.method}",
                hint=f"use {method.replace(', ', ' or ')}",
                code="method_not_allowed",
                headers={"allow": method},
            )
        await handler(exchange)

    async def _refuse(self, exchange: Exchange, error: HttpError) -> None:
        if exchange.started:  # a stream: its status is sent, so the error is its last event
            await exchange.send_events([error_body(error)])
            await exchange.end_events()
        else:
            await exchange.reply_json(error.status, error_body(error), error.headers)

    # Answers

    async def _chat(self, exchange: Exchange) -> None:
        arrived = self._clock()
        call = await self._parse(exchange, parse_chat)
        await self._answer(exchange, call, ChatForm, "chatcmpl", arrived)

    async def _completions(self, exchange: Exchange) -> None:
        arrived = self._clock()
        call = await self._parse(exchange, parse_completion)
        await self._answer(exchange, call, CompletionForm, "cmpl", arrived)

    async def _answer(
        self,
        exchange: Exchange,
        call: Call,
        form_type: type[ChatForm | CompletionForm],
        kind: str,
        arrived: float,
    ) -> None:
        head = Head(f"{kind}-{self._new_id()}", int(self._wall_clock()), self._model.names[0])
        form = form_type(
            head,
            self._model.tokenizer,
            logprobs=call.sampling.logprobs is not None,
            include_usage=call.include_usage,
        )
        async with self._generating(exchange, call, arrived) as generation:
            if call.stream:
                await self._stream(exchange, call, generation, form)
            else:
                await self._collect(exchange, call, generation, form)

    @asynccontextmanager
    async def _generating(self, exchange: Exchange, call: Call, arrived: float) -> AsyncIterator[Generation]:
        """A call in the engine, that is stopped when its client leaves."""
        tenant = exchange.header(TENANT_HEADER)
        generation = Generation(self._worker, call, lambda: self._metrics.meter(tenant, arrived))
        gone = asyncio.create_task(exchange.gone())
        gone.add_done_callback(lambda _: generation.cancel())
        try:
            generation.start()
            yield generation
        finally:
            generation.cancel()
            gone.cancel()

    async def _collect(self, exchange: Exchange, call: Call, generation: Generation, form: Form) -> None:
        choices = [Choice() for _ in range(len(call.prompts) * call.sampling.choices)]
        async for batch in generation.batches():
            for index, output in batch:
                choices[index].add(output)
        if self._worker.engine.options.role == "prefill":
            await generation.share(SHARE_SECONDS)
        answer = form.whole(choices, usage_object(generation.usages.values()))
        await exchange.reply_json(200, answer | _pinned(generation), _blended(generation))

    async def _stream(self, exchange: Exchange, call: Call, generation: Generation, form: Form) -> None:
        await exchange.start_events(self._blending(call))
        async for batch in generation.batches():
            await exchange.send_events(chunk for index, output in batch for chunk in form.chunks(index, output))
        if call.include_usage:
            usage = form.usage_chunk(usage_object(generation.usages.values()))
            await exchange.send_events([usage | _pinned(generation)])
        await exchange.end_events()

    def _blending(self, call: Call) -> dict[str, str]:
        """The header of a stream, which is sent before it is known whether any chunk is reused."""
        if not any(prompt.chunks for prompt in call.prompts):
            return {}
        return {BLEND_HEADER: "exact" if self._worker.engine.blend_refusal else "possible"}

    # Models and tokens

    async def _list_models(self, exchange: Exchange) -> None:
        await exchange.reply_json(200, {"object": "list", "data": [self._card()]})

    async def _show_model(self, exchange: Exchange) -> None:
        self._model.check_name(exchange.path.removeprefix("/v1/models/"))
        await exchange.reply_json(200, self._card())

    def _card(self) -> dict[str, object]:
        return {
            "id": self._model.names[0],
            "object": "model",
            "created": self._begun,
            "owned_by": "prefold",
            "max_model_len": self._model.limit,
        }

    async def _tokenize(self, exchange: Exchange) -> None:
        prompt = await self._parse(exchange, lambda fields, model: parse_prompt(fields, model, answering=True))
        reply = {"tokens": unpack(prompt.run), "count": count(prompt.run), "max_model_len": self._model.limit}
        await exchange.reply_json(200, reply)

    async def _detokenize(self, exchange: Exchange) -> None:
        text = await self._parse(
            exchange,
            lambda fields, model: model.tokenizer.decode(parse_tokens(fields, model), skip_special=False),
        )
        await exchange.reply_json(200, {"prompt": text})

    # The cache

    async def _reset(self, exchange: Exchange) -> None:
        engine = self._worker.engine
        and_tiers = await self._parse(exchange, lambda fields, _: fields.boolean("tiers"), empty_is_object=True)
        freed = {"freed_tokens": await result_of(self._worker.call(engine.reset))}
        if and_tiers:
            cleared = await result_of(self._worker.call(engine.clear_tiers))
            freed["freed_blocks"] = await result_of(cleared)
        await exchange.reply_json(200, freed)

    async def _show_cache(self, exchange: Exchange) -> None:
        engine = self._worker.engine
        await exchange.reply_json(200, await result_of(self._worker.call(lambda: cache_object(engine))))

    async def _pins(self, exchange: Exchange) -> None:
        """List pins, or add one: by way of a request that computes it, in whose last moment it is pinned."""
        if exchange.method == "GET":
            engine = self._worker.engine
            await exchange.reply_json(200, await result_of(self._worker.call(lambda: pins_object(engine))))
            return
        arrived = self._clock()
        call = await self._parse(exchange, parse_pin)
        async with self._generating(exchange, call, arrived) as generation:
            async for _ in generation.batches():
                pass
        pin = generation.pins.get(0) or EngineStopped("The prefix was not computed", hint="send it again")
        if isinstance(pin, PrefoldError):
            raise pin
        await exchange.reply_json(200, pin_object(pin))

    async def _unpin(self, exchange: Exchange) -> None:
        name = exchange.path.removeprefix(_PIN)
        pin = await result_of(self._worker.call(lambda: self._worker.engine.pins.remove(name)))
        if pin is None:
            raise HttpError(404, f"There is no pin {shown(name)}", hint="GET /cache/pins lists them", code="not_found")
        await exchange.reply_json(200, pin_object(pin))

    # The server

    async def _health(self, exchange: Exchange) -> None:
        if self._worker.failed:
            raise HttpError(503, "The engine has failed", hint="see the log and restart", code="engine_failed")
        if self.stopping:
            raise HttpError(503, "The server is stopping", hint="use another one", code="engine_stopped")
        role = self._worker.engine.options.role
        await exchange.reply_json(200, {"status": "ok", **({"role": role} if role != "both" else {})})

    async def _show_metrics(self, exchange: Exchange) -> None:
        await exchange.reply(200, self._metrics.render(), metrics.CONTENT_TYPE)

    async def _version(self, exchange: Exchange) -> None:
        await exchange.reply_json(200, {"version": __version__})

    async def _parse(
        self, exchange: Exchange, parse: Callable[[Fields, ServedModel], T], *, empty_is_object: bool = False
    ) -> T:
        """Read and parse a body, without holding up the event loop where it is large."""
        body = await exchange.body()
        if empty_is_object and not body:
            body = b"{}"
        if len(body) <= INLINE_BYTES:
            return parse(read_json(body), self._model)
        return await asyncio.to_thread(lambda: parse(read_json(body), self._model))


def _blended(generation: Generation) -> dict[str, str]:
    """The header of an answer whose request marked chunks."""
    blends = [usage.blend for usage in generation.usages.values() if usage.blend is not None]
    if not blends:
        return {}
    return {BLEND_HEADER: "exact" if all(blend.is_exact for blend in blends) else "approximate"}


def _pinned(generation: Generation) -> dict[str, Any]:
    """What an answer says of the wishes to pin that came with its request."""
    return {"prefold_pins": outcomes(generation.pins)} if generation.pins else {}
