"""Pages for who runs the gateway: metrics, replicas, configuration. Tenants must not see each other's names in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from types import MappingProxyType

from prefold.errors import PrefoldError
from prefold.gateway import meaning_pages
from prefold.gateway.meter import CONTENT_TYPE
from prefold.gateway.parts import Parts
from prefold.server.asgi import App, ClientGone, Exchange, HttpError, Receive, Scope, Send
from prefold.server.fields import read_json, shown
from prefold.server.openai_responses import as_http_error, error_body

_LONGEST_BODY = 1 << 16
_CACHE = "/cache"
"""Begins the paths of the embedded engine's cache, which are for the operator alone."""


class OperatorPages:
    """An ASGI application.

    Args:
        parts: gives the gateway's parts, those of now.
    """

    def __init__(self, parts: Callable[[], Parts]) -> None:
        self._parts = parts
        self._pages: MappingProxyType[str, Callable[[Exchange], Awaitable[None]]] = MappingProxyType(
            {
                "/metrics": self._metrics,
                "/prefold/replicas": self._replicas,
                "/prefold/config": self._config,
                "/prefold/verify": self._verify,
            }
        )

    def has(self, path: str) -> bool:
        """Whether there is a page."""
        return path in self._pages or _is_about_answers(path) or self._engine_for(path) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        engine = self._engine_for(scope["path"])
        if engine is not None:
            await engine(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        try:
            page = self._answers if _is_about_answers(exchange.path) else self._pages.get(exchange.path)
            if page is None:
                raise HttpError(
                    404, f"There is no {shown(exchange.path)}", hint="see docs/gateway.md", code="not_found"
                )
            await page(exchange)
        except ClientGone:
            return
        except PrefoldError as error:
            refusal = as_http_error(error)
            await exchange.reply_json(refusal.status, error_body(refusal), refusal.headers)

    def _engine_for(self, path: str) -> App | None:
        """The embedded engine, for what it says of its cache and lets be done to it."""
        return self._parts().engine if path == _CACHE or path.startswith(f"{_CACHE}/") else None

    async def _metrics(self, exchange: Exchange) -> None:
        await exchange.reply(200, self._parts().metering.render(), CONTENT_TYPE)

    async def _replicas(self, exchange: Exchange) -> None:
        parts = self._parts()
        answers, knowledge = parts.answers, parts.knowledge
        view = [
            {
                **replica,
                "trust": knowledge.trust(replica["index"]),
                "blocks": knowledge.index.blocks_of(replica["index"]),
                "caches": parts.verifier.caches(replica["name"]),
            }
            for replica in parts.fleet.as_json()
        ]
        await exchange.reply_json(
            200,
            {
                "replicas": view,
                "index_blocks": knowledge.index.size,
                "answers": {"mode": answers.mode.value, "repeat_rate": answers.repeats.rate},
            },
        )

    async def _answers(self, exchange: Exchange) -> None:
        await meaning_pages.show(exchange, self._parts())

    async def _config(self, exchange: Exchange) -> None:
        await exchange.reply_json(200, self._parts().config.redacted())

    async def _verify(self, exchange: Exchange) -> None:
        """Ask engines whether they cache: one that the body names, or all of them."""
        if exchange.method != "POST":
            raise HttpError(405, "This costs two requests to an engine", hint="use POST", headers={"allow": "POST"})
        verifier = self._parts().verifier
        body = await exchange.body(_LONGEST_BODY)
        name = read_json(body).text("replica") if body else None
        if name is None:
            await verifier.verify_engines()
        elif await verifier.verify(name) is None:
            raise HttpError(404, f"There is no replica {shown(name)}", hint="GET /prefold/replicas lists them")
        outcomes = verifier.outcomes if name is None else {name: verifier.outcomes[name]}
        await exchange.reply_json(200, {replica: asdict(outcome) for replica, outcome in outcomes.items()})


def _is_about_answers(path: str) -> bool:
    return path == meaning_pages.PAGES or path.startswith(f"{meaning_pages.PAGES}/")
