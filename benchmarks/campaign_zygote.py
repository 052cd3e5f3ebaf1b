"""A process that has imported Redline and runs its commands in forks of itself: a command costs milliseconds.

Orders come as lines of JSON on stdin. Each is answered by the pid of the fork, and by its exit code when it has ended.
"""

import _posixsubprocess
import atexit
import ctypes
import faulthandler
import gc
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

LIMITS = {
    "memory": resource.RLIMIT_AS,
    "descriptors": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
}
SET_NAME, SET_CHILD_SUBREAPER = 15, 36  # of prctl
SPARE = "campaign-spare"  # name of a fork that waits to become a process of the command
MESSAGE_BYTES, HIGH = 1 << 20, 400
EARLY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # wait until the command takes them
CLOSED = "closed"  # in place of the file for stdout
# what a signal does before these lines is Python's affair
COLD_START = """\
import faulthandler, signal, sys
faulthandler.register(signal.SIGUSR2, file=2)
from redline.cli import start, take_signals
awake = sys.argv.pop(1)
take_signals()
open(awake, "w").close()
sys.exit(start())
"""
UNFLUSHED = 120  # Python's exit code if the last output can't be written
# loaded only when they are needed, by commands or by what they use: an optimiser takes a second to import torch._dynamo
LATE_IMPORTS = (
    *("torch.utils.tensorboard", "torch._dynamo", "torch.profiler._cupti_monitor", "numpy.ctypeslib", "typeguard"),
    *("gymnasium.envs.classic_control", "matplotlib.pyplot", "optuna", "av"),
)


def serve() -> None:
    """Obey orders until stdin ends."""
    heed_signals()
    load()
    gc.freeze()  # forks share what is loaded
    adopt_orphans()
    spent_s = sum(os.times()[:4])
    with os.fdopen(os.dup(0), encoding="utf-8") as orders:
        answer({"ready": os.getpid()})
        while line := orders.readline():
            order: dict[str, Any] = json.loads(line)
            signal.pthread_sigmask(signal.SIG_BLOCK, EARLY)
            pid = os.fork()
            if pid == 0:
                leave(order)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY)
            answer({"pid": pid})
            ended = 0
            while ended != pid:
                ended, status, usage = os.wait4(-1, 0)
            before_s, spent_s = spent_s, sum(os.times()[:4])  # its own, and of all that has ended
            answer(
                {
                    "code": os.waitstatus_to_exitcode(status),
                    "peak_bytes": usage.ru_maxrss * 1024,
                    "processor_s": spent_s - before_s,
                }
            )


def heed_signals() -> None:
    """Let commands get every signal, even if the campaign was started by nohup or in the background of a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent has ended, so that their processor time is known."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)


def load() -> None:
    """Import every command, and what they import late."""
    rooms = iter_modules(import_module("redline.cli").__path__)
    for name in (*(f"redline.cli.{room.name}" for room in rooms), *LATE_IMPORTS):
        try:
            import_module(name)
        except ImportError as error:  # an extra that is not installed
            print(f"{name}: {error}", file=sys.stderr)
    # half of parsing is to look at types and their docstrings, which Python remembers
    import_module("redline.cli.flags").parse_train(("--env", "CartPole-v1"))


def answer(fact: dict[str, float]) -> None:
    """Tell the campaign."""
    os.write(1, json.dumps(fact).encode() + b"\n")


def obey(order: dict[str, Any]) -> int:
    """Become the command: its folder, environment, limits and streams; return its exit code."""
    os.setsid()
    os.environ.update(order["environ"])
    os.chdir(order["cwd"])
    for group in order["cgroups"]:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, order["out"]), (2, order["err"])):
        if path == CLOSED:
            os.close(number)
            sys.stdout = None  # as Python starts with a closed descriptor
        else:
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    faulthandler.register(signal.SIGUSR2, file=2)  # where it hangs
    for name, value in order["limits"].items():
        resource.setrlimit(LIMITS[name], (value, value))
    if order["awake"]:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY)
        program = [sys.executable, "-P", "-c", COLD_START]
        os.execv(sys.executable, [*program, order["awake"], *order["argv"]])  # noqa: S606
    for _ in range(order["spares"]):
        spare_code = add_spare()
        if spare_code is not None:
            return spare_code
    if order["clock_jump_s"]:
        bend_clock(*order["clock_jump_s"])
    sys.argv = ["redline", *order["argv"]]
    import_module("redline.cli").take_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY)
    code: int = import_module("redline.cli.main").main()  # the two as the console script does
    return code


spares: list[tuple[int, socket.socket]] = []  # pids and where they listen
start_process: Callable[..., int] = _posixsubprocess.fork_exec


def add_spare() -> int | None:
    """Fork a process that can become an interpreter of the command with everything loaded; in it, return its code."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        for _, other in spares:
            other.close()
        spares.clear()
        ours.close()
        return serve_as_spare(theirs)
    theirs.close()
    spares.append((pid, ours))
    for module, name in ((_posixsubprocess, "fork_exec"), (subprocess, "_fork_exec")):
        setattr(module, name, start_warm)
    return None


