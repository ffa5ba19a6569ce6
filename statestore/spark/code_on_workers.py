"""Checks whether Spark's workers can load the code of a topology, which is pickled.

A class of a module is pickled by name, so workers must be able to import the module; classes of `__main__`, of a
notebook or within a function are pickled whole. In local mode an interpreter like the workers' is asked. With Spark
Connect a task on the server is asked. What the machines of a cluster have installed can't be known here, so missing
modules are only a warning.
"""

from __future__ import annotations

import logging
import os
import pickletools
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from statestore.errors.run import ModuleNotOnWorkersError, NotPicklableError
from statestore.interception.failures import FailureHandling
from statestore.processor.topology import Topology
from statestore.spark.sessions import is_connect, on_server

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = logging.getLogger(__name__)
_SUBIMPORT: Final = (cloudpickle.subimport.__module__, cloudpickle.subimport.__name__)
"""What cloudpickle calls to load a module that code refers to."""
_MAX_OPCODES: Final = 200_000
_MAX_DEPTH: Final = 8
_MAX_CHILDREN: Final = 200
_ASK: Final = (
    "import sys; from importlib.util import find_spec; print(*(name for name in sys.argv[1:] if not find_spec(name)))"
)
_SESSION_FILES: Final = "SPARK_JOB_ARTIFACT_UUID"
"""In a worker, names the directory with the files sent to its session, or with those of all sessions."""
_FILES_OF_ALL: Final = "default"
_OF_EVERY_WORKER: Final = (__name__.partition(".")[0], "pyspark")
_INSTALLED: Final = tuple(
    f"{sysconfig.get_path(kind)}/"
    for kind in ("stdlib", "platstdlib", "purelib", "platlib")
    if sysconfig.get_path(kind)
)
_ISOLATION: Final = "spark.sql.artifact.isolation.enabled"
_SENT: Final = (
    "module %r, of %s, was sent to this session with addArtifacts. Spark 4.1 to 4.3 don't give such files to the tasks "
    "of streaming queries, unless " + _ISOLATION + " was false when they were sent"
)


def check_code_on_workers(topology: Topology, handling: FailureHandling, spark: SparkSession) -> None:
    """Raise NotPicklableError or ModuleNotOnWorkersError; on classic clusters, log the latter as a warning."""
    parts = _pickled_parts(topology, handling)
    if is_connect(spark):
        modules = own_modules(parts, _is_in_every_python)
        if modules:
            _check_at_server(modules, spark)
    elif modules := own_modules(parts, _is_installed):
        _check_classic(modules, spark.sparkContext)


def _check_at_server(modules: Mapping[str, str], spark: SparkSession) -> None:
    missing, sent = on_server(spark, modules_missing_here, sorted(modules))
    _refuse(missing, modules)
    for module in sent if spark.conf.get(_ISOLATION, "true") == "true" else ():
        _LOG.warning(_SENT, module, modules[module])


def modules_missing_here(modules: Iterable[str]) -> tuple[list[str], list[str]]:
    """In a task on the server, return which modules are missing, and which were sent to this session alone."""
    session = os.environ.get(_SESSION_FILES, _FILES_OF_ALL)
    missing, sent = [], []
    for name in modules:
        if name in sys.modules:
            continue
        spec = find_spec(name)
        if spec is None:
            missing.append(name)
        elif session != _FILES_OF_ALL and session in (spec.origin or ""):
            sent.append(name)
    return missing, sent


