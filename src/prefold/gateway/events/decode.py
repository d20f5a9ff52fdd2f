"""KV events as engines send them, read into one form.

vLLM and SGLang send the same events in several encodings: a batch, and each event in it, is a map or a positional array
(with the type's name first), a block's hash is bytes or a whole number, and fields were added at the end over the
years. What is not known, fields and kinds of event alike, is left alone. What cannot be read is counted and skipped:
nothing that arrives raises.

Definitions: vLLM 0.32, `vllm/distributed/kv_events.py`; SGLang 0.5, `srt/disaggregation/kv_events.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from prefold.core.tokens import pack
from prefold.errors import InvalidTokens

Hash = int | bytes
"""An engine's own name of a block; says nothing to anybody else."""

Fields = Mapping[str, Any]

_MAX_HASH_BYTES = 64

_BATCH_FIELDS = ("ts", "events", "data_parallel_rank")
# SGLang's positional form ended with `medium`, so there is no doubt about what follows: it is vLLM's.
_STORED_FIELDS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
)
_REMOVED_FIELDS = ("block_hashes", "medium", "group_idx")

_FLEETING_KINDS = frozenset(
    {
        "sliding_window",
        "sliding_window_mla",
        "mamba",
        "chunked_local_attention",
        "encoder_only_attention",
        "cross_attention",
    }
)
"""Of groups of layers that keep only the end of a prompt, or nothing of it: their blocks say nothing about prefixes."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What a block depends on beside its tokens and the blocks before it.

    Attributes:
        salt: the salt whose first token is in it.
        mark: bytes that stand for everything else, such as the images on it; empty for nothing.
    """

    salt: str | None = None
    mark: bytes = b""


PLAIN = Extra()
"""Nothing but its tokens."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A place within an engine that holds blocks: a group of layers, in one kind of memory.

    Attributes:
        medium: such as GPU or CPU; empty where the engine does not say.
        group: of layers, 0 where there is one.
    """

    medium: str = ""
    group: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks that follow each other are there.

    Attributes:
        hashes: of the blocks, in order.
        parent: hash of the block before them; None where the first one begins the prompt.
        tokens: of all of them, packed; empty where the engine does not say, since it told them before.
        block_size: tokens in each.
        adapter: name of the LoRA adapter; empty for none.
        extras: one for each block, or none at all.
        tier: where they are.
        is_fleeting: whether the tier keeps only part of each prompt.
    """

    hashes: Sequence[Hash]
    parent: Hash | None
    tokens: bytes
    block_size: int
    adapter: str = ""
    extras: Sequence[Extra] = ()
    tier: Tier = Tier()
    is_fleeting: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks are no longer in a tier; in none at all where its medium is empty."""

    hashes: Sequence[Hash]
    tier: Tier = Tier()


@dataclass(frozen=True, slots=True)
class Cleared:
    """No blocks are left."""


Event = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Batch:
    """What one message tells.

    Attributes:
        events: in order.
        malformed: events that could not be read; 1 where the whole message could not.
        rank: data-parallel rank that they are of; 0 where the engine does not say.
    """

    events: tuple[Event, ...]
    malformed: int = 0
    rank: int = 0


_GARBAGE = Batch((), malformed=1)


class _MalformedError(Exception):
    """A value is not what it must be."""


def decode_batch(payload: bytes) -> Batch:
    """Read the last frame of a message, in any of the known encodings."""
    try:
        batch = _named(msgspec.msgpack.decode(payload), _BATCH_FIELDS)
    except (msgspec.DecodeError, ValueError, RecursionError, _MalformedError):
        return _GARBAGE
    listed = batch.get("events")
    if not isinstance(listed, list):
        return _GARBAGE
    events: list[Event] = []
    malformed = 0
    for item in listed:
        try:
            event = _event(item)
        except _MalformedError:
            malformed += 1
        else:
            if event is not None:
                events.append(event)
    rank = batch.get("data_parallel_rank", batch.get("attn_dp_rank"))
    return Batch(tuple(events), malformed, rank if type(rank) is int and rank >= 0 else 0)


def _event(item: object) -> Event | None:
    """An event; None for a kind that is not known."""
    if isinstance(item, dict):
        kind, fields, positional = item.get("type"), item, None
    elif isinstance(item, list) and item:
        kind, fields, positional = item[0], {}, item[1:]
    else:
        raise _MalformedError
    match kind:
        case "BlockStored":
            return _stored(fields if positional is None else _named(positional, _STORED_FIELDS))
        case "BlockRemoved":
            return _removed(fields if positional is None else _named(positional, _REMOVED_FIELDS))
        case "AllBlocksCleared":
            return Cleared()
        case str():
            return None
    raise _MalformedError


def _named(values: object, names: Sequence[str]) -> Fields:
    if isinstance(values, dict):
        return values
    if isinstance(values, list):
        return dict(zip(names, values, strict=False))
    raise _MalformedError


def _stored(fields: Fields) -> Stored:
    try:
        tokens = pack(fields["token_ids"])
    except (KeyError, InvalidTokens):
        raise _MalformedError from None
    parent, block_size = fields.get("parent_block_hash"), fields.get("block_size")
    if type(block_size) is not int or block_size < 0 or not (parent is None or _is_hash(parent)):
        raise _MalformedError
    hashes = _hashes(fields)
    adapter = _text(fields.get("lora_name"))
    if not adapter and fields.get("lora_id") is not None:
        adapter = str(fields["lora_id"])
    extras: Sequence[Extra] = ()
    if listed := fields.get("extra_keys"):
        if not isinstance(listed, list) or len(listed) != len(hashes):
            raise _MalformedError
        extras = [_extra(keys, adapter) for keys in listed]
    elif parent is None and (salt := _text(fields.get("cache_salt"))):  # SGLang names the prompt's with each event
        extras = [Extra(salt), *[PLAIN] * (len(hashes) - 1)]
    return Stored(
        hashes,
        parent,
        tokens,
        block_size,
        adapter,
        extras,
        _tier(fields),
        _text(fields.get("kv_cache_spec_kind")) in _FLEETING_KINDS,
    )


def _removed(fields: Fields) -> Removed:
    return Removed(_hashes(fields), _tier(fields))


def _hashes(fields: Fields) -> list[Hash]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list) or not all(map(_is_hash, hashes)):
        raise _MalformedError
    return hashes


def _is_hash(value: object) -> bool:
    return type(value) is int or (type(value) is bytes and len(value) <= _MAX_HASH_BYTES)


def _tier(fields: Fields) -> Tier:
    group = fields.get("group_idx")
    return Tier(_text(fields.get("medium")), group if type(group) is int else 0)


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _MalformedError
    return value


def _extra(keys: object, adapter: str) -> Extra:
    """Read the keys of one block.

    vLLM lists, in this order, the adapter's name, a pair (identifier, offset) for each image, the salt, and a digest of
    what was given as vectors. Within the engine each is tagged with what it is; events have carried them bare.
    """
    if keys is None:
        return PLAIN
    if not isinstance(keys, list):
        raise _MalformedError
    salt: str | None = None
    others: list[Any] = []
    for key in keys:
        match key:
            case str() if adapter and key == adapter:
                adapter = ""  # a salt of the same text may follow
            case ["lora", str()]:
                continue
            case ["cache_salt", str(text)] if salt is None:
                salt = text
            case str() if salt is None:
                salt = key
            case _:
                others.append(key)
    return Extra(salt, msgspec.msgpack.encode(others) if others else b"")
