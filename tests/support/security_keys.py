"""Keys and tokens of tests."""

from __future__ import annotations

from typing import Any

import jwt

from statestore.middleware.security.auth import TokenKey
from statestore.middleware.security.keys import AesKey, Ed25519PrivateKey, HmacKey, Keyring

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000

SECRET = HmacKey(bytes(range(32)))
PRIVATE = Ed25519PrivateKey(bytes(range(32)))
SIGNING_RINGS = {
    "hmac": (Keyring({"h": SECRET}, "h"), Keyring({"h": SECRET})),
    "ed25519": (Keyring({"e": PRIVATE}, "e"), Keyring({"e": PRIVATE.public_key})),
}
"""For who signs, and for who verifies."""

AES_SECRETS = b"old secret of us", b"new secret of us, and longer now"
OLD, NEW = map(AesKey, AES_SECRETS)
BEFORE, AFTER = Keyring({"1": OLD}, "1"), Keyring({"1": OLD, "2": NEW}, "2")
"""Keys for encryption before and after they were changed."""

TOKEN_SECRET = b"s" * 32
TOKEN_RING = Keyring({"hs": TokenKey("HS256", TOKEN_SECRET)})
GOOD_CLAIMS: dict[str, Any] = {"sub": "alice", "exp": NOW_S + 60, "roles": ["teller"], "email": "a@b.c"}


def token(key: Any = TOKEN_SECRET, algorithm: str = "HS256", kid: str | None = "hs", **claims: Any) -> str:
    """A token of alice's, with other claims; those that are None are left out."""
    said = {name: value for name, value in (GOOD_CLAIMS | claims).items() if value is not None}
    return jwt.encode(said, key, algorithm, headers={} if kid is None else {"kid": kid})
