"""What a server says of itself: names of models, which of them are LoRA adapters of another one, and its role."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class ModelCard(msgspec.Struct, frozen=True):
    """One model. vLLM and SGLang name the model that an adapter is of as its parent."""

    id: str
    parent: str | None = None


class _Listed(msgspec.Struct):
    data: Sequence[ModelCard]


class _Health(msgspec.Struct):
    role: str = "both"


def read_role(body: bytes) -> str:
    """The role that prefold's `/health` says; "both" where it says none."""
    try:
        return msgspec.json.decode(body, type=_Health).role
    except msgspec.MsgspecError:
        return "both"


def read_cards(body: bytes) -> Sequence[ModelCard]:
    """The models; none where it is no list of them."""
    try:
        return msgspec.json.decode(body, type=_Listed).data
    except msgspec.MsgspecError:
        return ()
