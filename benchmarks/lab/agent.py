# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Process in a host of the lab that sends, receives and answers.

Started by lab.py with the path of this file. Its standard input has one JSON object per
line, {"do": "goodput" | "round_trip" | "flow" | "quiet", ...}. The first two are
answered by one line each. It ends with its input. It uses only the standard library,
for a quick start.
"""

import contextlib
import json
import os
import socket
import statistics
import struct
import sys
import threading
import time

PORT = 5001
# Not measured: the burst that an idle tbf lets through, and slow start.
SETTLE_S = 0.3
ANSWER_S = 5.0  # seconds to wait for the other side
_BLOCK = bytes(64 << 10)
# Limit of unsent bytes in the socket beyond the window. Otherwise the end of a stream
# lasts for seconds.
_UNSENT_BYTES = 128 << 10
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_flows: set[socket.socket] = set()


def serve(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_receive, args=(connection,), daemon=True).start()


def _receive(connection: socket.socket) -> None:
    """Serves one connection; the first byte selects an echo or a count of bytes."""
    with connection:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if connection.recv(1) == b"e":
                while data := connection.recv(64):
                    connection.sendall(data)
            else:
                connection.sendall(json.dumps(_count(connection)).encode())
        except OSError:
            pass  # the other side has given up


def _count(connection: socket.socket) -> dict[str, float]:
    """Bytes and seconds of a stream without its first SETTLE_S."""
    buffer = bytearray(256 << 10)
    begin = start = last = time.monotonic()
    num_bytes = 0
    while n := connection.recv_into(buffer):
        last = time.monotonic()
        if start - begin < SETTLE_S:
            start = last
        else:
            num_bytes += n
    return {"num_bytes": num_bytes, "seconds": last - start}


def _connect(address: str, kind: bytes, *, within_s: float = ANSWER_S) -> socket.socket:
    connection = socket.create_connection((address, PORT), timeout=within_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    connection.sendall(kind)
    return connection


def _send_for(connection: socket.socket, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        connection.settimeout(max(left, 0.001))
        try:
            connection.send(_BLOCK)
        except TimeoutError:
            return


def goodput(address: str, seconds: float) -> dict[str, float]:
    with _connect(address, b"s") as connection:
        _send_for(connection, SETTLE_S + seconds)
        connection.settimeout(ANSWER_S)
        connection.shutdown(socket.SHUT_WR)
        counted = json.loads(connection.makefile().read())
    if not counted["num_bytes"] or not counted["seconds"]:
        raise OSError("too little arrived to be measured")
    return {"mbit": counted["num_bytes"] * 8e-6 / counted["seconds"]}


def round_trip(address: str, count: int, within_s: float) -> dict[str, float]:
    """Median time of one byte and its echo on an open connection."""
    times = []
    with _connect(address, b"e", within_s=within_s) as connection:
        for _ in range(count + 1):
            start = time.monotonic()
            connection.sendall(b"x")
            if not connection.recv(1):
                raise OSError("the other side has closed the connection")
            times.append(time.monotonic() - start)
    return {"ms": statistics.median(times[1:]) * 1e3}


def flow(address: str, seconds: float) -> None:
    """Cross traffic. Data that is still queued at its end is discarded."""
    try:
        with _connect(address, b"s") as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            _flows.add(connection)
            _send_for(connection, seconds)
    except OSError:
        pass  # if the link is cut, there is no traffic
    finally:
        _flows.discard(connection)


def quiet() -> None:
    """Ends all flows of this host."""
    for connection in tuple(_flows):
        with contextlib.suppress(OSError):  # it has just ended
            connection.shutdown(socket.SHUT_RDWR)


def obey(command: dict) -> None:
    action = command.pop("do")
    if action == "quiet":
        quiet()
    elif action == "flow":
        threading.Thread(target=flow, kwargs=command, daemon=True).start()
    else:
        try:
            answer = {"goodput": goodput, "round_trip": round_trip}[action](**command)
        except (OSError, ValueError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def main() -> None:
    server = socket.create_server(
        ("", PORT), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64
    )
    threading.Thread(target=serve, args=(server,), daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        obey(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
