"""Where a conversation's tokens stop being those of every conversation that goes on from it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefold.core.tokens import WIDTH, common_prefix
from prefold.errors import InvalidRequest

Message = Mapping[str, Any]

_PROBES = ("a", "1", "\n")
"""Contents of next messages that begin unlike each other, for a tokenizer too."""

_ASKING = frozenset({"user", "tool", "function"})
"""Roles that the assistant answers."""


def lasting_part(messages: Sequence[Message], tokens: Callable[[Sequence[Message]], bytes]) -> bytes:
    """The tokens that messages contribute to whatever conversation goes on with them.

    Found by rendering a few that go on differently: what they have in common lasts. So the opening of an answer is part
    of it only where the template writes it again once there is an answer, and so is what it writes between messages.

    Args:
        messages: at least one.
        tokens: gives a conversation's tokens, packed, without the opening of an answer.
    """
    roles = ("assistant", "user") if messages[-1].get("role") in _ASKING else ("user", "assistant")
    # An answer amid a conversation may be written otherwise than one at its end, so another message follows.
    for shown in (roles, roles[:1]):
        try:
            runs = [tokens([*messages, *({"role": role, "content": text} for role in shown)]) for text in _PROBES]
        except InvalidRequest:  # the template refuses such a conversation
            continue
        lasting = runs[0]
        for other in runs[1:]:
            lasting = lasting[: common_prefix(lasting, other) * WIDTH]
        return lasting
    return tokens(messages)
