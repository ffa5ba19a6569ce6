"""Which modules and names are public, read from the sources: nothing is imported, so it needs neither Spark nor time.

A module with `__all__` is public and promises the names in it. One without is private.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias

from tests.support.documentation import ROOT

PACKAGES: Final = ("statestore", "upgrade_tools")
_DOTTED: Final = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_STARTED: Final = re.compile(rf"-m ((?:{'|'.join(PACKAGES)})(?:\.\w+)*)")
_IMPORTED: Final = re.compile(rf"\bfrom ((?:{'|'.join(PACKAGES)})(?:\.\w+)*) import ((?:\w+(?:, )?)+)")

_IMPORT_STATEMENT: Final = re.compile(rf"^ *(?:from|import) +(?:{'|'.join(PACKAGES)})\b[^(\n]*(?:\([^)]*\))?", re.M)

Where: TypeAlias = "tuple[str, str]"
"""A module, and a name that it defines."""


@dataclass(frozen=True)
class Source:
    """A module of ours, as it is written."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def promised(self) -> list[str] | None:
        """What `__all__` lists; None if there is none."""
        for statement in self.tree.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                assert isinstance(statement, ast.Assign), f"{self.name}: __all__ is one list, written once"
                return [str(name) for name in ast.literal_eval(statement.value)]
        return None

    @cached_property
    def defined(self) -> dict[str, ast.stmt]:
        """What the module defines at its top: classes, functions, constants and aliases."""
        return dict(_definitions(self.tree.body))

    @cached_property
    def imported(self) -> dict[str, Where]:
        """Where the names come from that the module imports from modules of ours."""
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.module is not None and _is_ours(node.module)
            for alias in node.names
        }

    @property
    def is_started(self) -> bool:
        """Return whether `python -m` does something."""
        main = self.path.with_name("__main__.py") if self.path.name == "__init__.py" else self.path
        return main.exists() and '__name__ == "__main__"' in main.read_text(encoding="utf-8")


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _definitions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name, statement
        elif isinstance(statement, ast.Assign):
            yield from ((target.id, statement) for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement
        elif isinstance(statement, ast.If | ast.Try):
            yield from _definitions(statement.body)


@dataclass(frozen=True)
class Sources:
    """All modules of ours, by name."""

    modules: dict[str, Source] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path = ROOT) -> Sources:
        paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
        names = [".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for path in paths]
        return cls({name: Source(name, path) for name, path in zip(names, paths, strict=True)})

    @cached_property
    def public(self) -> dict[str, list[str]]:
        """What each public module promises."""
        return {name: module.promised for name, module in self.modules.items() if module.promised is not None}

    @cached_property
    def promised(self) -> set[Where]:
        """Where everything is defined that a public module promises."""
        return {self.definition(module, name) for module, names in self.public.items() for name in names}

    def definition(self, module: str, name: str) -> Where:
        """Return where a name of a module is defined, through all that hand it on."""
        while module in self.modules and name in self.modules[module].imported:
            module, name = self.modules[module].imported[name]
        return module, name

    def unpromised(self, module: str, name: str | None = None) -> bool:
        """Return whether nobody promises that this can be imported; a name of None is the module itself."""
        promised = self.public.get(module)
        if name is None:
            return promised is None
        return name not in (promised or ()) and f"{module}.{name}" not in self.public

    def unpromised_imports(self, code: str) -> list[str]:
        """Return what Python code imports from modules of ours that none of them promises."""
        found = []
        # By statement: a fragment of a program, as on a page, need not be Python as a whole.
        for statement in _IMPORT_STATEMENT.findall(code):
            for node in ast.parse(statement.strip()).body:
                if isinstance(node, ast.Import):
                    found += [alias.name for alias in node.names if self.unpromised(alias.name)]
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    names = [alias.name for alias in node.names if self.unpromised(node.module, alias.name)]
                    found += [f"{node.module}.{name}" for name in names]
        return found

    def unpromised_words(self, text: str) -> list[str]:
        """Return what a text names of modules of ours and none of them promises, or no `python -m` starts.

        Files and settings are no modules: `statestore.json`.
        """
        started = _STARTED.findall(text)
        found = [f"-m {name}" for name in started if name not in self.modules or not self.modules[name].is_started]
        for module, names in _IMPORTED.findall(text):
            found += [f"{module}.{name}" for name in names.split(", ") if self.unpromised(module, name)]
        for dotted in _DOTTED.findall(_STARTED.sub("", text)):
            module = next(_prefixes(dotted, self.modules))
            rest = dotted[len(module) + 1 :].partition(".")[0]
            is_file = module in PACKAGES and rest[:1].islower() and rest not in self.public.get(module, [])
            has_public_rooms = not rest and any(name.startswith(f"{module}.") for name in self.public)
            if not (is_file or has_public_rooms) and self.unpromised(module, rest or None):
                found.append(dotted)
        return found

    def private_types(self, module: str) -> dict[Where, set[str]]:
        """Return what signatures of a module's public names mention and none promises, with the names that do."""
        found: dict[Where, set[str]] = {}
        for name in self.public[module]:
            where, defined_as = self.definition(module, name)
            definition = self.modules[where].defined.get(defined_as)
            for annotation in [] if definition is None else _annotations(definition):
                for mentioned in self._types(where, annotation, seen=set()):
                    if mentioned not in self.promised:
                        found.setdefault(mentioned, set()).add(name)
        return found

    def _types(self, module: str, annotation: ast.AST, seen: set[Where]) -> Iterator[Where]:
        """Yield the classes of ours that an annotation names; an alias is what it stands for."""
        for node in ast.walk(annotation):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                try:
                    yield from self._types(module, ast.parse(node.value, mode="eval"), seen)
                except SyntaxError:  # a text, as in Literal["for ever"]
                    continue
            if not isinstance(node, ast.Name):
                continue
            where = self.definition(module, node.id)
            definition = self.modules[where[0]].defined.get(where[1]) if where[0] in self.modules else None
            if isinstance(definition, ast.ClassDef):
                yield where
            elif isinstance(definition, ast.Assign | ast.AnnAssign) and definition.value and where not in seen:
                seen.add(where)
                yield from self._types(where[0], definition.value, seen)


def _prefixes(dotted: str, modules: Iterable[str]) -> Iterator[str]:
    parts = dotted.split(".")
    known = set(modules)
    return (name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in known)


def _annotations(definition: ast.stmt) -> Iterator[ast.AST]:
    """Yield the annotations that a caller of a function, or a user of a class, meets."""
    if isinstance(definition, ast.FunctionDef):
        arguments = definition.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None:
                yield argument.annotation
        if definition.returns is not None:
            yield definition.returns
    if isinstance(definition, ast.ClassDef):
        for name, member in _definitions(definition.body):
            if name.startswith("_") and name != "__init__":
                continue
            if isinstance(member, ast.AnnAssign):
                yield member.annotation
            else:
                yield from _annotations(member)
