"""Lets the process that plans a read ask the driver about a Spark checkpoint.

Spark plans Python data sources in a process of its own without a session, and only Spark can read a checkpoint. So the
driver listens on a socket of this machine, and says which commit pointers a batch has. Who asks must know a random key
of the driver. A file that only this user can read has address and key. Spark sends the file's path around, even to
executors, which don't have the file.

    question := {"checkpoint": str, "batch_id": int}           which pointers does the batch have?
              | {"checkpoint": str, "dataframe": str}          which batch was the last one when this was first asked?
    answer   := {"pointers": [str, ...]} | {"batch_id": int} | {"where": str, "problem": str}

With Spark Connect the client is on another machine than the process that plans, and can't be asked.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final

from statestore.errors import DataSourceOptionError, RecoveryError, StateStoreError

_LOG = logging.getLogger(__name__)
_KNOWN_DATAFRAMES: Final = 10_000
_END_S: Final = 5.0


class CheckpointReader(ABC):
    """Answers questions about a checkpoint."""

    def pointers(self, checkpoint: str, batch_id: int) -> list[str]:
        """Return the commit pointers of a batch. Raises RecoveryError, DataSourceOptionError."""
        answer = self._ask({"checkpoint": checkpoint, "batch_id": batch_id})
        return [str(pointer) for pointer in answer["pointers"]]

    def last_batch_id(self, checkpoint: str, dataframe: str) -> int:
        """Return the last committed batch, always the same for one DataFrame. Raises as `pointers`."""
        return int(self._ask({"checkpoint": checkpoint, "dataframe": dataframe})["batch_id"])

    @abstractmethod
    def _ask(self, question: dict[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class DriverAddress(CheckpointReader):
    """The driver, as a file says how to ask it."""

    path: str
    """A JSON file with the socket's address and, in hex, the key."""

    def answers(self) -> bool:
        """Return whether the driver still listens."""
        try:
            self._connect().close()
        except (OSError, EOFError, AuthenticationError):
            return False
        return True

    def _connect(self) -> Connection:
        with open(self.path, encoding="utf-8") as file:
            fields = json.load(file)
        return Client(fields["address"], authkey=bytes.fromhex(fields["key"]))

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            with self._connect() as connection:
                connection.send_bytes(json.dumps(question).encode())
                answer: dict[str, Any] = json.loads(connection.recv_bytes())
        except (OSError, EOFError, AuthenticationError) as cause:
            problem = f"the driver does not answer ({cause!r}): call register_data_source(spark) in the reading session"
            raise RecoveryError(str(question["checkpoint"]), problem) from cause
        if "problem" in answer:
            raise RecoveryError(str(answer["where"]), str(answer["problem"]))
        return answer


@dataclass(frozen=True)
class NobodyToAsk(CheckpointReader):
    """Refuses questions where no driver can be asked."""

    why: str

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        raise DataSourceOptionError("checkpoint", f"can't be read from here, as {self.why}")


UNREGISTERED: Final = NobodyToAsk(
    "the data source was not registered by register_data_source(spark). Do that, or give what "
    "committed_options(spark, CHECKPOINT) returns in a session that can read it, as options instead"
)
WITH_CONNECT: Final = NobodyToAsk(
    "the session is one of Spark Connect. Give what committed_options(spark, CHECKPOINT) returns as options instead: "
    'spark.read.format("headerstate").options(**committed_options(spark, CHECKPOINT)).load(LOCATION)'
)


class CheckpointService:
    """Answers in a thread of the driver, one question at a time, until `close`."""

    def __init__(self, read_pointers: Callable[[str, int], list[str]], read_last_batch: Callable[[str], int]) -> None:
        """Answer with the pointers of a checkpoint's batch, or a checkpoint's last batch; both raise RecoveryError."""
        key = secrets.token_bytes(32)
        self._read_pointers = read_pointers
        self._read_last_batch = read_last_batch
        self._last_batches: dict[str, int] = {}
        """By DataFrame: Spark plans one again for each use, and all uses must read the same batch."""
        # A Unix socket, if there are any, in a directory that only this user can enter.
        self._listener = Listener(backlog=16, authkey=key)
        self._closed = threading.Event()
        self._directory = tempfile.mkdtemp(prefix="statestore-driver-")
        path = os.path.join(self._directory, "address.json")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({"address": self._listener.address, "key": key.hex()}, file)
        self.address = DriverAddress(path)
        self._thread = threading.Thread(target=self._serve, name="statestore-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._closed.set()
        # Only a connection wakes the thread. If its socket is gone, the thread ends with the process.
        self.address.answers()
        self._thread.join(_END_S)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _serve(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                try:
                    with self._listener.accept() as connection:
                        self._answer(connection)
                except AuthenticationError:
                    _LOG.warning("a process that is not ours asked for the commit pointers of a checkpoint")
                except (EOFError, OSError) as cause:
                    if not self._closed.is_set():
                        _LOG.info("a process that planned a read ended before it had its answer (%r)", cause)

    def _answer(self, connection: Connection) -> None:
        question = json.loads(connection.recv_bytes(1 << 20))
        connection.send_bytes(json.dumps(self._found(question)).encode())

    def _found(self, question: dict[str, Any]) -> dict[str, Any]:
        checkpoint = question["checkpoint"]
        try:
            if "batch_id" not in question:
                return {"batch_id": self._last_batch(checkpoint, question["dataframe"])}
            return {"pointers": self._read_pointers(checkpoint, question["batch_id"])}
        except RecoveryError as error:
            return {"where": error.where, "problem": error.problem}
        except StateStoreError as error:
            return {"where": checkpoint, "problem": str(error)}
        except Exception as error:
            # Any error of Spark's: whoever has asked raises it.
            _LOG.info("reading the checkpoint %s failed", checkpoint, exc_info=True)
            return {"where": checkpoint, "problem": f"can't be read ({type(error).__name__}: {error})"}

    def _last_batch(self, checkpoint: str, dataframe: str) -> int:
        """Return the last batch at the first question about a DataFrame; the latest ten thousand are remembered."""
        known = self._last_batches
        if dataframe not in known:
            known[dataframe] = self._read_last_batch(checkpoint)
            if len(known) > _KNOWN_DATAFRAMES:
                del known[next(iter(known))]
        return known[dataframe]
