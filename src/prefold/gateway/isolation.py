"""How a tenant's salt reaches the engine, and what may be shared with others.

vLLM, SGLang and prefold's own engine take a salt in the body's field `cache_salt`: prefixes are shared only by requests
with the same one. prefold also takes the message from which on it counts. The salt is put into the bytes of the body,
which otherwise stay as the client wrote them.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import common_prefix
from prefold.errors import InvalidRequest, InvalidSalt
from prefold.gateway.call import Api, Call
from prefold.gateway.config import Isolation, Kind
from prefold.gateway.prompt_tokens import PromptTokens
from prefold.gateway.responses_prompt import ELSEWHERE
from prefold.server.asgi import HttpError
from prefold.server.fields import Fields

_SALT = "cache_salt"
_SALT_FROM = "cache_salt_from"
_CLIENT_SALT_LABEL = "prefold/client-salt/1"
_CLIENT_ID_LABEL = "prefold/client-id/1"
_IDS = ("rid", "request_id")
"""Ids of a request that a client may choose (SGLang's, vLLM's). Engines find running requests and answers by them."""

_HELD = ("kv_transfer_params", "session_params", "bootstrap_host", "bootstrap_port", "bootstrap_room")
"""Fields that name what an engine holds, or fetches: blocks and sessions, whosever they are (vLLM, SGLang)."""

_ITEM_REFERENCE = "item_reference"
_SYSTEM_ROLES = frozenset({"system", "developer"})

# SGLang's /v1/messages drops the field without a word (0.5.23); vLLM's has it since July 2026.
_SALTED_APIS: Mapping[Kind, frozenset[Api]] = MappingProxyType(
    {
        Kind.PREFOLD: frozenset({Api.CHAT, Api.COMPLETIONS}),
        Kind.VLLM: frozenset({Api.CHAT, Api.COMPLETIONS, Api.RESPONSES, Api.EMBEDDINGS, Api.MESSAGES}),
        Kind.SGLANG: frozenset({Api.CHAT, Api.COMPLETIONS, Api.RESPONSES}),
    }
)

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_scan_value: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode


def takes_salt(kind: Kind, api: Api | None = None) -> bool:
    """Whether replicas of a kind keep apart what comes with different salts, at one endpoint or at any."""
    apis = _SALTED_APIS.get(kind, frozenset())
    return bool(apis) if api is None else api in apis


def effective_salt(call: Call) -> str | None:
    """The salt that a call's prefixes are kept under; None where they are shared.

    A client's own salt divides what its tenant has. It never reaches what belongs to others, since it is only a message
    under the tenant's salt as the key. Where tenants share, it goes upstream as it is.

    Raises:
        InvalidRequest: if the client's salt is not a string.
    """
    own = Fields(call.fields).text(_SALT) if _SALT in call.fields else None
    tenants = call.tenant.salt
    if own is None or tenants is None:
        return tenants if own is None else own
    message = f"{_CLIENT_SALT_LABEL}\0{own}".encode("utf-8", "surrogatepass")
    return hmac.digest(tenants.encode(), message, sha256).hex()


def shared_messages(call: Call) -> int:
    """How many messages at the beginning of a call lie before its salt: those of the system, where they are shared."""
    if call.tenant.group.isolation is not Isolation.SHARED_SYSTEM or call.api is not Api.CHAT:
        return 0
    messages = call.fields.get("messages")
    if not isinstance(messages, list):
        return 0
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _SYSTEM_ROLES:
            return index
    return len(messages)


def check_references(call: Call) -> None:
    """Refuse a call that names what may be another tenant's, where tenants are apart: engines do not ask whose it is.

    Raises:
        InvalidRequest: naming the field.
    """
    if call.tenant.salt is None or call.tenant.group.isolation is Isolation.DEDICATED:
        return
    found = next((name for name in _references(call.api) if call.fields.get(name) is not None), None)
    if found is None and call.api is Api.RESPONSES and isinstance(items := call.fields.get("input"), list):
        found = "input" if any(map(_is_reference, items)) else None
    if found is not None:
        raise InvalidRequest(
            f"{found} names what a server holds, and servers do not keep that apart for tenants",
            hint="send the whole conversation in each request",
            param=found,
        )


def _references(api: Api) -> tuple[str, ...]:
    return _HELD + ELSEWHERE if api is Api.RESPONSES else _HELD


def _is_reference(item: object) -> bool:
    """Whether an item of a response's input is one that is elsewhere; such an item may leave its type out."""
    return isinstance(item, dict) and item.get("type", "role" in item or _ITEM_REFERENCE) == _ITEM_REFERENCE


