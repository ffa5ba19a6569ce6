"""Typed headers against the real jars of Kafka Connect 4.3.1, with random values, texts, transformations, JSON."""

from __future__ import annotations

import os

import pytest

from tests.support.connect.random_converters import random_converters
from tests.support.connect.random_transforms import random_transforms
from tests.support.connect.random_vectors import random_vectors
from tests.support.connect.running import failure_of
from tests.support.java.connect import vectors_with_results

SEED = int(os.environ.get("STATESTORE_SEED", "18"))
COUNT = 6000
TRANSFORMS = 4000
CONVERTERS = 3000


@pytest.mark.usefixtures("java")
def test_random_values_texts_transformations_and_converters_do_as_in_kafka() -> None:
    vectors = vectors_with_results(
        [*random_vectors(SEED, COUNT), *random_transforms(SEED, TRANSFORMS), *random_converters(SEED, CONVERTERS)]
    )
    failures = [f"{vector.id}: {failure}" for vector in vectors if (failure := failure_of(vector)) is not None]
    assert "\n".join(failures) == ""
