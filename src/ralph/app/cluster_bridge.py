"""The process between the engine and Ray: takes requests from a socket, and answers them with what Ray says.

Nothing else in Ralph imports Ray. If the head of the cluster is gone, Ray ends this process, and the engine notices.
"""

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import socket
import struct
import sys
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ralph.app.cluster_worker import TurnWorker

_HEADER = struct.Struct(">Q")
_CALLS_AT_ONCE = 100
_NAME = "name:"
"""The resource by which a node tells the name that the user gave it."""


def main() -> None:
    """Serve the socket with the number in the first argument: `cluster_bridge FD ADDRESS NAMESPACE`."""
    number, address, namespace = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    connection = socket.socket(fileno=number)
    try:
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # noqa: BLE001 - whatever Ray says reaches the user
        _send(connection, ("error", str(error).strip().splitlines()[0] if str(error).strip() else repr(error)))
        return
    # Ray handles SIGTERM in its own way. The engine ends this process by closing the connection.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _send(connection, ("ready", ""))
    asyncio.run(Bridge(connection).serve())
    # Ray's own shutdown can hang if the cluster is gone.
    os._exit(0)


def _send(connection: socket.socket, frame: Any) -> None:
    data = pickle.dumps(frame)
    with contextlib.suppress(OSError):
        connection.sendall(_HEADER.pack(len(data)) + data)


class NoSuchWorker(Exception):
    """The cluster has no worker of that name."""


class Bridge:
    """Answers the requests of one engine."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._handles: dict[str, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer requests until the engine disconnects."""
        reader, writer = await asyncio.open_unix_connection(sock=self._connection)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
                request = pickle.loads(await reader.readexactly(size))
                task = asyncio.create_task(self._answer(writer, *request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, writer: asyncio.StreamWriter, number: int, method: str, *arguments: Any) -> None:
        kind, value = "error", ""
        try:
            kind, value = "done", await getattr(self, f"_{method}")(*arguments)
        except (ray.exceptions.RayActorError, NoSuchWorker) as error:
            kind, value = "gone", str(error).splitlines()[0]
        except (ray.exceptions.RayTaskError, ValueError, TypeError) as error:
            value = f"{type(error).__name__}: {error}"[:2000]
        except Exception as error:  # noqa: BLE001 - whatever is left is about the connection to the cluster
            # After a restart of the head, Ray answers every call with an error. Only a new process can connect again.
            os.write(2, f"the connection to the cluster is lost: {type(error).__name__}: {error}\n".encode())
            os._exit(1)
        data = pickle.dumps((number, kind, value))
        with contextlib.suppress(ConnectionError):
            writer.write(_HEADER.pack(len(data)) + data)
            await writer.drain()

    async def _nodes(self) -> list[dict[str, Any]]:
        free = await asyncio.to_thread(ray._private.state.available_resources_per_node)
        found = []
        for node in await asyncio.to_thread(ray.nodes):
            if not node["Alive"]:
                continue
            offers = node["Resources"]
            names = [name.removeprefix(_NAME) for name in offers if name.startswith(_NAME)]
            found.append(
                {
                    "id": node["NodeID"],
                    "address": node["NodeManagerAddress"],
                    "name": names[0] if names else node["NodeManagerHostname"],
                    "offers": offers,
                    "free": free.get(node["NodeID"], {}),
                    "is_head": "node:__internal_head__" in offers,
                }
            )
        return found

    async def _names(self) -> list[str]:
        return list(await asyncio.to_thread(ray.util.list_named_actors))

    async def _create(self, name: str, needs: dict[str, float], node: str) -> None:
        options: dict[str, Any] = {
            "name": name,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": 0,
            "max_concurrency": _CALLS_AT_ONCE,
            "num_cpus": needs.pop("CPU", 1.0),
            "resources": {key: amount for key, amount in needs.items() if key != "memory"},
        }
        if "memory" in needs:
            options["memory"] = int(needs["memory"])
        if node:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        create = ray.remote(TurnWorker).options(**options).remote
        self._handles[name] = await asyncio.to_thread(create)

    async def _call(self, name: str, method: str, arguments: tuple[Any, ...]) -> Any:
        handle = self._handles.get(name)
        if handle is None:
            handle = self._handles[name] = await asyncio.to_thread(_find, name)
        try:
            return await getattr(handle, method).remote(*arguments)
        except ray.exceptions.RayActorError:
            self._handles.pop(name, None)
            raise

    async def _kill(self, name: str) -> None:
        handle = self._handles.pop(name, None)
        with contextlib.suppress(NoSuchWorker):
            handle = handle or await asyncio.to_thread(_find, name)
            await asyncio.to_thread(ray.kill, handle)


def _find(name: str) -> Any:
    try:
        return ray.get_actor(name)
    except ValueError as error:
        raise NoSuchWorker(f"there is no worker {name}") from error


if __name__ == "__main__":
    main()
