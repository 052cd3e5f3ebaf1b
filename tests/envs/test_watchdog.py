"""A silent emulator becomes an error, not a hang; in a process of its own, for its worker threads are dead after."""

import subprocess
import sys
import threading

import pytest

from redline.worker import Worker

HANG = """
import signal, time
import numpy as np
from redline.envs.atari import AtariVectorEnv
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig

env = AtariVectorEnv(resolve("pong"), EnvConfig(), num_envs=2, seed=7, threads=1, recv_timeout_s=1.5)
env.reset()
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
raw_send = env._emulator.send
env._emulator.send = lambda actions: raw_send(np.array([0, 77]))
env.send(np.array([0, 1]))
signal.setitimer(signal.ITIMER_REAL, 0.2)
started = time.monotonic()
try:
    env.recv()
except RuntimeError as error:
    assert seen and seen[0] - started < 1.0, "the signal waited for the emulator"
    assert 1.4 < time.monotonic() - started < 10
    env.close()
    print(error)
"""


def test_emulator_that_never_answers_raises_and_the_process_can_end():
    done = subprocess.run([sys.executable, "-c", HANG], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "pong: no answer from the emulators within 1.5 s" in done.stdout
    assert "lanes 0 … 1, seeds [" in done.stdout
    assert "actions [0, 1]" in done.stdout


def test_a_worker_hands_over_results_and_errors():
    worker = Worker("test")
    worker.submit(lambda: threading.current_thread().name)
    assert worker.result(5) == "test"
    worker.submit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        worker.result(5)
    with pytest.raises(TimeoutError):
        worker.result(0.01)
    worker.close(5)
    assert "test" not in {thread.name for thread in threading.enumerate()}
