"""From a call to the replica that should serve it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from prefold.core.routing import Ask, Choice, Why, make
from prefold.core.tokens import count
from prefold.errors import InvalidRequest
from prefold.gateway.call import Api, Call
from prefold.gateway.config import Kind, RoutingOptions
from prefold.gateway.isolation import effective_salt, routing_scope
from prefold.gateway.knowledge import Knowledge
from prefold.gateway.prompt_tokens import MOST_BYTES, work_on
from prefold.gateway.replicas import Fleet
from prefold.gateway.responses_prompt import as_chat
from prefold.gateway.translate import translate
from prefold.server.asgi import HttpError

BYTES_PER_TOKEN = 4
"""Where nobody counts."""

# What a model reads first comes first; messages are looked at one by one, since most of them are never needed.
_CONTENT: Mapping[Api, tuple[str, ...]] = MappingProxyType(
    {
        Api.CHAT: ("tools", "messages"),
        Api.COMPLETIONS: ("prompt",),
        Api.RESPONSES: ("tools", "instructions", "input"),
        Api.EMBEDDINGS: ("input",),
        Api.MESSAGES: ("tools", "system", "messages"),
        Api.COUNT_TOKENS: ("tools", "system", "messages"),
    }
)
_encode = msgspec.json.Encoder().encode


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Where a call goes.

    Attributes:
        replica: its index.
        name: of the replica.
        why: it was chosen.
        tokens: input tokens; estimated where nobody counted.
        matched: those that it is thought to have in its cache; None where nobody knows.
        keys: of the prompt's blocks, in the index; none where nobody asked it.
    """

    replica: int
    name: str
    why: Why
    tokens: int
    matched: int | None = None
    keys: Sequence[int] = ()


