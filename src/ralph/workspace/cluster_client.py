"""The engine's side of a Ray cluster: a process of its own that talks to Ray, and the calls that it passes on.

Ray ends the process that is connected to it if it loses the head of the cluster. So that this is never the engine, only the
child process imports Ray (`ralph.app.cluster_bridge`). It ends with the engine, because their connection closes.
"""

import asyncio
import contextlib
import importlib.util
import itertools
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralph.core.errors import AgentUnavailableError, UsageError
from ralph.documents.run_record import PoolSpec

BRIDGE = "ralph.app.cluster_bridge"
CONNECT_SECONDS = 90.0
"""How long the bridge may take to connect. Importing Ray alone takes seconds on a busy machine."""
RECONNECT_SECONDS = 120.0
"""How long a turn waits for a cluster that was lost. Workers give up after a minute without a head."""
_RECONNECT_PAUSE = 5.0
_HEADER = struct.Struct(">Q")
INSTALL = "pip install 'ralph-engine[ray]'"


class ClusterLost(Exception):
    """The cluster cannot be reached any more."""


class WorkerGone(Exception):
    """The process of a worker is gone, or was never there."""


@dataclass(frozen=True)
class ClusterNode:
    """One machine of the cluster, or one Ray node on it."""

    id: str
    address: str
    name: str
    """Its host name, or the name that `ralph workers start --name` gave it."""
    offers: Mapping[str, float]
    """What it offers in all: `CPU`, `memory`, `agent:NAME`, `label:NAME`."""
    free: Mapping[str, float] = field(default_factory=dict)
    is_head: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it was started with."""
        return tuple(sorted(name.removeprefix("label:") for name in self.offers if name.startswith("label:")))

    @property
    def agents(self) -> dict[str, int]:
        """How many turns of each agent it runs at once."""
        return {name.removeprefix("agent:"): int(n) for name, n in self.offers.items() if name.startswith("agent:")}

    def can_run(self, needs: Mapping[str, float]) -> bool:
        """Whether it offers enough when nothing else runs there."""
        return all(self.offers.get(name, 0.0) >= amount for name, amount in needs.items())


def require_ray() -> None:
    """Refuse to use a cluster if the extra is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("turns on a cluster need Ray, which is not installed", todo=f"`{INSTALL}`, on every machine")


class ClusterClient:
    """The engine's connection to the cluster. It connects at the first call, and again after a loss."""

    def __init__(self, pool: PoolSpec, log: Path) -> None:
        self.pool, self.log = pool, log
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._connecting = asyncio.Lock()

    async def list_nodes(self) -> list[ClusterNode]:
        """The nodes that are alive."""
        return [ClusterNode(**one) for one in await self._request("nodes")]

    async def list_workers(self, prefix: str) -> list[str]:
        """The names of the workers that begin with a prefix."""
        return [str(name) for name in await self._request("names") if name.startswith(prefix)]

    async def create(self, name: str, needs: Mapping[str, float], node: str = "") -> None:
        """Create the worker of that name unless it exists; on that node, or where there is room."""
        await self._request("create", name, dict(needs), node)

    async def call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of a worker, and wait for the result. Raises WorkerGone or ClusterLost."""
        return await self._request("call", name, method, arguments)

    async def kill(self, name: str) -> None:
        """End the process of a worker."""
        await self._request("kill", name)

    async def reconnect(self) -> None:
        """Connect again after a loss. Raises AgentUnavailableError if the cluster does not come back in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RECONNECT_SECONDS
        while True:
            try:
                await self._connect()
                return
            except AgentUnavailableError:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_RECONNECT_PAUSE)

    async def close(self) -> None:
        """Disconnect. What runs on the cluster runs on."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None
        await self._end_process()

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            # It ends by itself when the connection closes.
            await asyncio.to_thread(process.wait, 10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    async def _request(self, *request: Any) -> Any:
        await self._connect()
        if self._writer is None:
            raise ClusterLost
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        try:
            data = pickle.dumps((number, *request))
            self._writer.write(_HEADER.pack(len(data)) + data)
            await self._writer.drain()
            kind, value = await reply
        except (ConnectionError, RuntimeError) as error:
            raise ClusterLost from error
        finally:
            self._replies.pop(number, None)
        if kind == "gone":
            raise WorkerGone(value)
        if kind == "error":
            raise AgentUnavailableError(f"the cluster refused: {value}", where=self.pool.address, todo=self._todo())
        return value

    async def _connect(self) -> None:
        async with self._connecting:
            if self._writer is not None:
                return
            await self._end_process()
            reader, writer = await self._start_bridge()
            try:
                kind, value = await asyncio.wait_for(_read_frame(reader), CONNECT_SECONDS)
            except (TimeoutError, asyncio.IncompleteReadError) as error:
                writer.close()
                kind, value = "error", "no answer" if isinstance(error, TimeoutError) else "its process ended"
            if kind != "ready":
                writer.close()
                await self._end_process()
                what = f"the Ray cluster at {self.pool.address} cannot be reached: {value}"
                raise AgentUnavailableError(what, where=str(self.log), todo=self._todo())
            self._writer = writer
            self._reading = asyncio.create_task(self._read(reader))

    def _todo(self) -> str:
        return "start it with `ralph workers start --head`, see docs/cluster.md, then `ralph resume`"

    async def _start_bridge(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        require_ray()
        ours, theirs = socket.socketpair()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", BRIDGE, str(theirs.fileno()), self.pool.address, self.pool.namespace],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                # Ctrl-C is for the engine.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        finally:
            os.close(log)
            theirs.close()
        return await asyncio.open_unix_connection(sock=ours)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Pass replies on until the connection closes; then every open request fails."""
        try:
            while True:
                number, kind, value = await _read_frame(reader)
                reply = self._replies.get(number)
                if reply is not None and not reply.done():
                    reply.set_result((kind, value))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(ConnectionResetError("the bridge to the cluster ended"))


async def _read_frame(reader: asyncio.StreamReader) -> Any:
    (size,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    return pickle.loads(await reader.readexactly(size))
