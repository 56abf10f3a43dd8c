"""Stands in for `tidelog serve`: takes its arguments, listens, says it is ready and stops on SIGTERM.

`-X stand.in=<what>` makes it misbehave: fail, silent, deaf (ignores SIGTERM), chatty (fills its standard output).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("-X", action="append", default=[], dest="settings")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.settings)
    manner = settings.get("stand.in")
    if manner == "fail":
        print("the disk is on fire", file=sys.stderr)
        raise SystemExit(3)
    if manner == "silent":
        time.sleep(60)
    os.makedirs(arguments.data_dir, exist_ok=True)
    with open(os.path.join(arguments.data_dir, "starts"), "a") as file:
        file.write(f"{os.getpid()}\n")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if manner == "deaf" else stop)
    with socket.create_server((arguments.host, arguments.port)) as server:
        host, port = server.getsockname()[:2]
        print("some other line", flush=True)
        print(f"tidelog ready on {host}:{port} (broker 7, cluster abc, data {arguments.data_dir})", flush=True)
        if manner == "chatty":
            print("x" * 1_000_000, flush=True)
        told = json.dumps({"settings": settings, "environment": dict(os.environ)})
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(told.encode())


def stop(*_: object) -> None:
    raise SystemExit(0)


main()