def _check_classic(modules: Mapping[str, str], context: SparkContext) -> None:
    from pyspark import SparkFiles

    sent = SparkFiles.getRootDirectory()
    master = context.master or ""
    if master == "local" or master.startswith("local["):
        includes = [sent, *(f"{sent}/{name}" for name in context._python_includes or ())]
        path = [*includes, context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
        _refuse(_missing(frozenset(modules), context.pythonExec, os.pathsep.join(filter(None, path))), modules)
        return
    for module in sorted(modules):
        if not any(place.startswith(sent) for place in _places(module)):
            _LOG.warning("%s", ModuleNotOnWorkersError(module, part=modules[module]))


def _refuse(missing: Iterable[str], modules: Mapping[str, str]) -> None:
    for module in sorted(missing):
        raise ModuleNotOnWorkersError(module, part=modules[module])


def own_modules(pickled: Iterable[tuple[str, bytes]], is_there: Callable[[str], bool]) -> dict[str, str]:
    """Return the top modules that pickled parts import, each with one such part, without those that `is_there`."""
    found: dict[str, str] = {}
    for part, data in pickled:
        for name in imported_modules(data):
            top = name.partition(".")[0]
            if top not in found and not is_there(top):
                found[top] = part
    return found


def imported_modules(pickled: bytes) -> set[str]:
    """Return the modules that loading a pickle imports; of a very large pickle, those named at its beginning."""
    found: set[str] = set()
    memo: list[Any] = []
    pushed: list[Any] = [None, None]  # the last two objects: a text as it is, a global as (module, name)
    for opcode, argument, _ in islice(pickletools.genops(pickled), _MAX_OPCODES):
        if opcode.name == "MEMOIZE":
            memo.append(pushed[-1])
            continue
        value: Any = None
        if "UNICODE" in opcode.name:
            value = argument
        elif opcode.name in ("BINGET", "LONG_BINGET") and argument is not None:
            value = memo[argument]
        elif opcode.name == "STACK_GLOBAL":
            value = (pushed[-2], pushed[-1])
            found.add(str(pushed[-2]))
        if pushed[-1] == _SUBIMPORT and isinstance(value, str):
            found.add(value)
        pushed = [pushed[-1], value]
    return found


def _pickled_parts(topology: Topology, handling: FailureHandling) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of a query that hold a user's code, pickled. Raises NotPicklableError."""
    for name, part in _parts(topology, handling):
        try:
            yield name, cloudpickle.dumps(part)  # type: ignore[no-untyped-call]
        except Exception as cause:
            path = _culprit(part)
            raise NotPicklableError(name, attribute=path, problem=f"{type(cause).__name__}: {cause}") from cause


def _parts(topology: Topology, handling: FailureHandling) -> Iterator[tuple[str, Any]]:
    for name, source in topology.sources.items():
        yield f"source {name!r}", (source.key_serde, source.value_serde)
    for name, processor in topology.processors.items():
        yield f"processor {name!r}", processor.supplier
    for name, sink in topology.sinks.items():
        yield f"sink {name!r}", (sink.topic, sink.key_serde, sink.value_serde)
    for name, builder in topology.store_builders.items():
        yield f"state store {name!r}", builder
    for node in topology.interceptors.values():
        yield f"interceptor {node.interceptor.name!r}", node.interceptor
    for option in fields(handling):
        yield f"{option.name}", getattr(handling, option.name)


def _is_installed(module: str) -> bool:
    """Return whether a module is Python's, installed, or this package: a worker that has us has it, too."""
    if module in sys.builtin_module_names or module in _OF_EVERY_WORKER:
        return True
    return any(place.startswith(_INSTALLED) or place in ("built-in", "frozen") for place in _places(module))


def _is_in_every_python(module: str) -> bool:
    """Return whether a module is Python's, on any machine, or one that every worker has."""
    return module in sys.stdlib_module_names or module in _OF_EVERY_WORKER


def _places(module: str) -> list[str]:
    """Return the file and directories of a module; none if they are unknown."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]


@lru_cache(maxsize=64)
def _missing(modules: frozenset[str], python: str, path: str) -> frozenset[str]:
    """Return which modules an interpreter like the workers' can't import."""
    command = [python, "-c", _ASK, *sorted(modules)]
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=20)
    except (OSError, subprocess.SubprocessError) as cause:
        _LOG.debug("%s can't be asked for modules: %s", python, cause)
        return frozenset()
    return frozenset(done.stdout.split())


def _culprit(whole: Any) -> str:
    """Return the path, as in code, to the innermost object that can't be pickled; empty if it is the whole."""
    path = ""
    for _ in range(_MAX_DEPTH):
        for step, child in islice(_children(whole), _MAX_CHILDREN):
            if not _can_be_pickled(child):
                path, whole = f"{path}{step}", child
                break
        else:
            break
    return path.removeprefix(".")


def _children(whole: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that are pickled with an object, each with the step to it."""
    if isinstance(whole, ModuleType):
        return
    if isinstance(whole, partial):
        yield from ((".func", whole.func), (".args", whole.args), (".keywords", whole.keywords))
    elif isinstance(whole, FunctionType):
        names = whole.__code__.co_freevars
        cells = ((f".{name}", cell.cell_contents) for name, cell in zip(names, whole.__closure__ or (), strict=True))
        used = ((f".{name}", whole.__globals__[name]) for name in whole.__code__.co_names if name in whole.__globals__)
        yield from (*cells, *used)
    elif isinstance(whole, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in whole.items())
    elif isinstance(whole, tuple | list | set | frozenset):
        yield from ((f"[{number}]", value) for number, value in enumerate(whole))
    elif isinstance(whole, MethodType):
        yield from ((".__self__", whole.__self__), (f".{whole.__name__}", whole.__func__))
    else:
        yield from ((f".{name}", value) for name, value in getattr(whole, "__dict__", {}).items() if name[:2] != "__")


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    except Exception:
        return False
    return True
