"""Pages about answers by meaning: for clients, who say that one is wrong, and for whoever runs the gateway."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from prefold.gateway.parts import Parts
from prefold.responses.store import StoreFailed
from prefold.server.asgi import Exchange, HttpError
from prefold.server.fields import read_json, shown

if TYPE_CHECKING:  # it needs packages that only those have who use it
    from prefold.gateway.meaning import Meaning

_log = logging.getLogger(__name__)

ANSWERS = "/answers/"
"""Begins the paths of clients."""
PAGES = "/prefold/answers"
"""Begins the paths of the operator."""

_ID = r"(?P<entry>[0-9a-f]{32})"
_WRONG = re.compile(rf"{ANSWERS}{_ID}/wrong")
_ACT = re.compile(rf"{PAGES}/{_ID}/(?P<act>wrong|vet|share)")
_ENTRY = re.compile(rf"{PAGES}/{_ID}")
_INVALIDATE = f"{PAGES}/invalidate"
_LONGEST_BODY = 1 << 14
_LONGEST_NOTE = 500


async def report_wrong(exchange: Exchange, meaning: Meaning | None, tenant: str) -> None:
    """`POST /answers/{id}/wrong`: a client says that an answer which it was given is wrong; it is served no more.

    Raises:
        HttpError: 404 where the tenant was given none of this id.
    """
    match = _WRONG.fullmatch(exchange.path)
    if match is None:
        raise _no_page(exchange)
    _check_method(exchange, "POST")
    note = await _note(exchange)
    entry = match["entry"]
    if meaning is None or not meaning.was_given(entry, tenant):
        raise _no_answer()
    await _quarantine(exchange, meaning, entry, f"{tenant}: {note}" if note else tenant)


async def show(exchange: Exchange, parts: Parts) -> None:
    """The operator's pages, below `PAGES`.

    Raises:
        HttpError: for what is not there.
    """
    meaning, path = parts.meaning, exchange.path
    if meaning is None:
        raise HttpError(404, "No model has answers by meaning", hint="see meaning.mode", code="not_found")
    try:
        if path == PAGES:
            _check_method(exchange, "GET")
            await exchange.reply_json(200, (await meaning.report()).as_json())
        elif path == _INVALIDATE:
            _check_method(exchange, "POST")
            removed = await meaning.invalidate(_tag(exchange))
            await exchange.reply_json(200, {"removed": removed})
        elif match := _ACT.fullmatch(path):
            _check_method(exchange, "POST")
            if match["act"] == "wrong":
                await _quarantine(exchange, meaning, match["entry"], await _note(exchange))
            else:
                free = meaning.vet if match["act"] == "vet" else meaning.share
                await _done(exchange, was_there=await free(match["entry"]))
        elif match := _ENTRY.fullmatch(path):
            _check_method(exchange, "DELETE")
            await _done(exchange, was_there=await meaning.delete(match["entry"]))
        else:
            raise _no_page(exchange)
    except StoreFailed as error:
        raise _failed(error) from error


async def _quarantine(exchange: Exchange, meaning: Meaning, entry: str, note: str) -> None:
    try:
        was_there = await meaning.quarantine(entry, note)
    except StoreFailed as error:
        raise _failed(error) from error
    await _done(exchange, was_there=was_there)


async def _done(exchange: Exchange, *, was_there: bool) -> None:
    if not was_there:
        raise _no_answer()
    await exchange.begin(204, [])
    await exchange.finish()


async def _note(exchange: Exchange) -> str:
    body = await exchange.body(_LONGEST_BODY)
    return (read_json(body).text("note") or "")[:_LONGEST_NOTE] if body else ""


def _tag(exchange: Exchange) -> str:
    tags = parse_qs(exchange.query.decode("latin-1")).get("tag", [])
    if len(tags) != 1:
        raise HttpError(400, "It is not said what to invalidate", hint="put one ?tag=NAME behind the path")
    return tags[0]


def _check_method(exchange: Exchange, method: str) -> None:
    if exchange.method != method:
        raise HttpError(405, f"This does not take {exchange.method}", hint=f"use {method}", headers={"allow": method})


def _no_page(exchange: Exchange) -> HttpError:
    return HttpError(404, f"There is no {shown(exchange.path)}", hint="see docs/gateway-meaning.md", code="not_found")


def _no_answer() -> HttpError:
    return HttpError(404, "There is no such answer", hint="its id is in x-prefold-entry", code="not_found")


def _failed(error: StoreFailed) -> HttpError:
    _log.warning("An act on answers by meaning failed: %s", error.message)
    return HttpError(503, "The store failed", hint="try again", code="store_failed", headers={"retry-after": "1"})
