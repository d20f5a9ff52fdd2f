"""Encryption of stored records: AES-256-GCM of the package `cryptography`, with a key from the environment.

The seal binds a record to all that its header says (version, fingerprint, block key, parent, number): one that is
moved to another name does not open. Nonces are random, 96 bits: good for some four billion records under one key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping

from prefold.errors import MissingExtra, UsageError

VARIABLE = "PREFOLD_TIER_KEY"
TAG_BYTES = 16

_PASSPHRASE = "passphrase:"  # noqa: S105 - what stands before one
_SHORTEST_PASSPHRASE = 16
_LOCATION = b"prefold tier location 1"
# The key must come out the same on every machine that shares a tier, so the salt is fixed; the cost is what protects.
_SALT = b"prefold tier key 1"
_SCRYPT_N, _SCRYPT_R = 1 << 16, 8  # 64 MiB, about 0.2 s


class Seal:
    """Closes and opens records with one key.

    Args:
        key: 32 bytes.

    Raises:
        MissingExtra: without the package `cryptography`.
    """

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an optional package
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - the same
        except ImportError:
            raise MissingExtra(
                "Encrypted tiers need the package cryptography.", hint='pip install "prefold[tiers]"'
            ) from None
        self._cipher = AESGCM(key)
        self._wrong = InvalidTag
        # A key of its own for names, so that they tell nothing of the one that encrypts.
        self._location_key = hmac.digest(key, _LOCATION, "sha256")

    def blind(self, fingerprint: str) -> str:
        """Another fingerprint for each key: with another key, records are not found, rather than found unreadable."""
        return hmac.digest(self._location_key, bytes.fromhex(fingerprint), "sha256").hex()

    def nonce(self) -> bytes:
        """A fresh one, 12 random bytes."""
        return os.urandom(12)

    def close(self, nonce: bytes, record: memoryview, bound: bytes) -> bytes:
        """The record encrypted, with its tag."""
        return self._cipher.encrypt(nonce, record, bound)

    def open(self, nonce: bytes, sealed: memoryview, bound: bytes, into: memoryview) -> bool:
        """Decrypt into `into`; whether the record is the one that was closed with this key and `bound`."""
        try:
            into[:] = self._cipher.decrypt(nonce, sealed, bound)
        except self._wrong:
            return False
        return True


def seal_from(environment: Mapping[str, str]) -> Seal | None:
    """The seal that `PREFOLD_TIER_KEY` asks for, None where it is not set.

    Raises:
        UsageError: if the variable holds neither 32 bytes in base64 nor `passphrase:` and at least 16 characters.
        MissingExtra: without the package `cryptography`.
    """
    value = environment.get(VARIABLE, "")
    if not value:
        return None
    if value.startswith(_PASSPHRASE):
        passphrase = value.removeprefix(_PASSPHRASE)
        if len(passphrase) < _SHORTEST_PASSPHRASE:
            raise UsageError(
                f"The passphrase in {VARIABLE} has fewer than {_SHORTEST_PASSPHRASE} characters.",
                hint="take a longer one, or a random key: head -c 32 /dev/urandom | base64",
            )
        memory = 256 * _SCRYPT_N * _SCRYPT_R
        return Seal(
            hashlib.scrypt(passphrase.encode(), salt=_SALT, n=_SCRYPT_N, r=_SCRYPT_R, p=1, maxmem=memory, dklen=32)
        )
    try:
        key = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        raise UsageError(
            f"{VARIABLE} is not a key of 32 bytes in base64.",
            hint="make one with: head -c 32 /dev/urandom | base64   or write passphrase:WORDS",
        )
    return Seal(key)
