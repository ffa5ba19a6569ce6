"""`python -m tests.support.bill_of_materials DIRECTORY`: what the package brings, and under which licences.

That is all packages that it needs with any extra that a user may ask for, in the versions installed here: as CycloneDX,
and as a list to read. It fails if a licence is unknown, or not among those that are allowed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ALLOWED: Final = frozenset(
    (
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0"),
        *("PSF-2.0", "Zlib", "BSD License"),
    )
)
"""As SPDX has them; the last one is older metadata's, which leave open which of the BSD licences it is."""
EXPRESSIONS: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""What older metadata say for them."""
UNSTATED: Final = {"cedarpy": "Apache-2.0", "hdfs-native": "Apache-2.0"}
"""What metadata leave out, and the licence file or bill of materials within the package has."""
ROOT: Final = "statestore"
NOT_FOR_USERS: Final = {"dev", "docs"}


def brought() -> dict[str, set[str]]:
    """Return what the package brings, and itself: of each its needs, all by their normalised names."""
    extras = set(distribution(ROOT).metadata.get_all("Provides-Extra") or ()) - NOT_FOR_USERS
    found: dict[str, set[str]] = {}
    seen, waiting = set(), [(ROOT, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        needs = found.setdefault(name, set())
        for need in map(Requirement, distribution(name).requires or ()):
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                needed = str(canonicalize_name(need.name))
                needs.update({needed} - {name})
                waiting += [(needed, each) for each in ("", *need.extras)]
    return found


def licence(name: str) -> str:
    """Return what a package says of its licence, or nothing."""
    metadata = distribution(name).metadata
    classified = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if "License ::" in each]
    older = classified or filter(None, [metadata["License"]])
    said = metadata["License-Expression"] or " OR ".join(EXPRESSIONS.get(each, each) for each in older)
    return said or UNSTATED.get(name, "")


def refused(licences: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each package whose licence is unknown or not allowed; of several, all must be."""
    for name, said in licences.items():
        terms = set(filter(None, re.split(r" AND | OR |[()]", said)))
        if not terms or terms - ALLOWED:
            yield f"{name}: licence {said or 'unknown'}"


def bill(licences: Mapping[str, str], needs: Mapping[str, set[str]]) -> str:
    """Return the bill of materials, as JSON."""
    factory = LicenseFactory()
    parts = {
        name: Component(
            name=name,
            version=distribution(name).version,
            bom_ref=name,
            purl=PackageURL("pypi", name=name, version=distribution(name).version),
            licenses=[factory.make_from_string(said)],
        )
        for name, said in licences.items()
    }
    bom = Bom(components=[part for name, part in parts.items() if name != ROOT])
    bom.metadata.component = parts[ROOT]
    for name, part in parts.items():
        bom.register_dependency(part, [parts[need] for need in needs[name]])
    return JsonV1Dot6(bom).output_as_string(indent=1)


def main(directory: Path) -> int:
    """Write both, and return 0 if all licences are allowed."""
    needs = brought()
    licences = {name: licence(name) for name in sorted(needs)}
    wrong = list(refused(licences))
    if not wrong:
        directory.mkdir(parents=True, exist_ok=True)
        stem = f"{ROOT}-{distribution(ROOT).version}"
        (directory / f"{stem}.cdx.json").write_text(bill(licences, needs), encoding="utf-8")
        lines = [f"{name} {distribution(name).version}: {said}\n" for name, said in licences.items()]
        (directory / f"{stem}.licences.txt").write_text("".join(lines), encoding="utf-8")
    print("\n".join(wrong) or f"{directory} has the bill of materials: {len(needs) - 1} packages, all licences allowed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