async def routing_scope(call: Call, tokens: PromptTokens, adapter: str = "") -> Scope:
    """Who may share a call's prefixes, for the keys of a routing index.

    Args:
        call: the call.
        tokens: what tokenises its prompt.
        adapter: the LoRA adapter that it asks for, as events name it; empty for none.

    Raises:
        InvalidRequest: if the client's salt is not a string.
    """
    salt = effective_salt(call)
    shared = Scope(namespace=adapter) if adapter else SHARED
    if salt is None:
        return shared
    begin: object = {"message": shared_messages(call)}
    if call.tenant.salt is None:
        begin = call.fields.get(_SALT_FROM)
    try:
        return Scope(salt, await _tokens_before(begin, call, tokens), adapter)
    except InvalidSalt:  # the client's own, which the engine will refuse
        return shared


async def _tokens_before(begin: object, call: Call, tokens: PromptTokens) -> int:
    """Tokens of the prompt that lie before its salt, as prefold's engine counts them."""
    match begin:
        case int():
            return begin
        case {"message": int(until)} if until > 0 and isinstance(call.fields.get("messages"), list):
            first = {**call.fields, "messages": call.fields["messages"][:until], "add_generation_prompt": False}
            shared, run = await tokens.run(replace(call, fields=first)), await tokens.run(call)
            return common_prefix(shared, run) if shared is not None and run is not None else 0
        case _:
            return 0


def with_salt(call: Call, kind: Kind) -> bytes:
    """The body of a call with the salt that keeps its tenant apart; untouched where its group shares.

    Args:
        call: the call, whose `fields` are what its `body` says.
        kind: of the replica that it goes to.

    Raises:
        InvalidRequest: if the client's salt is not a string.
        HttpError: 503 if such a replica would mix what the tenant has with what others have.
    """
    group = call.tenant.group
    if call.tenant.salt is None or not call.api.uses_prefixes:
        return call.body
    if not takes_salt(kind, call.api):
        if group.isolation is Isolation.DEDICATED:
            return call.body
        raise HttpError(
            503,
            f"No server here keeps tenants apart at {call.api.value}",
            hint="use another endpoint, or ask the gateway's operator",
        )
    values: dict[str, Any] = {_SALT: effective_salt(call)}
    if kind is Kind.PREFOLD:
        shared = shared_messages(call)
        if shared:
            values[_SALT_FROM] = {"message": shared}
        elif _SALT_FROM in call.fields:
            values[_SALT_FROM] = None  # the client's own would share what its group does not
    values |= {name: _own_ids(call.fields[name], call.tenant.salt) for name in _IDS if name in call.fields}
    if group.isolation is not Isolation.DEDICATED:  # null as `check_references` saw it; a second one might not be
        values |= dict.fromkeys(call.fields.keys() & _references(call.api))
    return _with_fields(call.body, call.fields, values)


def _own_ids(ids: object, salt: str) -> object:
    """A client's ids, of the tenant's own: nobody else can name the same. What is no text is left for the engine."""
    match ids:
        case str():
            message = f"{_CLIENT_ID_LABEL}\0{ids}".encode("utf-8", "surrogatepass")
            return hmac.digest(salt.encode(), message, sha256).hex()
        case list():
            return [_own_ids(each, salt) for each in ids]
        case _:
            return ids


def _with_fields(body: bytes, fields: Mapping[str, Any], values: Mapping[str, Any]) -> bytes:
    """A JSON object with fields set; every other byte stays.

    Values that are there are replaced where they stand, all of them where a key is there twice, since parsers differ in
    which one they take. New fields come first.

    Args:
        body: the object, in valid UTF-8.
        fields: what it says.
        values: the fields to set.
    """
    written = {name: json.dumps(value, separators=(",", ":")) for name, value in values.items()}
    if any(name in fields for name in written):
        text = body.decode()
        parts: list[str] = []
        rest = 0
        for key, start, end in _members(text):
            if key in written:
                parts += text[rest:start], written[key]
                rest = end
        body = "".join([*parts, text[rest:]]).encode()
    new = ",".join(f'"{name}":{value}' for name, value in written.items() if name not in fields)
    if not new:
        return body
    front = body.index(b"{") + 1
    return b"".join((body[:front], new.encode(), b"," if fields else b"", body[front:]))


def _members(text: str) -> Iterator[tuple[str, int, int]]:
    """The members of a JSON object: key, first character of the value, and the one after it."""
    position = _skip(text, text.index("{") + 1)
    while text[position] != "}":
        key, position = _scan_value(text, position)
        start = _skip(text, _skip(text, position) + 1)  # over the colon
        _, end = _scan_value(text, start)
        yield key, start, end
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    """The next character that is not white space."""
    match = _WHITESPACE.match(text, position)
    return match.end() if match else position
