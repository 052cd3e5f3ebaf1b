import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from redline.monitor.processes import ProcessUsage, Usage


def burn_cpu(seconds: float) -> None:
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass


def taken(usage: ProcessUsage) -> Usage:
    sample = usage.sample()
    assert sample is not None
    return sample


def test_busy_process_uses_the_cpu_time_it_was_given() -> None:
    usage = ProcessUsage()
    start_s = time.monotonic()
    burn_cpu(0.3)
    time.sleep(0.1)
    sample = taken(usage)
    expected = 100.0 * 0.3 / (time.monotonic() - start_s)
    assert sample.cpu_percent == pytest.approx(expected, rel=0.25)


def test_each_sample_covers_only_its_own_interval() -> None:
    usage = ProcessUsage()
    burn_cpu(0.2)
    usage.sample()
    time.sleep(0.2)
    assert taken(usage).cpu_percent < 30.0


def test_memory_is_that_of_the_process() -> None:
    assert taken(ProcessUsage()).rss_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


def test_another_process_is_sampled_by_its_number() -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        usage = ProcessUsage(child.pid)
        child.stdout.readline()
        sample = taken(usage)
        child.communicate(b"\n")
    assert 0.2 <= sample.cpu_percent * sample.interval_s / 100.0 <= 0.6


def test_sampling_does_not_wait() -> None:
    usage = ProcessUsage()
    start_s = time.monotonic()
    for _ in range(5):
        usage.sample()
    assert time.monotonic() - start_s < 1.0


def test_a_process_that_is_gone_gives_nothing_however_and_whenever_it_went() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        usage = ProcessUsage(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert usage.sample() is None  # dead, and nobody has asked for its exit code yet
    assert usage.sample() is None
    assert ProcessUsage(child.pid).sample() is None
