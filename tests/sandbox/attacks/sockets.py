"""Reaching the host over sockets and the network."""

import os
import socket
import struct

from .common import Scene, attack


@attack
def tcp_to_host(s: Scene) -> str:
    with socket.create_connection(("127.0.0.1", s["tcp_port"]), 2):
        return "OPEN"


@attack
def udp_to_host(s: Scene) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"pwned", ("127.0.0.1", s["udp_port"]))
    return "sent into the private loopback"


@attack
def tcp_outside(s: Scene) -> str:
    with socket.socket() as client:
        client.settimeout(2)
        client.connect(("192.0.2.1", 80))
    return "OPEN"


def connect_unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(path)
    return "OPEN"


@attack
def abstract_unix(s: Scene) -> str:
    return connect_unix("\0" + s["abstract"])


@attack
def path_unix_outside(s: Scene) -> str:
    return connect_unix(s["unix_out"])


@attack
def path_unix_in_tmp(s: Scene) -> str:
    return connect_unix(s["unix_tmp"])


@attack
def path_unix_recreated(s: Scene) -> str:
    """A socket whose file was made anew since the sandbox started."""
    return connect_unix(s["unix_again"])


@attack
def path_unix_through_link(s: Scene) -> str:
    os.symlink(s["unix_out"], s["ws"] + "/sock-link")
    return connect_unix(s["ws"] + "/sock-link")


@attack
def path_unix_renamed(s: Scene) -> str:
    """A cover cannot be moved away."""
    os.rename(s["unix_tmp"], s["unix_tmp"] + "2")
    return connect_unix(s["unix_tmp"] + "2")


@attack
def s12_socket_renamed_outside(s: Scene) -> str:
    return connect_unix(s["unix_moved_out"])


@attack
def s12_socket_renamed_in_a_root(s: Scene) -> str:
    return connect_unix(s["unix_moved_in"])


@attack
def s12_socket_of_another_network(s: Scene) -> str:
    return connect_unix(s["unix_elsewhere"])


@attack
def path_unix_unlinked(s: Scene) -> str:
    os.unlink(s["unix_tmp"])
    return "OPEN"


@attack
def dgram_to_log(s: Scene) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"pwned", s["unix_log"])
    return "OPEN"


@attack
def dgram_pair_sendto(s: Scene) -> str:
    left, _right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.connect(s["unix_log"])
    left.send(b"pwned")
    return "OPEN"


@attack
def s11_raw_pair_sendto(s: Scene) -> str:
    """The kernel makes a datagram pair of it."""
    left, _right = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    left.sendto(b"pwned", s["unix_log"])
    return "OPEN"


@attack
def s11_raw_socket_sendto(s: Scene) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_RAW) as sender:
        sender.sendto(b"pwned", s["unix_log"])
    return "OPEN"


@attack
def vsock(s: Scene) -> str:
    socket.socket(40, socket.SOCK_STREAM).close()
    return "OPEN"


@attack
def af_alg(s: Scene) -> str:
    socket.socket(38, socket.SOCK_SEQPACKET).close()
    return "OPEN"


@attack
def n010_other_netlink(s: Scene) -> str:
    refused = 0
    for protocol in range(1, 23):
        try:
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol).close()
        except OSError:
            refused += 1
    return "OPEN" if refused < 22 else "refused"


@attack
def n010_change_interfaces(s: Scene) -> str:
    """RTM_NEWLINK for the loopback: take it down."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as routes:
        body = struct.pack("BxHiII", 0, 0, 1, 0, 1)
        routes.send(struct.pack("IHHII", 16 + len(body), 16, 5, 1, 0) + body)
        (number,) = struct.unpack_from("i", routes.recv(1 << 16), 16)
    if number:
        raise OSError(-number, os.strerror(-number))
    return "OPEN"


@attack
def packet(s: Scene) -> str:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    return "OPEN"