class Router:
    """Chooses replicas.

    Args:
        fleet: the replicas.
        knowledge: what is known of their caches.
        options: policy and its settings.
        seen: told of a hash of each prompt's beginning and model, where there is a choice.
        for_prefill: whether it chooses among those that compute prompts for others, and not among those that answer.
    """

    def __init__(
        self,
        fleet: Fleet,
        knowledge: Knowledge,
        options: RoutingOptions,
        seen: Callable[[int], None] = lambda _: None,
        *,
        for_prefill: bool = False,
    ) -> None:
        self._seen = seen
        self._for_prefill = for_prefill
        self._fleet = fleet
        self._knowledge = knowledge
        self._options = options
        policy = partial(make, virtual_nodes=options.virtual_nodes, load_bound=options.load_bound)
        self._policy = policy(options.policy)
        self._by_beginning = policy("prefix_hash")

    async def route(self, call: Call, *, tried: Collection[int] = (), is_explained: bool = False) -> Decision:
        """The replica for a call.

        Nobody tokenises for a policy that does not ask what replicas hold, nor where there is no choice, unless
        somebody reads the numbers: who asks for an explanation, or what expects the times of a group whose times are
        uniform. Nor does anybody tokenise a body above `MOST_BYTES`, by the beginning of which it is routed instead.

        Args:
            call: the request.
            tried: replicas that failed it already; there must be others.
            is_explained: whether somebody wants to know what the replicas hold even where there is no choice.

        Raises:
            HttpError: 404 where nobody serves the model to the tenant, 503 where nobody can now.
        """
        allowed = self.allowed(call, tried)
        tokens = len(call.body) // BYTES_PER_TOKEN
        keys: Mapping[int, Sequence[int]] = {}
        matched: Sequence[int] = ()
        may_matter = self._options.policy == "exact" and call.api.generates
        is_read = may_matter and len(call.body) <= MOST_BYTES
        if is_read and (len(allowed) > 1 or is_explained or call.tenant.group.ttft == "uniform"):
            tokens, keys, matched = await self._known(call, allowed)
        if matched:
            allowed = self.allowed(call, tried)  # some may have gone while the prompt was tokenised
        if not allowed:
            raise HttpError(
                503,
                "No other replica of this model can be reached",
                hint="try again",
                code="no_replica",
                headers={"retry-after": "1"},
            )
        if len(allowed) == 1:
            choice = Choice(allowed[0], Why.ONLY_ONE)
        else:
            beginning = self._beginning(call)
            self._seen(hash(beginning) ^ hash(call.model))
            ask = Ask(beginning, call.session, tokens, matched)
            policy = self._by_beginning if may_matter and not is_read else self._policy
            choice = policy.choose(ask, self._fleet.loads, allowed)
        chosen = choice.replica
        return Decision(
            chosen,
            self._fleet.replicas[chosen].table.name,
            choice.why,
            tokens,
            matched[chosen] if matched else None,
            keys.get(self._knowledge.block_size(chosen) or 0, ()) if keys else (),
        )

    def allowed(self, call: Call, tried: Collection[int] = ()) -> list[int]:
        """Indexes of the replicas that may serve a call now, but for those that failed it.

        Where none is left, those that are there for prompts answer as well.

        Raises:
            HttpError: 404 where nobody serves the model to the tenant, 503 where nobody can now.
        """
        if self._for_prefill:
            return self._fleet.for_prefill(call.model, call.tenant.group)
        usable = self._fleet.usable(call.model, call.tenant.group)
        if not tried:
            return usable
        left = [index for index in usable if index not in tried]
        return left or [index for index in self._fleet.for_prefill(call.model, call.tenant.group) if index not in tried]

    def has_others(self, call: Call, tried: Collection[int]) -> bool:
        """Whether a replica may serve a call that did not fail it yet."""
        try:
            return bool(self.allowed(call, tried))
        except HttpError:
            return False

    def sent(self, decision: Decision) -> None:
        """A call goes where it was decided: its blocks will be there before events say so.

        If it fails, the prediction lapses by itself.
        """
        self._knowledge.predict(decision.replica, decision.keys)

    async def _known(self, call: Call, allowed: Sequence[int]) -> tuple[int, dict[int, list[int]], list[int]]:
        """Tokens of the prompt, keys of its blocks by their size, and tokens that each replica holds of it.

        Nobody tokenises where it cannot matter: without events.
        """
        estimate = len(call.body) // BYTES_PER_TOKEN
        sizes = {index: size for index in allowed if (size := self._knowledge.block_size(index)) is not None}
        if not sizes:
            return estimate, {}, []
        tokenizer = next((found for index in sizes if (found := self._knowledge.tokens_of(index)) is not None), None)
        kind = self._fleet.replicas[next(iter(sizes))].table.kind
        call = await work_on(call, partial(_as_tokenised, call, kind))
        run = await tokenizer.run(call) if tokenizer is not None else None
        if tokenizer is None or run is None:
            return estimate, {}, []
        is_adapter = any(call.model in self._fleet.replicas[index].adapters for index in sizes)
        scope = await routing_scope(call, tokenizer, call.model if is_adapter else "")
        tokens = count(run)
        keys = {size: self._knowledge.index.keys(run, size, scope) for size in set(sizes.values())}
        matched = [0] * len(self._fleet.loads)
        for size, chain in keys.items():
            blocks = self._knowledge.index.match(chain)
            for index, held in enumerate(blocks):
                if sizes.get(index) == size:
                    matched[index] = min(held * size, tokens - 1)  # the last token has to run
        return tokens, keys, matched

    def _beginning(self, call: Call) -> bytes:
        """What stands for the first tokens of a prompt, and for whom it is kept apart.

        A conversation that is still shorter counts up to the first words of its user, since it will grow: with what
        comes behind them it would move at each turn.
        """
        limit = self._options.hash_tokens * BYTES_PER_TOKEN
        parts: list[bytes] = []
        size = 0
        for name in _CONTENT[call.api]:
            value: Any = call.fields.get(name)
            for piece in value if isinstance(value, list) else [value]:
                if piece is None:
                    continue
                parts.append(_encode(piece))
                size += len(parts[-1])
                if size >= limit or (isinstance(piece, dict) and piece.get("role") == "user"):
                    break
        beginning = b"".join(parts)[:limit]
        salt = effective_salt(call)
        return beginning if salt is None else salt.encode() + b"\0" + beginning


def pieces_of(call: Call) -> Iterator[bytes]:
    """What a model reads of a call, in its order, as JSON."""
    for name in _CONTENT[call.api]:
        value: Any = call.fields.get(name)
        for piece in value if isinstance(value, list) else [value]:
            if piece is not None:
                yield _encode(piece)


def _as_tokenised(call: Call, kind: Kind) -> Call:
    """The call in the words in which a replica's template is written; as it is where there are none."""
    if call.api is Api.RESPONSES:
        chat = as_chat(call.fields)
        return call if chat is None else replace(call, api=Api.CHAT, fields=chat)
    if call.api is not Api.MESSAGES:
        return call
    try:
        translation = translate(call.api, call.fields, kind, created=0)
    except InvalidRequest:  # a replica that has the API will say what is wrong
        translation = None
    return call if translation is None else replace(call, api=translation.api, fields=translation.body)
