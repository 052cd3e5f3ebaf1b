"""A Ray cluster of machines that are namespaces: `ray start` on each, joined by a bridge of the test."""

import secrets
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import psutil
import pytest
from namespace_node import Machine, skip_without_namespaces

from waiting import wait_for

PORT = 6379
RAY = str(Path(sys.executable).with_name("ray"))
STORE_BYTES = 80_000_000


def skip_without_ray() -> None:
    """Skip a test where Ray is not installed."""
    if find_spec("ray") is None or shutil.which(RAY) is None:
        pytest.skip("needs Ray: pip install 'ray>=2.60,<2.61'")
    skip_without_namespaces()


class Network:
    """Machines with addresses 10.77.0.N, connected by a bridge that is in a namespace too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # for the output of programs
        self._switch = Machine("switch")
        self._switch.do("ip", "link", "add", "bridge", "type", "bridge")
        self._switch.do("ip", "link", "set", "bridge", "up")
        self._machines: list[Machine] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in (*self._machines, self._switch):
            machine.kill()

    def add(self, host: str) -> tuple[Machine, str]:
        """Make a machine; return it with its address."""
        machine, number = Machine(host), len(self._machines) + 1
        self._machines.append(machine)
        address, port = f"10.77.0.{number}", f"port{number}"
        pair = ["ip", "link", "add", port, "type", "veth", "peer", "name", "lan", "netns", str(machine.init_pid)]
        subprocess.run(["nsenter", "--net", f"--target={self._switch.init_pid}", *pair], check=True)
        self._switch.do("ip", "link", "set", port, "master", "bridge", "up")
        machine.do("ip", "address", "add", f"{address}/24", "dev", "lan")
        machine.do("ip", "link", "set", "lan", "up")
        machine.do("ip", "route", "add", "default", "dev", "lan")
        machine.do("sh", "-c", f"echo {address} {host} >> /etc/hosts")
        machine.do("sh", "-c", "mkdir -p /tmp/ray && mount -t tmpfs tmpfs /tmp/ray && mount -t tmpfs tmpfs /dev/shm")
        return machine, address


def make_token(path: Path) -> Path:
    """Write a token that nobody else has."""
    path.write_text(secrets.token_hex(32), encoding="ascii")
    path.chmod(0o600)
    return path


class RayNode:
    """`ray start` on a machine."""

    def __init__(
        self, network: Network, host: str, *, cores: int, token: Path | None, head: "RayNode | None" = None
    ) -> None:
        self.machine, self.address = network.add(host)
        self.cluster = f"{head.address if head else self.address}:{PORT}"
        self.variables = (
            {"RAY_AUTH_MODE": "disabled"}
            if token is None
            else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        )
        self._cores = cores
        self._is_head = head is None
        self._folder = network.folder

    def start(self) -> Self:
        """Start Ray, again too, and wait until it is up."""
        log = self._folder / f"{self.machine.host}-{time.time_ns()}.log"
        where = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        self._ray = self.machine.start(
            *(RAY, "start", *(where if self._is_head else [f"--address={self.cluster}"])),
            *(f"--node-ip-address={self.address}", f"--num-cpus={self._cores}"),
            *(f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats", "--block"),
            log=log,
            variables=self.variables,
        )
        wait_for(lambda: b"Ray runtime started" in log.read_bytes(), f"Ray runs on {self.machine.host}")
        return self

    def kill_ray(self) -> None:
        """End Ray's own processes on this machine by SIGKILL: what it had started may live on."""
        if self._ray.poll() is None:
            starter = psutil.Process(self._ray.pid)
            for process in (starter, *starter.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._ray.wait(timeout=60)

    def redline(self, *args: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run `redline …` on this machine."""
        command = [sys.executable, "-m", "redline.cli.main", *args]
        return self.machine.run(*command, variables={**self.variables, **variables}, timeout_s=900)
