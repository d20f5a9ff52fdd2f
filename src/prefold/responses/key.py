"""The key of an exact answer: a hash of everything in a request that may change what is answered.

Every field of the body counts but those of a short list that are known to change nothing, so that a field nobody here
has heard of (`guided_json`, `cache_salt`, whatever comes next) keeps answers apart. Values count byte for byte; the
order of the top-level fields and the white space between them do not. Requests whose answer depends on anything but
themselves have no key: what is uncertain is a miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import msgspec

_VERSION = b"prefold answer 2"

_CHAT = "/v1/chat/completions"
_COMPLETIONS = "/v1/completions"
_RESPONSES = "/v1/responses"
_EMBEDDINGS = "/v1/embeddings"
_MESSAGES = "/v1/messages"
_COUNT_TOKENS = "/v1/messages/count_tokens"

_WITHOUT_CHANCE = frozenset((_EMBEDDINGS, _COUNT_TOKENS))

_CALLER = frozenset(("user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention"))
_IGNORED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        _CHAT: _CALLER,
        _COMPLETIONS: _CALLER,
        _EMBEDDINGS: _CALLER,
        _MESSAGES: frozenset(("metadata",)),
        _COUNT_TOKENS: frozenset(),
        # Its answers repeat the caller's fields, so that every one of them counts.
        _RESPONSES: frozenset(),
    }
)
"""Fields that change nothing in an answer: who asks, and where the provider's own prefix cache should look."""

_OUTSIDE = (
    "store",  # asks the provider to keep the answer
    "background",
    "previous_response_id",
    "conversation",
    "web_search_options",
    "search_parameters",
    "plugins",
    "mcp_servers",
    "container",
)
"""Fields that bring in, or leave behind, something outside the request."""

_OWN_TOOLS = ("function", "custom", "bash_", "text_editor_", "computer_", "memory_")
"""Types of tools that the client runs, or how they begin; others are run by the provider and look at the world."""

_NAMING = (b'url"', b'uri"', b'file_id"')
"""Ends of the names of members that name an image or file."""

_HEADERS = (b"anthropic-version", b"anthropic-beta", b"openai-beta", b"openai-organization", b"openai-project")
_NAMELESS = frozenset(
    (
        b"accept",
        b"accept-charset",
        b"accept-encoding",
        b"accept-language",
        b"b3",
        b"baggage",
        b"cache-control",
        b"cf-ray",
        b"connection",
        b"content-length",
        b"content-type",
        b"date",
        b"expect",
        b"host",
        b"idempotency-key",
        b"keep-alive",
        b"pragma",
        b"priority",
        b"te",
        b"traceparent",
        b"tracestate",
        b"transfer-encoding",
        b"user-agent",
        b"via",
        b"x-amzn-trace-id",
        b"x-client-request-id",
        b"x-cloud-trace-context",
        b"x-correlation-id",
        b"x-request-id",
    )
)
"""Headers that name nobody. Any other may be somebody's credentials: `authorization`, `api-key`, a cookie, or one that
a server made up."""
_NAMELESS_PREFIXES = (b"x-stainless-", b"x-prefold-", b"x-b3-", b"x-datadog-")  # of SDKs, ours, and of traces

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def answer_key(
    api: str,
    fields: Mapping[str, Any],
    body: bytes,
    tenant_scope: str,
    headers: Mapping[bytes, bytes] = MappingProxyType({}),
    *,
    by_credentials: bool = True,
    every_request: bool = False,
) -> bytes | None:
    """The key under which a request's answer may be kept, 32 bytes; None where it may not.

    Args:
        api: path of the endpoint, with the query where there is one.
        fields: the body as JSON.
        body: the same as it came, or as it was canonicalised.
        tenant_scope: who may be given the answer: the tenant's name.
        headers: the request's, in lower case. Those count that choose a version of the API or an account.
        by_credentials: whether clients with different credentials are kept apart though their scope is the same, as
            they must be where the upstream is the one that checks them. Then every header counts that is not known to
            name nobody.
        every_request: whether requests are kept whose answer is left to chance.
    """
    path = api.partition("?")[0]
    if path not in _IGNORED:
        return None
    if not (every_request or path in _WITHOUT_CHANCE or _is_deterministic(fields)):
        return None
    if not _stands_alone(path, fields, body):
        return None
    try:
        members = _MEMBERS.decode(body)
    except (msgspec.DecodeError, RecursionError):  # half a surrogate pair, for example
        return None
    digest = sha256(_VERSION)
    names = sorted(filter(_may_name, headers)) if by_credentials else [name for name in _HEADERS if name in headers]
    # Each part is preceded by its length, so that no two lists of parts look alike.
    for part in (
        api.encode(),
        tenant_scope.encode("utf-8", "surrogatepass"),
        str(len(names)).encode(),
        *(part for name in names for part in (name, headers[name])),
    ):
        digest.update(len(part).to_bytes(8, "little") + part)
    for name in sorted(members.keys() - _IGNORED[path]):
        for part in (name.encode(), bytes(members[name])):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _may_name(header: bytes) -> bool:
    """Whether a header may say whose a request is, or which version of the API it wants."""
    return header not in _NAMELESS and not header.startswith(_NAMELESS_PREFIXES)


def _is_deterministic(fields: Mapping[str, Any]) -> bool:
    """Whether the same request gets the same answer: one answer, with temperature 0 or a seed.

    A temperature that is left out is the server's, which is 1 nearly everywhere.
    """
    temperature, seed = fields.get("temperature"), fields.get("seed")
    is_greedy = type(temperature) in (int, float) and temperature == 0
    return (is_greedy or type(seed) is int) and all(fields.get(name) in (None, 1) for name in ("n", "best_of"))


def _stands_alone(path: str, fields: Mapping[str, Any], body: bytes) -> bool:
    """Whether the request is all that the answer depends on, and the answer all that it leaves behind."""
    if path == _RESPONSES and fields.get("store") is not False:  # stored unless told otherwise
        return False
    if any(fields.get(name) for name in _OUTSIDE) or isinstance(fields.get("prompt"), dict):  # a template kept there
        return False
    tools = fields.get("tools") or ()
    if not isinstance(tools, list | tuple) or not all(map(_is_own_tool, tools)):
        return False
    # Hundreds of messages take 0.3 ms to walk through; most bodies cannot name anything.
    if not any(name in body for name in _NAMING):
        return True
    return not any(_points_outside(fields.get(name)) for name in ("messages", "system", "input"))


def _is_own_tool(tool: object) -> bool:
    kind = tool.get("type") if isinstance(tool, Mapping) else ""
    return kind is None or (isinstance(kind, str) and kind.startswith(_OWN_TOOLS))


def _points_outside(value: object) -> bool:
    """Whether there is an image or file in it that is named rather than sent along."""
    if isinstance(value, list):
        return any(_points_outside(item) for item in value if isinstance(item, dict | list))
    if not isinstance(value, dict) or value.get("type") == "tool_use":  # its input is text to the model
        return False
    for name, item in value.items():
        if isinstance(item, dict | list):
            if _points_outside(item):
                return True
        elif isinstance(item, str) and (
            name.endswith("file_id") or (name.endswith(("url", "uri")) and not item.startswith("data:"))
        ):
            return True
    return False
