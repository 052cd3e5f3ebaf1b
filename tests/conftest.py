"""What the tests of several rooms need: the program as a user runs it, and a display that only listens."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from tyro import _unsafe_cache

from redline.cli.main import BAD_INPUT, main
from redline.cli.process import SHORT_SPIN

sys.path.append(str(Path(__file__).parent))  # for the modules that several folders import
os.environ.update(SHORT_SPIN)  # before torch is loaded: the tests may share their cores

import torch

import probes
from redline.runs import host
from redline.runtime import replay_sizing
from redline.runtime.gauges import Gauges

replay_sizing.MEASURED_STEPS = 200  # of a game, to learn how small its frames become: enough for a test
probes.register()
host.commit = cache(host.commit)  # three processes of git for every run otherwise
# under pytest tyro checks one cached answer in ten, and raises KeyError if the check itself empties the cache
_unsafe_cache.sys = SimpleNamespace(modules={})

for number in (signal.SIGINT, signal.SIGHUP):  # a shell that starts the tests in the background lets them be ignored
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

PROGRAM = (sys.executable, "-m", "redline.cli.main")

RunProgram = Callable[..., "subprocess.CompletedProcess[str]"]
StartProgram = Callable[..., "subprocess.Popen[str]"]
SendSignal = Callable[[signal.Signals], None]
MainBeside = Callable[[Callable[[SendSignal], object], Sequence[object]], int]


class Listener:
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.readings: list[Gauges] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def show(self, gauges: Gauges) -> None:
        self.readings.append(gauges)


@pytest.fixture(autouse=True)
def leave_the_processor_as_it_was() -> Iterator[None]:
    """A run lets the processor round tiny numbers to 0, for as long as the process lives."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def run_program() -> RunProgram:
    """Run `redline …` to its end."""

    def run(*args: object, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        command = [*PROGRAM, *(str(arg) for arg in args)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)

    return run


@pytest.fixture
def start_program() -> Iterator[StartProgram]:
    """Start `redline …` and go on; what a test leaves behind is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: object) -> "subprocess.Popen[str]":
        command = [*PROGRAM, *(str(arg) for arg in args)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for program in started:
        if program.poll() is None:
            program.kill()
            program.communicate()


@pytest.fixture
def main_beside() -> MainBeside:
    """Run `redline …` in this process, which costs less than one of its own, while a thread acts and sends signals."""

    def run(act: Callable[[SendSignal], object], args: Sequence[object]) -> int:
        failures: list[BaseException] = []
        is_over = threading.Event()

        def send(number: signal.Signals) -> None:
            assert not is_over.is_set(), "the command ended too early"
            os.kill(os.getpid(), number)

        def act_to_the_end() -> None:
            try:
                act(send)
            except BaseException as error:
                failures.append(error)
                if not is_over.is_set():
                    send(signal.SIGTERM)

        thread = threading.Thread(target=act_to_the_end)
        thread.start()
        code = main([str(arg) for arg in args])
        is_over.set()
        thread.join()
        if failures:
            raise failures[0]
        return code

    return run


@pytest.fixture
def mount_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount file systems of a given size, where this user may mount one."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        disk = tmp_path / "disk"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("this user cannot mount a tmpfs")
        mounted.append(disk)
        return disk

    yield mount
    for disk in mounted:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def small_disk(mount_disk: Callable[[str], Path]) -> Path:
    """A file system of 1 MB."""
    return mount_disk("1m")


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[Sequence[str], str], None]:
    """Run a command; check that it says this in one line, prints nothing else, and exits with code 2."""

    def check(args: Sequence[str], message: str) -> None:
        capsys.readouterr()
        assert main(list(args)) == BAD_INPUT
        out, err = capsys.readouterr()
        assert message in err
        assert err.startswith("redline: ")
        assert err.count("\n") == 1
        assert out == ""

    return check
