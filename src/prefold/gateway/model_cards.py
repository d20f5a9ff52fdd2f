"""What a server's `/v1/models` says: names of models, and which of them are LoRA adapters of another one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class ModelCard(msgspec.Struct, frozen=True):
    """One model. vLLM and SGLang name the model that an adapter is of as its parent."""

    id: str
    parent: str | None = None


class _Listed(msgspec.Struct):
    data: Sequence[ModelCard]


def read_cards(body: bytes) -> Sequence[ModelCard]:
    """The models; none where it is no list of them."""
    try:
        return msgspec.json.decode(body, type=_Listed).data
    except msgspec.MsgspecError:
        return ()
