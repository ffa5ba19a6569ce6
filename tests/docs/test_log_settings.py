"""docs/examples/log4j2.properties quiets loggers that Spark has: a class that moved would be loud again, unnoticed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from tests.support.documentation import ROOT

SETTINGS = (ROOT / "docs" / "examples" / "log4j2.properties").read_text(encoding="utf-8")
OF_THE_CONNECTOR = {"org.apache.kafka"}


def test_each_logger_is_a_class_or_package_of_spark() -> None:
    names = re.findall(r"^logger\.\w+\.name = (\S+)$", SETTINGS, re.M)
    levels = re.findall(r"^logger\.\w+\.level = (off|error)$", SETTINGS, re.M)
    assert len(names) == len(levels) > 5
    (pyspark,) = find_spec("pyspark").submodule_search_locations  # type: ignore[union-attr]
    there: set[str] = set()
    for jar in [*Path(pyspark, "jars").glob("spark-*.jar"), *Path(pyspark, "jars").glob("hadoop-client-api-*.jar")]:
        with ZipFile(jar) as archive:
            classes = {name.removesuffix(".class") for name in archive.namelist() if name.endswith(".class")}
        there |= {path.replace("/", ".") for name in classes for path in (name, name.rpartition("/")[0])}
    assert set(names) - there == OF_THE_CONNECTOR
