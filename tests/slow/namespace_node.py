"""Namespaces that stand for a machine: network, processes, host name and mounts; it can be lost at once."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

# bash reaps what its namespace leaves; it ends with our end of its input, and all others of the namespace with it
INIT = """
hostname "$1" && ip link set lo up &&
mount --make-rprivate / && mount -t tmpfs tmpfs /mnt &&
echo "127.0.0.1 localhost $1" > /mnt/hosts && mount --bind /mnt/hosts /etc/hosts &&
echo ready && read -r
"""


def skip_without_namespaces() -> None:
    """Skip a test where namespaces can't be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes network namespaces")
    if missing := [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install iproute2 util-linux")
    command = ["unshare", "--net", "--pid", "--fork", "--mount", "--uts", "true"]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody make namespaces")


class Machine:
    """A machine of its own; `kill` takes it away."""

    def __init__(self, host: str) -> None:
        command = [
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "--mount-proc",
            "--mount",
            "--uts",
            "bash",
            "-c",
            INIT,
            "init",
        ]
        self.host = host
        self._started: list[subprocess.Popen[bytes]] = []
        self._holder = subprocess.Popen(
            [*command, host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where it says that it was killed
            text=True,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text(encoding="ascii")
        self.init_pid = int(children.split()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def command(self, args: Sequence[object]) -> list[str]:
        """Return the command that runs another one inside."""
        inside = ["nsenter", "--net", "--pid", "--mount", "--uts", f"--target={self.init_pid}"]
        return [*inside, f"--wd={Path.cwd()}", *map(str, args)]

    def start(self, *args: object, log: Path, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
        """Start a command inside."""
        with log.open("ab") as output:
            program = subprocess.Popen(
                self.command(args),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(variables or {})},
                start_new_session=True,
            )
        self._started.append(program)
        return program

    def run(
        self,
        *args: object,
        variables: Mapping[str, str] | None = None,
        text: str | None = None,
        timeout_s: float = 120.0,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command inside to its end; `text` is its input."""
        return subprocess.run(
            self.command(args),
            input=text or "",
            capture_output=True,
            text=True,
            env={**os.environ, **(variables or {})},
            timeout=timeout_s,
            check=False,
        )

    def do(self, *args: object) -> None:
        """Run a command that must succeed."""
        done = self.run(*args)
        assert done.returncode == 0, f"{args}: {done.stderr}"

    def kill(self) -> None:
        """End all processes inside at once, by SIGKILL."""
        if self._holder.poll() is None:
            os.kill(self.init_pid, signal.SIGKILL)
            self._holder.wait(timeout=60)
            for program in self._started:
                program.wait(timeout=60)
        for stream in (self._holder.stdin, self._holder.stdout):
            if stream is not None:
                stream.close()
