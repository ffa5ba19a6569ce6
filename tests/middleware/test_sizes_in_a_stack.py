"""What changes the size of values stands together with what signs and encrypts them, and comes apart again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statestore import Processor, ProcessorContext, Record, Serdes, Topology
from statestore.errors import SignatureRefusedError
from statestore.middleware import Chain, Interceptor
from statestore.middleware.security.encryption import Encryption
from statestore.middleware.security.keys import AesKey, HmacKey, Keyring
from statestore.middleware.security.signing import Signing
from statestore.middleware.size.claim_check import ClaimCheck
from statestore.middleware.size.compression import COMPRESSION_HEADER, Compression
from statestore.middleware.size.slicing import Slicing
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.passed_records import arrived, produced

VALUE = b"".join(b"%d words again and again, " % number for number in range(3000))
HEADERS = [("trace", b"\x01")]
MAC = Keyring({"m": HmacKey(bytes(32))}, "m")
CIPHER = Keyring({"c": AesKey(bytes(32))}, "c")
ENDS: dict[str, Any] = {"key_serde": Serdes.bytes(), "value_serde": Serdes.bytes()}


def sliced(home: Path, **options: Any) -> Chain:
    return Chain([Compression(), Encryption(CIPHER), Signing(MAC), Slicing(2000, **options)])


def checked_in(home: Path, **_: Any) -> Chain:
    return Chain([Compression(), Encryption(CIPHER), ClaimCheck(home, threshold_bytes=2000), Signing(MAC)])


@pytest.mark.parametrize("stack", [[Signing(MAC), Compression()], [Compression(), Signing(MAC)]], ids=repr)
def test_b14_compression_stands_on_either_side_of_a_signature(stack: list[Interceptor]) -> None:
    (sent,) = Chain(stack).emit(produced(value=VALUE, headers=HEADERS))
    assert len(sent.value) < len(VALUE) / 2
    (read,) = Chain(stack).ingest(arrived(sent))
    assert (read.value, list(read.headers)) == (VALUE, HEADERS)
    (unlike,) = Chain([Compression()]).emit(produced(value=VALUE + b"!"))
    with pytest.raises(SignatureRefusedError):
        Chain(stack).ingest(arrived(sent.copy(value=unlike.value)))


class Noting(Processor):
    """Notes what it sees, and forwards it."""

    def __init__(self, noted: list[Any]) -> None:
        self.noted = noted

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        self.noted.append((record.value, [tuple(header) for header in record.headers]))
        self.context.forward(record)


@pytest.mark.parametrize("pipe", ["pipe_record_list", "pipe_micro_batch"])
@pytest.mark.parametrize("stack", [sliced, checked_in])
def test_a_query_sees_whole_records_of_which_outside_nothing_can_be_read(
    stack: Callable[..., Chain], pipe: str, tmp_path: Path
) -> None:
    sent = [
        each
        for value in (b"small", VALUE)
        for each in stack(tmp_path, glue=False).emit(produced(value=value, headers=HEADERS, topic="in"))
    ]
    noted: list[Any] = []
    topology = Topology()
    topology.add_source("in", "in", **ENDS)
    topology.add_processor("noting", lambda: Noting(noted), ["in"])
    topology.add_sink("out", "out", ["noting"], **ENDS)
    with TopologyTestDriver(topology, interceptors=stack(tmp_path)) as driver:
        getattr(driver.create_input_topic("in", **ENDS), pipe)(
            [TestRecord(each.key, each.value, 1000, each.headers) for each in sent]
        )
        again = driver.create_output_topic("out", **ENDS).read_records_to_list()
    assert noted == [(b"small", HEADERS), (VALUE, HEADERS)]
    for outside in (sent, again):
        assert len(outside) == len(sent) > (1 if stack is checked_in else 2)
        assert all(len(each.value) <= 2000 and b"small" not in each.value for each in outside)
        assert COMPRESSION_HEADER in [header.key for each in outside for header in each.headers]
    assert not any(b"words" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
