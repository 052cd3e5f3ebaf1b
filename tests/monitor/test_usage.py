import os
import subprocess
import sys
import time

import psutil
import pytest

from redline.monitor.usage import ProcessUsage


def burn_cpu(seconds: float) -> None:
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass


def test_busy_process_uses_the_cpu_time_it_was_given() -> None:
    usage = ProcessUsage()
    start_s = time.monotonic()
    burn_cpu(0.3)
    time.sleep(0.1)
    sample = usage.sample()
    expected = 100.0 * 0.3 / (time.monotonic() - start_s)
    assert sample.cpu_percent_of_core == pytest.approx(expected, rel=0.25)
    assert sample.cpu_percent_of_machine == pytest.approx(sample.cpu_percent_of_core / (os.cpu_count() or 1))


def test_each_sample_covers_only_its_own_interval() -> None:
    usage = ProcessUsage()
    burn_cpu(0.2)
    usage.sample()
    time.sleep(0.2)
    assert usage.sample().cpu_percent_of_core < 30.0


def test_memory_is_that_of_the_process_and_of_the_machine() -> None:
    sample = ProcessUsage().sample()
    assert sample.rss_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    assert 0 < sample.available_bytes <= psutil.virtual_memory().total


def test_children_count_while_they_live() -> None:
    usage = ProcessUsage()
    before = usage.sample()
    code = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = usage.sample()
        child.communicate(b"\n")
    assert during.processes == before.processes + 1
    assert during.rss_bytes > before.rss_bytes
    assert during.cpu_percent_of_core * during.interval_s / 100.0 >= 0.35
    assert usage.sample().processes == before.processes


def test_sampling_does_not_wait() -> None:
    usage = ProcessUsage()
    start_s = time.monotonic()
    for _ in range(5):
        usage.sample()
    assert time.monotonic() - start_s < 1.0


def test_process_that_ended_uses_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        usage = ProcessUsage(child.pid)
        child.communicate(b"\n")
    sample = usage.sample()
    assert (sample.processes, sample.rss_bytes, sample.cpu_percent_of_core) == (0, 0, 0.0)
