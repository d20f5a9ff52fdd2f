"""The gateway as a raw ASGI application. `_answer` is the life of a request, from top to bottom."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from prefold import __version__
from prefold.errors import InvalidRequest, PrefoldError
from prefold.gateway.budgets import estimated_tokens
from prefold.gateway.call import Api, Call
from prefold.gateway.departure import Departures, UntilClientLeaves
from prefold.gateway.followed_answer import FollowedAnswer
from prefold.gateway.isolation import check_references
from prefold.gateway.meaning_pages import ANSWERS, report_wrong
from prefold.gateway.meter import TOLD, CallMeter, Outcome
from prefold.gateway.operator import OperatorPages
from prefold.gateway.parts import Parts
from prefold.gateway.translate import errors
from prefold.gateway.uniform import Held, Turn
from prefold.gateway.upstream import Answer, Headers, UpstreamFailed
from prefold.responses.cache import Reply, Source
from prefold.responses.flights import Fetch
from prefold.server.asgi import ClientGone, Exchange, HttpError, Receive, Scope, Send
from prefold.server.fields import shown
from prefold.server.openai_responses import as_http_error, error_body

_log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_EXPLAIN = b"x-prefold-explain"
_SESSION = b"x-prefold-session"
_REQUEST_ID = b"x-prefold-request-id"
_BLANK = b" " * 8
_MODEL = "/v1/models/"
_EVENT_STREAM = b"text/event-stream"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_BUSY = frozenset({429, 500, 502, 503, 504, 529})
"""Statuses with which a replica says that another one may do better."""


class GatewayApp:
    """One address in front of every model.

    Args:
        parts: see `Parts`.
        clock: monotonic seconds.
        new_id: makes ids of requests.

    Attributes:
        parts: may be replaced between requests.
        stopping: set when the gateway is going down; `/health` then says so, and nobody is let in.
    """

    def __init__(self, parts: Parts, *, clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        self.parts = parts
        self.stopping = False
        self._clock = clock
        self._new_id = new_id
        self._apis = MappingProxyType({api.value: api for api in Api})
        self._pages: MappingProxyType[str, Callable[[Exchange], Awaitable[None]]] = MappingProxyType(
            {"/v1/models": self._models, "/health": self._health, "/version": self._version}
        )
        self._operator = OperatorPages(lambda: self.parts)
        self._departures = Departures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise NotImplementedError(f"no {scope['type']} here")
        api = self._apis.get(scope["path"])
        if api is None and self.parts.config.access.by == "open" and self._operator.has(scope["path"]):
            await self._operator(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        try:
            if api is not None:
                _check_method(exchange, "POST")
                await self._answer(exchange, api)
            else:
                await self._show(exchange)
        except ClientGone:
            return
        except PrefoldError as error:
            await self._refuse(exchange, api, _refusal(error))
        except RecursionError:
            await self._refuse(exchange, api, HttpError(400, "The body is nested too deeply", hint="nest less"))
        except Exception:  # noqa: BLE001 - the last resort: a fault of ours goes to the log, and the gateway goes on
            _log.exception("%s %s failed", exchange.method, shown(exchange.path))
            await self._refuse(exchange, api, HttpError(500, "The gateway failed at this request", hint="see its log"))

    async def _answer(self, exchange: Exchange, api: Api) -> None:
        """The life of a request: parse, who, budget, canonicalise, look up, route, send, stream, meter."""
        parts = self.parts
        arrived = self._clock()
        request_id = self._new_id()
        try:
            call = await _parse(exchange, api, parts)
            if self.stopping:
                raise _stopping()
        except PrefoldError as error:
            parts.metering.call(api, "", "").end(_refusal(error).status, Outcome.REFUSED)
            raise
        headers, tenant, body = call.headers, call.tenant, call.body
        meter = parts.metering.call(
            api, call.model, tenant.name, session=call.session, request_id=request_id, body=body
        )
        status, outcome, source = 0, Outcome.REFUSED, Source.OFF
        is_taken = False
        try:
            check_references(call)
            await parts.budgets.take(tenant, call.estimate)
            is_taken = True
            await parts.canonical.apply(call)
            if _EXPLAIN in headers:
                await self._explain(exchange, call)
                status, outcome = 200, Outcome.EXPLAINED
                return
            key = parts.answers.key(call.path, call.fields, call.body, tenant.name, headers)
            source = parts.answers.source_of(key)
            with UntilClientLeaves(exchange, self._departures):
                async with (
                    parts.uniform.turn(call, arrived) as turn,
                    parts.answers.reply(key, self._finding(parts, call, meter, turn, source)) as reply,
                ):
                    source, status, outcome = reply.source, reply.status, Outcome.FAILED
                    held = await turn.hold(reply)
                    await self._relay(exchange, call, reply, held, meter, request_id)
                    outcome = Outcome.DONE
        except ClientGone:
            outcome = Outcome.CLIENT_GONE
            raise
        except PrefoldError as error:
            status = status if exchange.started else _refusal(error).status
            outcome = Outcome.FAILED if isinstance(error, UpstreamFailed) else outcome
            raise
        finally:
            meter.end(status, outcome, source.value)
            if is_taken:
                await _settle(parts, call, meter)

    async def ask(self, call: Call, meter: CallMeter) -> Answer:
        """Ask a replica something that no client asked."""
        parts = self.parts
        return await self._fetch(parts, call, meter, parts.uniform.turn(call, self._clock()), Source.OFF)

    def _finding(self, parts: Parts, call: Call, meter: CallMeter, turn: Turn, source: Source) -> Fetch:
        """What finds an answer that is not kept for the very same request."""

        def fetch() -> Awaitable[Answer]:
            return self._fetch(parts, call, meter, turn, source)

        return fetch if parts.meaning is None else partial(parts.meaning.fetch, call, fetch)

    async def _fetch(self, parts: Parts, call: Call, meter: CallMeter, turn: Turn, source: Source) -> Answer:
        """Ask a replica. The client may leave meanwhile, and others go on waiting: see `CallMeter.ask`."""
        meter.ask()
        try:
            return await self._ask(parts, call, meter, turn, source)
        except BaseException:  # also where the client left: nobody is asked any more
            meter.asked()
            raise

    async def _ask(self, parts: Parts, call: Call, meter: CallMeter, turn: Turn, source: Source) -> Answer:
        """Route a call and send it; again elsewhere where it failed, since the client has seen nothing yet."""
        handed = turn.handed = await parts.handover.run(call, meter)
        tried: list[int] = []
        failures = 0
        failed: UpstreamFailed | None = None
        while True:
            decision = await parts.router.route(call, tried=tried)
            if decision.matched is not None:  # otherwise nobody counted
                turn.tokens = decision.tokens
            meter.sent(decision.name, decision.matched, decision.why)
            lease = parts.fleet.begin(decision.replica, decision.tokens - (decision.matched or 0), call.model)
            tried.append(decision.replica)
            parts.router.sent(decision)  # from now on others with this beginning should follow it
            try:
                answer = await parts.dispatcher.ask(call, lease.table, lease.upstream)
            except UpstreamFailed as error:
                lease.failed(is_unreachable=error.is_safe)
                _log.warning("%s gave no answer: %s", decision.name, error.message)
                failed = error
                failures += 1
                if not _may_go_elsewhere(parts, call, tried, failures):
                    raise
                continue
            except (HttpError, InvalidRequest):
                # Nothing was sent: this one lacks the endpoint, its API has no words for the call, or it would not keep
                # the tenant apart. Another one may do better; what the client is told must not depend on the order.
                lease.left()
                if parts.router.has_others(call, tried):
                    continue
                if failed is not None:
                    raise failed from None
                raise
            except BaseException:  # the client left, or a fault: either way nothing runs there any more
                lease.left()
                raise
            if answer.status not in _BUSY or not _may_go_elsewhere(parts, call, tried, failures + 1):
                settle = partial(_settle, parts, call, meter)
                return FollowedAnswer(answer, decision, lease, meter, source, settle, handed)
            failed = UpstreamFailed(f"{decision.name} answered {answer.status}")
            failures += 1
            lease.answered(answer.status, dict(answer.headers))
            await answer.close()

    async def _relay(
        self, exchange: Exchange, call: Call, reply: Reply, held: Held, meter: CallMeter, request_id: str
    ) -> None:
        """Pass an answer on."""
        ours: Headers = [(b"x-prefold-cache", reply.source.encode()), (_REQUEST_ID, request_id.encode())]
        is_told = reply.source.value in TOLD  # what was fetched is metered where it comes in
        last = b""
        await exchange.begin(reply.status, [*held.headers, *ours])
        try:
            async for chunk in held.chunks:
                if is_told:
                    meter.first_byte()
                    meter.chunk(chunk)
                last = chunk
                await exchange.write(chunk)
        except UpstreamFailed as error:
            is_stream = dict(held.headers).get(b"content-type", b"").startswith(_EVENT_STREAM)
            if not is_stream or (last and not last.endswith(_EVENT_ENDS)):
                raise  # behind half an event nobody could read another one
            await exchange.finish(_last_event(call.api, _refusal(error)))
            raise
        await exchange.finish()

    async def _explain(self, exchange: Exchange, call: Call) -> None:
        """Say where a call would go, and call nobody.

        Where times must not tell what is cached, this must not either.
        """
        if call.tenant.group.ttft == "uniform":
            raise HttpError(403, "Decisions are not shown here", hint="they would say what is cached", code="forbidden")
        decision = await self.parts.router.route(call, is_explained=True)
        meaning = await self.parts.meaning.explain(call) if self.parts.meaning is not None else None
        prefill = await self.parts.handover.explain(call)
        await exchange.reply_json(
            200,
            {
                "replica": decision.name,
                "reason": decision.why.value,
                "tokens": decision.tokens,
                "matched_tokens": decision.matched,
                "tenant": call.tenant.name,
                "isolation": call.tenant.group.isolation.value,
                "transforms": call.fired,
                "candidates": [self.parts.fleet.loads[index].name for index in self.parts.router.allowed(call)],
                **({"prefill": prefill} if prefill is not None else {}),
                **({"meaning": meaning} if meaning is not None else {}),
            },
        )

    # Pages

    async def _show(self, exchange: Exchange) -> None:
        if exchange.path.startswith(ANSWERS):
            tenant = self.parts.access.tenant_of(_headers_of(exchange))
            await report_wrong(exchange, self.parts.meaning, tenant.name)
            return
        page = self._model if exchange.path.startswith(_MODEL) else self._pages.get(exchange.path)
        if page is None:
            raise HttpError(404, f"There is no {shown(exchange.path)}", hint="see docs/gateway.md", code="not_found")
        _check_method(exchange, "GET")
        await page(exchange)

    async def _models(self, exchange: Exchange) -> None:
        await exchange.reply_json(200, {"object": "list", "data": [*map(_card, self._names(exchange))]})

    async def _model(self, exchange: Exchange) -> None:
        name = exchange.path.removeprefix(_MODEL)
        if name not in self._names(exchange):
            raise HttpError(
                404,
                f"There is no model {shown(name)}",
                hint="see /v1/models for those that there are",
                code="model_not_found",
                param="model",
            )
        await exchange.reply_json(200, _card(name))

    def _names(self, exchange: Exchange) -> list[str]:
        """The models that a client may ask for."""
        tenant = self.parts.access.tenant_of(_headers_of(exchange))
        return self.parts.fleet.models(tenant.group)

    async def _health(self, exchange: Exchange) -> None:
        if self.stopping:
            raise _stopping()
        await exchange.reply_json(200, {"status": "ok"})

    async def _version(self, exchange: Exchange) -> None:
        await exchange.reply_json(200, {"version": __version__})

    async def _refuse(self, exchange: Exchange, api: Api | None, error: HttpError) -> None:
        if exchange.started:  # its status is sent: the server now ends the connection before the answer does, so that
            return  # nobody takes it for whole
        body = errors.to_anthropic(error.status, error_body(error)) if api and api.is_anthropic else error_body(error)
        await exchange.reply_json(error.status, body, error.headers)


async def _settle(parts: Parts, call: Call, meter: CallMeter) -> None:
    """Put a tenant's budget right, once it is known what a call used."""
    if (used := meter.tokens(call.estimate)) is not None:
        await parts.budgets.settle(call.tenant, call.estimate, used)


