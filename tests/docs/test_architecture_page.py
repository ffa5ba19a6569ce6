"""The page that a newcomer begins with names modules that are there, and no room is missing."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"\b(?:statestore|upgrade_tools|tests|docs)(?:/[\w.-]+)*\w", PAGE)))


def test_the_page_names_modules() -> None:
    assert len([path for path in PATHS if path.endswith(".py")]) > 25


@pytest.mark.parametrize("path", PATHS)
def test_what_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("package", [path.name for path in (ROOT / "statestore").iterdir() if path.is_dir()])
def test_every_layer_is_named(package: str) -> None:
    assert package == "__pycache__" or f"`statestore/{package}`" in PAGE


def test_what_is_named_in_code_is_in_the_module() -> None:
    lists = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, | and )?)+)", PAGE)
    named = [(path, name) for path, names in lists for name in re.findall(r"\w+", names.replace(" and ", " "))]
    assert len(named) > 15
    for path, name in named:
        module = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^((class|def) {name}\b|{name}(:| =))", module, re.MULTILINE), f"{path}: {name}"
