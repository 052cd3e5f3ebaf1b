"""A silent emulator becomes an error, not a hang; in a process of its own, for its worker threads are dead after."""

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from redline.envs.atari import AtariVectorEnv
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
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


UNSENT = """
import time
import numpy as np
from redline.envs.atari import AtariVectorEnv
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig

def interrupt(actions):
    raise KeyboardInterrupt

env = AtariVectorEnv(resolve("pong"), EnvConfig(), num_envs=1, seed=7, threads=1, recv_timeout_s=30.0)
env.reset()
env._emulator.send = interrupt
started = time.monotonic()
try:
    env.send(np.array([0]))
except KeyboardInterrupt:
    env.close()
    print(time.monotonic() - started)
"""


def test_an_interrupt_before_the_actions_are_sent_leaves_nothing_to_wait_for():
    done = subprocess.run([sys.executable, "-c", UNSENT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 15.0


def test_a_worker_hands_over_results_and_errors():
    worker = Worker("test")
    name, failure, late = (
        worker.submit(job) for job in (lambda: threading.current_thread().name, lambda: 1 // 0, lambda: 2)
    )
    assert worker.result(name, 5) == "test"
    with pytest.raises(ZeroDivisionError):
        worker.result(failure, 5)
    assert worker.result(worker.submit(lambda: 3), 5) == 3  # the one before is dropped
    with pytest.raises(TimeoutError):
        worker.result(late, 0.01)
    worker.close(5)
    assert "test" not in {thread.name for thread in threading.enumerate()}


def test_an_answer_that_an_interrupt_left_behind_is_not_taken_for_the_next_one():
    class InterruptedByTestError(Exception):
        pass

    def interrupt(*_):
        raise InterruptedByTestError

    env = AtariVectorEnv(resolve("pong"), EnvConfig(), num_envs=1, seed=7, threads=1)
    twin = AtariVectorEnv(resolve("pong"), EnvConfig(), num_envs=1, seed=7, threads=1)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # a seeded reset takes a hundred times as long
        with pytest.raises(InterruptedByTestError):
            env.reset()
    finally:
        signal.signal(signal.SIGALRM, before)
    twin.reset()
    np.testing.assert_array_equal(env.reset(), twin.reset())
    for one in (env, twin):
        one.send(np.array([2]))
    np.testing.assert_array_equal(env.recv().frames, twin.recv().frames)
    env.close()
    twin.close()