def start_warm(argv: Sequence[Any], *rest: Any) -> int:
    """Do what `fork_exec` does, by a spare if it is an interpreter that would load Redline first."""
    words = [os.fsdecode(word) for word in argv]
    is_ours = words[0] == sys.executable and "redline" in " ".join(words[1:3]) and words[1] in ("-m", "-c")
    pass_fds, cwd, environ, streams = rest[2], rest[3], rest[4], (rest[5], rest[8], rest[10])
    while is_ours and spares:
        pid, listener = spares.pop()
        targets = {target: fd for target, fd in enumerate(streams) if fd != -1} | {fd: fd for fd in pass_fds}
        message = {
            "words": words[1:],
            "cwd": None if cwd is None else os.fsdecode(cwd),
            "environ": None if environ is None else [os.fsdecode(item) for item in environ],
            "targets": list(targets),
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "is_leader": bool(rest[14]),
        }
        try:
            with listener:
                socket.send_fds(listener, [json.dumps(message).encode()], list(targets.values()))
        except OSError:  # it was killed
            continue
        return pid
    return start_process(argv, *rest)


def serve_as_spare(listener: socket.socket) -> int:
    """Wait for what to become, or for the end of the command."""
    ctypes.CDLL(None).prctl(SET_NAME, SPARE.encode())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY)
    data, descriptors, _, _ = socket.recv_fds(listener, MESSAGE_BYTES, 64)
    if not data:
        return 0
    listener.close()
    ctypes.CDLL(None).prctl(SET_NAME, b"python")
    message = json.loads(data)
    for at, fd in enumerate(descriptors):
        os.dup2(fd, HIGH + at)
        os.close(fd)
    for at, target in enumerate(message["targets"]):
        os.dup2(HIGH + at, target)
        os.close(HIGH + at)
    if message["is_leader"]:
        os.setsid()
    if message["cwd"] is not None:
        os.chdir(message["cwd"])
    if message["environ"] is not None:
        os.environ.clear()
        os.environ.update(item.split("=", 1) for item in message["environ"])
    signal.pthread_sigmask(signal.SIG_SETMASK, message["blocked"])
    how, program, *argv = message["words"]
    sys.argv = [how, *argv]
    if how == "-c":
        exec(program, {"__name__": "__main__"})  # noqa: S102  what the interpreter would do with it
    else:
        warnings.filterwarnings("ignore", module="runpy")  # it is loaded already
        runpy.run_module(program, run_name="__main__")
    return 0


def bend_clock(after_s: float, by_s: float) -> None:
    """Let this process's clock jump, as it does when somebody sets it."""
    true_unix_s, jumps_at_s = time.time, time.monotonic() + after_s
    time.time = lambda: true_unix_s() + (by_s if time.monotonic() >= jumps_at_s else 0.0)


def leave(order: dict[str, Any]) -> None:
    """Obey, and end as Python ends, but without taking apart what was loaded: that costs most of a second."""
    code: object = 1
    try:
        code = obey(order)
    except SystemExit as wanted:
        code = wanted.code
    except BaseException:  # Python would print it too
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError as error:
        os.write(2, f"Exception ignored in the last flush: {error}\n".encode())
        code = UNFLUSHED
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    serve()
