"""A Ray cluster as seen from this machine, through a process of its own that talks to Ray."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from redline.errors import UserError
from redline.files import explained, make_folder, open_own
from redline.fleet.engines.ray_token import find_token
from redline.fleet.slots import LOGS
from redline.jsonl import measured, plain_text

SUPPORTED = "2.60."
DRIVER_LOG = "ray-driver.log"
OPEN_S = 180.0  # for the cluster to be found and all its nodes described
CLOSE_S = 10.0
READ_BYTES = 65_536


@dataclass(frozen=True)
class Cluster:
    """What is known of a cluster."""

    nodes: Sequence[Mapping[str, Any]] = ()
    refused: str = ""  # why it can't be reached, or must not be used
    notes: Sequence[str] = ()

    @property
    def problems(self) -> list[str]:
        """Why it can't train a fleet; empty if it can."""
        if self.refused:
            return [self.refused]
        found = [f"{name_of(node)} {plain_text(node.get('problem'))}" for node in self.nodes if node.get("problem")]
        return found if found or self.cores else ["its nodes have no cores: use ray start --num-cpus=N on one of them"]

    @property
    def cores(self) -> int:
        """Cores of the nodes that can be used."""
        return sum(int(measured(node.get("ray_cores")) or 0) for node in self.nodes if not node.get("problem"))


def name_of(node: Mapping[str, Any]) -> str:
    """Return how a node is called."""
    return f"{plain_text(node.get('host'))} ({plain_text(node.get('node'))})"


def check_ray() -> None:
    """Raise UserError if Ray is not installed here, or another version of it."""
    try:
        found = version("ray")
    except PackageNotFoundError:
        raise UserError("the engine ray needs Ray: pip install 'ray>=2.60,<2.61'") from None
    if not found.startswith(SUPPORTED):
        raise UserError(f"ray {found} is installed, Redline works with {SUPPORTED}x: pip install 'ray>=2.60,<2.61'")


def check_address(address: str) -> str:
    """Return the address of a cluster; UserError if it is none."""
    host, _, port = address.rpartition(":")
    is_port = port.isdecimal() and len(port) <= len("65535") and 0 < int(port) < 65_536
    if not host or not is_port or not address.isprintable() or " " in address:
        given = f"is {address[:80]!r}" if address else "is missing"
        raise UserError(f"--engine.address {given}: use HOST:PORT of the head, such as 10.0.0.1:6379")
    return address


@dataclass(frozen=True)
class Link:
    """What it takes to talk to a cluster."""

    address: str
    folder: Path | None  # that all nodes must see
    variables: Mapping[str, str]  # for the environment

    def open(self) -> DriverProcess:
        """Start a process that talks to the cluster."""
        if self.folder is None:
            return DriverProcess(self, subprocess.DEVNULL)
        with explained(UserError, self.folder):
            make_folder(self.folder / LOGS)
            log = open_own(self.folder / LOGS / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                return DriverProcess(self, log)
            finally:
                os.close(log)


class DriverProcess:
    """The process that talks to Ray, and what it has said."""

    def __init__(self, link: Link, log: int) -> None:
        self._reader, writer = os.pipe()
        orders, self._orders = os.pipe()
        os.set_blocking(self._reader, False)
        folder = "" if link.folder is None else str(link.folder)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "redline.fleet.engines.ray_driver", link.address, folder, str(writer)],
                stdin=orders,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[writer],
                env={**os.environ, **link.variables, "RAY_USAGE_STATS_ENABLED": "0"},
                start_new_session=True,  # Ctrl-C is for the supervisor
            )
        except OSError:
            os.close(self._reader)
            os.close(self._orders)
            raise
        finally:
            os.close(writer)
            os.close(orders)
        self._rest = b""
        self.begun_s = time.monotonic()
        self.heard_s: float | None = None  # when it last said something

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def events(self) -> list[dict[str, Any]]:
        """Return what it has said since the last call."""
        with suppress(BlockingIOError):
            while piece := os.read(self._reader, READ_BYTES):
                self._rest += piece
        *lines, self._rest = self._rest.split(b"\n")
        found = []
        for line in lines:
            with suppress(ValueError):
                found.append(json.loads(line))
        if found:
            self.heard_s = time.monotonic()
        return [event for event in found if isinstance(event, dict)]

    def wait(self, seconds: float) -> None:
        """Wait until it says something, or has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            selector.select(seconds)

    def order(self, **facts: Any) -> None:
        """Tell it what to do."""
        with suppress(OSError):  # it has ended
            os.write(self._orders, (json.dumps(facts) + "\n").encode())

    def close(self, seconds: float = 0.0) -> None:
        """Let it end, and end it if that takes longer."""
        os.close(self._orders)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._reader)


def inspect(address: str, folder: Path | None) -> Cluster:
    """Return what a cluster is, as seen from this machine; UserError if this machine can't even ask."""
    check_ray()
    check_address(address)
    token = find_token()
    link = Link(address, None if folder is None else folder.absolute(), token.variables)
    driver = link.open()
    try:
        found = first_word(driver, address)
    finally:
        driver.close(CLOSE_S)
    return Cluster(found.nodes, found.refused, [token.note] if token.note else [])


def first_word(driver: DriverProcess, address: str) -> Cluster:
    """Wait until a driver tells of the cluster."""
    end_s = time.monotonic() + OPEN_S
    while (left_s := end_s - time.monotonic()) > 0:
        driver.wait(left_s)
        is_over = driver.exit_code is not None
        for event in driver.events():
            if "nodes" in event or "refused" in event:
                return Cluster(event.get("nodes", ()), plain_text(event.get("refused") or ""))
        if is_over:
            return Cluster(refused=f"the connection to the Ray cluster at {address} broke: try again")
    return Cluster(refused=f"the Ray cluster at {address} did not answer within {OPEN_S:.0f} s: try again")
