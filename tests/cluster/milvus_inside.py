"""The program that runs the Milvus server 2.3.5 in a network of its own, with its own Python.

It raises that network's loopback, starts the server, and passes on to it what comes in at a
listening socket of the network outside. It says `ready` when the server is in health.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

SET_INTERFACE_FLAGS, UP = 0x8914, 1  # of linux/sockios.h and linux/if.h


def main(folder: str, door: str, *settings: str) -> None:
    """Serve until killed, with settings such as proxy.timeTickInterval=20."""
    from milvus import MilvusServer, MilvusServerConfig

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, struct.pack("16sh", b"lo", UP))
    server = MilvusServer(MilvusServerConfig(data_dir=folder))
    for name, value in (setting.split("=") for setting in settings):
        server.config.set(name, value)
    server.start()
    asyncio.run(pass_on(socket.socket(fileno=int(door)), server.listen_port))


async def pass_on(listening: socket.socket, port: int) -> None:
    """Connect whoever comes with the server."""

    async def connect(from_client: StreamReader, to_client: StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(flow(from_client, to_server), flow(from_server, to_client))

    async with await asyncio.start_server(connect, sock=listening) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await server.serve_forever()


async def flow(source: StreamReader, target: StreamWriter) -> None:
    """Pass on all that comes, until one of the two ends."""
    with suppress(OSError):
        while piece := await source.read(1 << 16):
            target.write(piece)
            await target.drain()
    target.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
