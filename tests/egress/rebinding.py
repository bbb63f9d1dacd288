"""Run as a program, in namespaces of its own: a name server that changes its mind, and who is reached all the same.

`8.8.8.8` and `127.0.0.1` are both addresses of this network, with a server behind each. The program looks names up by
the C library, from our name server, and prints what it found as JSON.
"""

import asyncio
import fcntl
import json
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from unittest.mock import patch

from ferrule.egress.guard import Guard, Refused, Unreachable

PUBLIC, PRIVATE = "8.8.8.8", "127.0.0.1"
ANSWERS = {
    "own.example": [[PUBLIC]],
    "steady.example": [[PUBLIC]],
    "rebinding.example": [[PUBLIC], [PRIVATE]],
    "late.example": [[PRIVATE], [PUBLIC]],
    "mixed.example": [[PUBLIC, PRIVATE]],
    "metadata.example": [["169.254.169.254"]],
    "down.example": [["8.8.4.4", PUBLIC]],
}
SIOCSIFADDR, SIOCSIFFLAGS, IFF_UP = 0x8916, 0x8914, 1
asked: Counter[str] = Counter()


def serve_names(server: socket.socket) -> None:
    """Answer A queries, each name's answers in turn, and every other query with nothing."""
    while True:
        query, client = server.recvfrom(512)
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode())
            at += 1 + length
        name, kind = ".".join(labels).lower(), struct.unpack_from("!H", query, at + 1)[0]
        found = []
        if kind == 1 and name in ANSWERS:
            turns = ANSWERS[name]
            found = turns[min(asked[name], len(turns) - 1)]
            asked[name] += 1
        code = 0x8180 if name in ANSWERS else 0x8183
        head = query[:2] + struct.pack("!HHHHH", code, 1, len(found), 0, 0)
        records = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(address) for address in found
        )
        server.sendto(head + query[12 : at + 5] + records, client)


def serve_greetings(address: str) -> None:
    """Greet whoever connects with the address that was reached."""
    server = socket.create_server((address, 443))
    while True:
        connection, _ = server.accept()
        connection.sendall(address.encode())
        connection.close()


def set_address(interface: str, address: str) -> None:
    """Give an interface an address, and turn it on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        name = interface.encode()
        at = struct.pack("!16sH2x4s8x", name, 0, socket.inet_aton(address))
        fcntl.ioctl(control, SIOCSIFADDR, at[:16] + struct.pack("=H", socket.AF_INET) + at[18:])
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh", name, IFF_UP))


async def reached(guard: Guard, name: str) -> str:
    try:
        connection = await guard.connect(name, 443)
    except (Refused, Unreachable) as error:
        return str(error)
    with connection:
        return (await asyncio.get_running_loop().sock_recv(connection, 64)).decode()


async def tries() -> dict[str, list[str]]:
    guard = Guard(None)
    return {name: [await reached(guard, name) for _ in range(2)] for name in (*list(ANSWERS)[1:], "none.example")}


def main() -> None:
    subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
    for interface, address in (("lo", PRIVATE), ("lo:1", PUBLIC), ("lo:2", "8.8.4.4")):
        set_address(interface, address)
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind((PRIVATE, 53))
    threading.Thread(target=serve_names, args=(names,), daemon=True).start()
    for address in (PUBLIC, PRIVATE):
        threading.Thread(target=serve_greetings, args=(address,), daemon=True).start()
    own = asyncio.run(reached(Guard(None), "own.example"))
    with patch("ferrule.egress.guard.is_own", return_value=False):  # here, all addresses are this machine's
        told = asyncio.run(tries())
    print(json.dumps({"own": own, "reached": told, "asked": asked}))


if __name__ == "__main__":
    main()
