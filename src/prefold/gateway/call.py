"""A client's request as the gateway sees it: its bytes, and what was read from them once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prefold.gateway.config import GroupTable


class Api(StrEnum):
    """The endpoints that go to a replica, by their path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    EMBEDDINGS = "/v1/embeddings"
    MESSAGES = "/v1/messages"
    COUNT_TOKENS = "/v1/messages/count_tokens"

    @property
    def is_anthropic(self) -> bool:
        """Whether it is Anthropic's, rather than OpenAI's."""
        return self in (Api.MESSAGES, Api.COUNT_TOKENS)

    @property
    def uses_prefixes(self) -> bool:
        """Whether its prompt meets the cache of prefixes: salts keep it apart, and its time may tell what is there."""
        return self is not Api.COUNT_TOKENS

    @property
    def generates(self) -> bool:
        """Whether a model writes the answer, token by token."""
        return self not in (Api.EMBEDDINGS, Api.COUNT_TOKENS)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who sends.

    Attributes:
        name: of the tenant; "default" where nobody is asked.
        group: how it is treated.
        salt: what keeps its prefixes apart, derived from the gateway's secret; None where its group shares.
    """

    name: str
    group: GroupTable
    salt: str | None = None


@dataclass(slots=True)
class Call:
    """One request.

    Attributes:
        api: where it came in.
        body: what goes upstream: the client's own bytes, unless a transform made others.
        fields: the body as JSON.
        model: the name that the client sent.
        stream: whether events are asked for.
        tenant: who sends it.
        headers: the client's, in lower case, as they came.
        session: what names the conversation; empty for none.
        query: what stood behind the path's question mark.
        fired: names of the transforms that changed the body.
        estimate: tokens of what came, before anybody has counted them.
    """

    api: Api
    body: bytes
    fields: Mapping[str, Any]
    model: str
    stream: bool
    tenant: Tenant
    headers: Mapping[bytes, bytes]
    session: str = ""
    query: bytes = b""
    fired: list[str] = field(default_factory=list)
    estimate: int = 0

    @property
    def path(self) -> str:
        """Where it goes upstream: the endpoint, and the query as it came."""
        return f"{self.api}?{self.query.decode('latin-1')}" if self.query else self.api
