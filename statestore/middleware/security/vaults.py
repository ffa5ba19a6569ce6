"""Vaults: what has a master key, and wraps data keys with it. The master key stays there.

    aws-kms://alias/orders                   AWS KMS, also by the key's ARN; credentials and region are boto3's
    vault-transit://transit/orders           HashiCorp Vault's transit engine, as MOUNT/KEY, or OpenBao's: VAULT_ADDR,
                                             VAULT_TOKEN or the file ~/.vault-token
    file:///etc/statestore/master-keys       a file of this machine, with AES keys in base64, one a line: the first one
                                             wraps, all unwrap

Libraries are imported, and a token of Vault's read, where a vault is asked: one that an agent renews is found.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

from statestore.middleware.application import extra
from statestore.middleware.security.keys import AesKey

_WAITS_S: Final = 10
_NONCE_BYTES: Final = 12
_AWS_REFUSES: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_TRANSIT_REFUSES: Final = ("invalid ciphertext", "message authentication failed", "too old", "no such key version")


class Vault(Protocol):
    """Wraps data keys with a master key. Picklable; equal ones share the data keys of a process.

    Whatever its methods raise means that it can't be asked: no record is refused for that.
    """

    def wrap(self, key: bytes, context: str) -> str:
        """Return the wrapped key, as printable text of at most 255 bytes, for this context only."""
        ...

    def unwrap(self, wrapped: str, context: str) -> bytes | None:
        """Return the key; None if the vault answers that it did not wrap this, or not with this context."""
        ...


class VaultError(Exception):
    """Why a vault can't be asked, in words that hold no secret."""


def vault_at(uri: str) -> Vault:
    """Return the vault of a URI, which nobody asks yet. Raises ValueError for an unknown scheme, or no path."""
    scheme, _, path = uri.partition("://")
    if scheme not in _SCHEMES or not path.strip("/"):
        raise ValueError(f"a vault is {', '.join(f'{each}://...' for each in _SCHEMES)} or an object, not {uri!r}")
    return _SCHEMES[scheme](path)


@dataclass(frozen=True)
class AwsKms:
    """A symmetric key of AWS KMS, by id, alias or ARN. Contexts are its encryption contexts, so policies see them."""

    key_id: str

    def wrap(self, key: bytes, context: str) -> str:
        """Return the ciphertext in base64."""
        answer = self._ask("encrypt", context, Plaintext=key)
        return b64encode(answer["CiphertextBlob"]).decode()

    def unwrap(self, wrapped: str, context: str) -> bytes | None:
        """Return the key; None if KMS refuses the ciphertext."""
        if (blob := _decoded(wrapped)) is None:
            return None
        answer = self._ask("decrypt", context, CiphertextBlob=blob)
        return None if answer is None else bytes(answer["Plaintext"])

    def _ask(self, do: str, context: str, **arguments: Any) -> Any:
        """Return the answer; None if the ciphertext is refused. Raises VaultError."""
        with extra("aws-kms"):
            from botocore.exceptions import BotoCoreError, ClientError
        region = self.key_id.split(":")[3] if self.key_id.startswith("arn:") else None
        try:
            ask = getattr(_kms_client(region), do)
            return ask(KeyId=self.key_id, EncryptionContext={"statestore": context}, **arguments)
        except ClientError as error:
            problem = code = error.response["Error"]["Code"]
            if code in _AWS_REFUSES:
                return None
        except BotoCoreError as error:
            problem = str(error)
        raise VaultError(problem)  # here, so that nothing leads from it to a request, which has the key

    def __repr__(self) -> str:
        return f"AWS KMS ({self.key_id})"


@lru_cache(maxsize=16)
def _kms_client(region: str | None) -> Any:
    """Return a client, which renews its credentials by itself."""
    with extra("aws-kms"):
        import boto3
        from botocore.config import Config
    retries = {"mode": "standard", "total_max_attempts": 3}
    config = Config(connect_timeout=_WAITS_S / 2, read_timeout=_WAITS_S, retries=retries)
    return boto3.session.Session().client("kms", region_name=region, config=config)


@dataclass(frozen=True)
class VaultTransit:
    """A key of a transit engine, as MOUNT/KEY; its type must be one of AEAD, such as aes256-gcm96, which is usual."""

    path: str

    def wrap(self, key: bytes, context: str) -> str:
        """Return the ciphertext as Vault has it, vault:v1:..."""
        return str(self._ask("encrypt", context, plaintext=b64encode(key).decode())["ciphertext"])

    def unwrap(self, wrapped: str, context: str) -> bytes | None:
        """Return the key; None if Vault refuses the ciphertext."""
        answer = self._ask("decrypt", context, ciphertext=wrapped)
        return None if answer is None else b64decode(answer["plaintext"])

    def _ask(self, do: str, context: str, **arguments: str) -> Any:
        """Return the answer's data; None if the ciphertext is refused. Raises VaultError."""
        with extra("vault"):
            import hvac
        mount, _, name = self.path.strip("/").rpartition("/")
        bound = b64encode(context.encode()).decode()
        try:
            client = hvac.Client(timeout=_WAITS_S, namespace=os.environ.get("VAULT_NAMESPACE"))
            with closing(client.adapter):
                ask = getattr(client.secrets.transit, f"{do}_data")
                return ask(name, mount_point=mount, associated_data=bound, **arguments)["data"]
        except hvac.exceptions.VaultError as error:
            said = ", ".join(error.errors or ())
            if isinstance(error, hvac.exceptions.InvalidRequest) and any(words in said for words in _TRANSIT_REFUSES):
                return None
            problem = f"{type(error).__name__}: {said}"
        except OSError as error:  # requests' errors are such
            problem = type(error).__name__
        raise VaultError(problem)  # here, so that nothing leads from it to a request, which has the key

    def __repr__(self) -> str:
        return f"Vault's transit ({self.path})"


@dataclass(frozen=True)
class KeyFile:
    """Master keys in a file, which is read anew each time."""

    path: str

    def wrap(self, key: bytes, context: str) -> str:
        """Return nonce and ciphertext, by the first key, in base64."""
        nonce = os.urandom(_NONCE_BYTES)
        return b64encode(nonce + self._master_keys()[0].encrypt(nonce, key, context.encode())).decode()

    def unwrap(self, wrapped: str, context: str) -> bytes | None:
        """Return the key; None if no key of the file unwraps it."""
        data = _decoded(wrapped)
        if data is None or len(data) <= _NONCE_BYTES:
            return None
        nonce, ciphertext = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        found = (key.decrypt(nonce, ciphertext, context.encode()) for key in self._master_keys())
        return next((key for key in found if key is not None), None)

    def _master_keys(self) -> list[AesKey]:
        try:
            lines = Path(self.path).read_bytes().split()
        except OSError as error:
            raise VaultError(f"{type(error).__name__}: {error.strerror}") from None
        try:
            if lines:
                return [AesKey(b64decode(line, validate=True)) for line in lines]
        except ValueError:
            pass  # it has what is no key, which nobody may see
        raise VaultError("it must have keys of 16, 24 or 32 bytes in base64, one a line")

    def __repr__(self) -> str:
        return f"key file {self.path}"


_SCHEMES: Final[dict[str, Callable[[str], Vault]]] = {"aws-kms": AwsKms, "vault-transit": VaultTransit, "file": KeyFile}


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None
