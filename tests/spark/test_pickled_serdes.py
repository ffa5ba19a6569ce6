"""Serdes as Spark sends them to its executors, with its own pickler."""

from __future__ import annotations

import pickle

from pyspark import cloudpickle

from statestore import Serdes


def test_standard_serdes_are_the_same_again() -> None:
    made = (Serdes.string, Serdes.bytes, Serdes.json, Serdes.int32, Serdes.int64, Serdes.double, Serdes.boolean)
    for serde in (make() for make in made):
        assert pickle.loads(cloudpickle.dumps(serde)) == serde


def test_a_serde_of_lambdas_does_what_it_did() -> None:
    serde = Serdes.of("hex", lambda text: bytes.fromhex(text), lambda data: data.hex())
    copied = pickle.loads(cloudpickle.dumps(serde))
    assert copied.deserialize(copied.serialize("00ff")) == "00ff"
