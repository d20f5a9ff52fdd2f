"""Chained block keys: one SHA-256 name for "these tokens, after exactly that prefix, under that model and salt".

Keys are what leaves a process: they name K/V blocks in files and remote stores and entries of a fleet's routing
index. So equal input must give equal keys in every process, on every machine, for ever. The bytes that are hashed are
therefore written down here, in full, and carry a version:

    root  = SHA-256( "prefold/block-key/1/root" padded to 32 | u32 length, model | u32 length, adapter )
    salt  = SHA-256( "prefold/block-key/1/salt" padded to 32 | parent key | u32 length, salt )
    block = SHA-256( parent key | block_size little-endian uint32 tokens )

Lengths are little-endian; texts are UTF-8. Only whole blocks have keys. A salt takes the parent's place at the block
that holds its first token, so that blocks wholly before it are shared and all later ones are private; where in that
block it begins makes no difference to the keys. The three forms cannot be confused: the first 32 bytes of a block's
input are a digest, and no one can find a digest that equals one of the two constants. The idea of chaining is vLLM's
(docs, "Automatic Prefix Caching"); the encoding is our own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from prefold.core.tokens import WIDTH
from prefold.errors import InvalidSalt

_ROOT = b"prefold/block-key/1/root".ljust(32, b"\0")
_SALT = b"prefold/block-key/1/salt".ljust(32, b"\0")

MAX_SALT_LENGTH = 128
"""Longest salt, in characters."""

_FORBIDDEN_IN_SALT = "@/\\\0"


def check_salt(salt: str) -> str:
    """Return `salt` if it may be used.

    Raises:
        InvalidSalt: if it is empty, longer than `MAX_SALT_LENGTH`, or holds `@`, `/`, a backslash or NUL, which
            stores use as separators.
    """
    if not isinstance(salt, str) or not salt:
        raise InvalidSalt(
            "cache_salt is empty or not a string", hint="leave it out to share the cache, or give 1-128 characters"
        )
    if len(salt) > MAX_SALT_LENGTH:
        raise InvalidSalt(f"cache_salt has {len(salt)} characters", hint=f"at most {MAX_SALT_LENGTH} are allowed")
    for character in _FORBIDDEN_IN_SALT:
        if character in salt:
            raise InvalidSalt(
                f"cache_salt contains {character!r}", hint="the characters @ / \\ and NUL are not allowed"
            )
    try:
        salt.encode()
    except UnicodeEncodeError:
        raise InvalidSalt("cache_salt is not valid Unicode", hint="lone surrogates are not allowed") from None
    return salt


@dataclass(frozen=True, slots=True)
class Scope:
    """Who may share what: a namespace, a salt, and the token position from which the salt applies.

    Namespaces share nothing: K and V of one model or adapter mean nothing to another. Within one, tokens before
    `salt_from` are shared by everybody; those from it on only by requests with the same salt and the same `salt_from`.

    Raises:
        InvalidSalt: for a salt that `check_salt` refuses, or a negative `salt_from`.
    """

    salt: str | None = None
    salt_from: int = 0
    namespace: str = ""

    def __post_init__(self) -> None:
        if self.salt is not None:
            check_salt(self.salt)
        if self.salt_from < 0:
            raise InvalidSalt(f"cache_salt_from is {self.salt_from}", hint="it is a token position, 0 or more")


SHARED = Scope()
"""No salt, the default namespace: shared by everybody."""


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(4, "little") + encoded


def root_key(model: str, adapter: str = "") -> bytes:
    """Key that the first block of every chain under this model and adapter has as its parent; 32 bytes.

    Args:
        model: fingerprint of the weights and everything else that K and V depend on.
        adapter: fingerprint of the adapter, empty for none.
    """
    return sha256(_ROOT + _text(model) + _text(adapter)).digest()


def salted_key(parent: bytes, salt: str) -> bytes:
    """The parent key under which blocks go on once `salt` applies; 32 bytes."""
    return sha256(_SALT + parent + _text(salt)).digest()


def chain(parent: bytes, run: bytes, block_size: int) -> list[bytes]:
    """Keys of the whole blocks of `run`, each 32 bytes, the first one following `parent`.

    Tokens of a last block that is not full are ignored.
    """
    step = block_size * WIDTH
    keys = []
    for start in range(0, len(run) - step + 1, step):
        parent = sha256(parent + run[start : start + step]).digest()
        keys.append(parent)
    return keys


@dataclass(slots=True)
class BlockKeys:
    """The keys of one sequence, extended as it grows.

    Args:
        root: from `root_key`.
        block_size: tokens per block, at least 1.
        scope: the salt and where it begins.
    """

    root: bytes
    block_size: int
    scope: Scope = SHARED
    keys: list[bytes] = field(default_factory=list, init=False)
    _rest: bytes = field(default=b"", init=False)

    def extend(self, run: bytes) -> list[bytes]:
        """Append a run of tokens; return the keys of the blocks that became full.

        Any way of cutting a sequence into runs gives the same keys.
        """
        run = self._rest + run
        step = self.block_size * WIDTH
        self._rest = run[len(run) // step * step :]
        parent = self.keys[-1] if self.keys else self.root
        new: list[bytes] = []
        if self.scope.salt is not None:
            # The salt enters at the block that holds its first token.
            before_salt = self.scope.salt_from // self.block_size - len(self.keys)
            if before_salt >= 0:
                cut = before_salt * step
                new = chain(parent, run[:cut], self.block_size)
                if len(run) < cut + step:
                    self.keys += new
                    return new
                parent = salted_key(new[-1] if new else parent, self.scope.salt)
                run = run[cut:]
        new += chain(parent, run, self.block_size)
        self.keys += new
        return new


def block_keys(root: bytes, run: bytes, block_size: int, scope: Scope = SHARED) -> list[bytes]:
    """Keys of the whole blocks of one sequence, each 32 bytes."""
    return BlockKeys(root, block_size, scope).extend(run)
