"""The server's endpoints: a raw ASGI callable over an engine's worker."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

from prefold import __version__
from prefold.core.cache import Pin
from prefold.core.tokens import count, unpack
from prefold.engine.request import SamplingOptions
from prefold.engine.worker import EngineWorker
from prefold.errors import CapacityError, PrefoldError
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

_log = logging.getLogger(__name__)

T = TypeVar("T")

TENANT_HEADER = "x-prefold-tenant"

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
        self._pins: dict[str, Pin[Any]] = {}
        self._routes: MappingProxyType[str, tuple[str, Callable[[Exchange], Awaitable[None]]]] = MappingProxyType(
            {
                "/v1/chat/completions": ("POST", self._chat),
                "/v1/completions": ("POST", self._completions),
                "/v1/models": ("GET", self._list_models),
                "/tokenize": ("POST", self._tokenize),
                "/detokenize": ("POST", self._detokenize),
                "/cache/reset": ("POST", self._reset),
                "/cache/pin": ("POST", self._pin),
                "/cache/unpin": ("POST", self._unpin),
                "/health": ("GET", self._health),
                "/metrics": ("GET", self._show_metrics),
                "/version": ("GET", self._version),
            }
        )

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
        if route is None:
            raise HttpError(404, f"There is no {shown(exchange.path)}", hint="see docs/http-api.md", code="not_found")
        method, handler = route
        if exchange.method != method:
            raise HttpError(
                405,
                f"{exchange.path} does not take {exchange.method}",
                hint=f"use {method}",
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
        await exchange.reply_json(200, form.whole(choices, usage_object(generation.usages.values())))

    async def _stream(self, exchange: Exchange, call: Call, generation: Generation, form: Form) -> None:
        await exchange.start_events()
        async for batch in generation.batches():
            await exchange.send_events(chunk for index, output in batch for chunk in form.chunks(index, output))
        if call.include_usage:
            await exchange.send_events([form.usage_chunk(usage_object(generation.usages.values()))])
        await exchange.end_events()

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
        freed = await result_of(self._worker.call(self._worker.engine.reset))
        await exchange.reply_json(200, {"freed_tokens": freed})

    async def _pin(self, exchange: Exchange) -> None:
        arrived = self._clock()
        prompt = await self._parse(exchange, lambda fields, model: parse_prompt(fields, model, answering=False))
        call = Call((prompt,), SamplingOptions(max_tokens=1), stream=False, include_usage=False)
        async with self._generating(exchange, call, arrived) as generation:
            async for _ in generation.batches():
                pass
        engine = self._worker.engine
        pinned = await result_of(self._worker.call(lambda: engine.pin(prompt.run, prompt.scope)))
        if pinned.length < count(prompt.run):
            await result_of(self._worker.call(lambda: engine.unpin(pinned)))
            raise CapacityError("The prefix was evicted before it could be pinned", hint="try again")
        name = f"pin-{self._new_id()}"
        self._pins[name] = pinned
        await exchange.reply_json(200, {"id": name, "tokens": pinned.length})

    async def _unpin(self, exchange: Exchange) -> None:
        name = await self._parse(exchange, lambda fields, _: fields.text("id"))
        pinned = self._pins.pop(name, None) if name is not None else None
        if pinned is None:
            raise HttpError(
                404,
                f"There is no pin {shown(name)}",
                hint="use the id that /cache/pin gave",
                param="id",
                code="not_found",
            )
        await result_of(self._worker.call(lambda: self._worker.engine.unpin(pinned)))
        await exchange.reply_json(200, {"id": name, "tokens": pinned.length})

    # The server

    async def _health(self, exchange: Exchange) -> None:
        if self._worker.failed:
            raise HttpError(503, "The engine has failed", hint="see the log and restart", code="engine_failed")
        if self.stopping:
            raise HttpError(503, "The server is stopping", hint="use another one", code="engine_stopped")
        await exchange.reply_json(200, {"status": "ok"})

    async def _show_metrics(self, exchange: Exchange) -> None:
        await exchange.reply(200, self._metrics.render(), metrics.CONTENT_TYPE)

    async def _version(self, exchange: Exchange) -> None:
        await exchange.reply_json(200, {"version": __version__})

    async def _parse(self, exchange: Exchange, parse: Callable[[Fields, ServedModel], T]) -> T:
        """Read and parse a body, without holding up the event loop where it is large."""
        body = await exchange.body()
        if len(body) <= INLINE_BYTES:
            return parse(read_json(body), self._model)
        return await asyncio.to_thread(lambda: parse(read_json(body), self._model))