def _may_go_elsewhere(parts: Parts, call: Call, tried: list[int], failures: int) -> bool:
    """Whether a call that failed so often may be tried again."""
    return failures <= parts.config.upstream.retries and parts.router.has_others(call, tried)


def _card(name: str) -> dict[str, Any]:
    """A model, as it is listed."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "prefold"}


def _stopping() -> HttpError:
    headers = {"connection": "close", "retry-after": "1"}
    return HttpError(503, "The gateway is stopping", hint="use another one", code="stopping", headers=headers)


def _check_method(exchange: Exchange, method: str) -> None:
    if exchange.method != method:
        raise HttpError(
            405,
            f"{exchange.path} does not take {exchange.method}",
            hint=f"use {method}",
            code="method_not_allowed",
            headers={"allow": method},
        )


async def _parse(exchange: Exchange, api: Api, parts: Parts) -> Call:
    """Who sends what."""
    headers = _headers_of(exchange)
    tenant = parts.access.tenant_of(headers)
    body = await exchange.body(parts.body_limit, parts.config.server.body_seconds)
    fields = _read(body)
    return Call(
        api=api,
        body=body,
        fields=fields,
        model=_text(fields, "model"),
        stream=fields.get("stream") is True,
        tenant=tenant,
        headers=headers,
        session=_session(fields, headers),
        query=exchange.query,
        estimate=estimated_tokens(body),
    )


def _headers_of(exchange: Exchange) -> dict[bytes, bytes]:
    """The headers of a request; what stands there several times counts as a list (RFC 9110, 5.3)."""
    lines = exchange.headers
    headers = dict(lines)
    if len(headers) != len(lines):
        headers = {}
        for name, value in lines:
            between = b"; " if name == b"cookie" else b", "
            headers[name] = headers[name] + between + value if name in headers else value
    return headers


def _read(body: bytes) -> dict[str, Any]:
    try:
        try:
            return _decode(body)
        except msgspec.DecodeError:
            return _decode(body + _BLANK)  # near its end, half a surrogate pair would be taken for an end too soon
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The body is not a JSON object: {error}", hint="send one JSON object in UTF-8") from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply", hint="send fewer lists within lists") from None


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{name} is {shown(value)}", hint="it must be a string", param=name)
    return value or ""


def _session(fields: dict[str, Any], headers: dict[bytes, bytes]) -> str:
    """What names the conversation: a header of ours, or the key that OpenAI's API has for it."""
    named = headers.get(_SESSION)
    return named.decode("latin-1") if named else _text(fields, "prompt_cache_key")


def _refusal(error: PrefoldError) -> HttpError:
    """What a client is told. Which server failed, and how, is for the log."""
    if isinstance(error, UpstreamFailed):
        return HttpError(502, error.told, hint="send this again", code="no_answer")
    return as_http_error(error)


def _last_event(api: Api, error: HttpError) -> bytes:
    """The event that tells a client that its stream broke off."""
    if api.is_anthropic:
        body = json.dumps(errors.to_anthropic(error.status, error_body(error)))
        return f"event: error\ndata: {body}\n\n".encode()
    return f"data: {json.dumps(error_body(error))}\n\n".encode()
