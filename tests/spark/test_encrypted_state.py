"""A query whose values are ciphertext wherever they lie: in topics, deltas, snapshots, local copies and checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from orders import START_MS, kafka_row, write_rows
from statestore import RecoveryOptions, Serdes
from statestore.middleware.security.encryption import Encryption, encrypted_serde
from statestore.middleware.security.keys import Keyring
from tests.support.kept_records import files_with, keeping
from tests.support.passed_records import contents, produced, through
from tests.support.security_keys import AES_SECRETS, AFTER, BEFORE
from tests.support.spark.queries import OrderQuery


def write_batch(home: Path, number: int, ring: Keyring, key: bytes, value: bytes) -> None:
    """Write a micro-batch of one record, encrypted."""
    (sent,) = Encryption(ring).on_emit(produced(key, value))
    record = SimpleNamespace(
        value=sent.value, partition=0, offset=number, timestamp_ms=START_MS + number, headers=list(sent.headers)
    )
    path = home / "input" / f"{number}.parquet"
    path.parent.mkdir(exist_ok=True)
    write_rows([kafka_row("orders", key, record)], path, modified_s=START_MS / 1000 + number)


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_no_file_of_a_query_holds_a_value_and_keys_rotate(spark: SparkSession, tmp_path: Path, via: str) -> None:
    hidden, seen = os.urandom(48), os.urandom(48)
    query = OrderQuery(spark, tmp_path, via)
    recovery = RecoveryOptions(snapshot_every_deltas=1)
    for number, ring in enumerate((BEFORE, AFTER)):
        write_batch(tmp_path, number, ring, b"%d" % number + seen, hidden)
        query.run(
            keeping(encrypted_serde(Serdes.bytes(), ring, context="kept")),
            shards=1,
            interceptors=[Encryption(ring)],
            recovery=recovery,
        )
        assert [files_with(secret, tmp_path) for secret in (hidden, *AES_SECRETS)] == [[], [], []]
    found = {Path(name).parts[2] for name in files_with(seen, tmp_path / "state")}
    assert found == {"deltas", "snapshots"}, "keys are not encrypted: the search finds what is there"
    assert [bytes(row.value)[4:5] for row in query.outputs] == [b"1", b"2"], "the ids of the keys"
    for row in query.outputs:
        sent = produced(bytes(row.key), bytes(row.value), [(key, bytes(value)) for key, value in row.headers])
        assert contents([through(Encryption(AFTER, encrypt=False), sent)]) == [(sent.key, hidden, [])]
    kept = {bytes(row.key): bytes(row.value) for row in query.rows_of("kept")}
    read = encrypted_serde(Serdes.bytes(), AFTER, context="kept").deserialize
    assert {key: (data[4:5], read(data)) for key, data in kept.items()} == {
        b"0" + seen: (b"1", hidden),
        b"1" + seen: (b"2", hidden),
    }
