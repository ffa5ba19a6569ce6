"""Keys that a function provides are got anew for each batch, wherever a chain runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from statestore import Serdes
from statestore.errors.middleware import UnknownKeyIdError
from statestore.middleware import EmittedRecord, FailureHandling, Interceptor
from statestore.middleware.security.auth import TOKEN_HEADER, Authentication, TokenKey
from statestore.middleware.security.encryption import Encryption, HeaderEncryption
from statestore.middleware.security.keys import AesKey, HmacKey, Key, Keyring
from statestore.middleware.security.signing import Signing
from statestore.processor.chain_client import ChainClient
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.kept_records import keeping
from tests.support.passed_records import arrived, produced
from tests.support.security_keys import NOW_MS, token

BYTES = Serdes.bytes()


class Provider:
    """Provides a ring of two keys, of which one is taken away, and counts how often it was asked."""

    def __init__(self, make: Callable[[bytes], Key]) -> None:
        self.keys = {name: make(name.encode() * 32) for name in ("a", "b")}
        self.active = "a"
        self.asked = 0

    def __call__(self) -> Keyring:
        self.asked += 1
        return Keyring(self.keys, self.active)

    def take_away(self) -> None:
        """Make "b" the active key, and the only one."""
        del self.keys["a"]
        self.active = "b"


def authentication(provider: Provider) -> Interceptor:
    return Authentication(provider, algorithms=["HS256"])


def header_encryption(provider: Provider) -> Interceptor:
    return HeaderEncryption(["iban"], provider)


def of_tokens(key: bytes) -> Key:
    return TokenKey("HS256", key)


CASES: Any = [(Signing, HmacKey), (Encryption, AesKey), (header_encryption, AesKey), (authentication, of_tokens)]


def written(make: Callable[[Provider], Interceptor], provider: Provider) -> EmittedRecord:
    """A record as somebody else sends it, by the key that is active for them."""
    if make is authentication:
        key_id = provider.active
        return produced(headers=[(TOKEN_HEADER, token(key_id.encode() * 32, kid=key_id).encode())])
    with ChainClient([make(provider)], clock=lambda: NOW_MS) as other:
        (sent,) = other.emit(produced(headers=[("iban", b"DE00")]))
    return sent


@pytest.mark.parametrize(("make", "key"), CASES)
def test_a_client_gets_them_anew_after_each_batch_and_only_then(make: Any, key: Any) -> None:
    provider = Provider(key)
    old = written(make, provider)
    with ChainClient([make(provider)], clock=lambda: NOW_MS) as client:
        assert len(client.ingest(arrived(old))) == 1
        provider.take_away()
        new = written(make, provider)
        before = provider.asked
        assert len(client.ingest(arrived(old))) == 1, "the batch has the ring that it began with"
        assert provider.asked == before
        client.finish_batch()
        with pytest.raises(UnknownKeyIdError):
            client.ingest(arrived(old))
        for _ in range(2):
            assert len(client.ingest(arrived(new))) == 1
        assert provider.asked == before + 1
        if make is not authentication:
            (sent,) = client.emit(produced(headers=[("iban", b"DE00")]))
            assert len(client.ingest(arrived(sent))) == 1
        client.finish_batch()
        client.finish_batch()
        assert provider.asked == before + 1, "nobody is asked where nothing has to be read"


@pytest.mark.parametrize("pipe", ["pipe_record_list", "pipe_micro_batch"])
@pytest.mark.parametrize(("make", "key"), CASES)
def test_a_test_driver_gets_them_anew_for_each_batch(make: Any, key: Any, pipe: str) -> None:
    provider = Provider(key)
    old = written(make, provider)
    with TopologyTestDriver(
        keeping(),
        interceptors=[make(provider)],
        initial_wall_clock_time_ms=NOW_MS,
        failures=FailureHandling(dead_letters="dead"),
    ) as driver:
        topic = driver.create_input_topic("orders", key_serde=BYTES, value_serde=BYTES)

        def piped(record: EmittedRecord) -> Iterable[str]:
            getattr(topic, pipe)([TestRecord(record.key, record.value, 1000, list(record.headers))])
            ends = {name: driver.create_output_topic(name, key_serde=BYTES, value_serde=BYTES) for name in OUTPUTS}
            return [name for name, end in ends.items() if end.read_records_to_list()]

        assert piped(old) == ["kept-orders"]
        provider.take_away()
        assert piped(old) == ["dead"]
        assert piped(written(make, provider)) == ["kept-orders"]


OUTPUTS = ("kept-orders", "dead")
