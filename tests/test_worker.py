"""The end of a process waits for what its workers do, but not for ever."""

import subprocess
import sys

import pytest

JOB = """
import sys, threading, time
from redline.worker import Worker

def work():
    time.sleep(0.3)
    print("done")

Worker("test").submit({job})
sys.exit(3)
"""


@pytest.mark.parametrize(("job", "said"), [("work", "done\n"), ("threading.Event().wait", "")])
def test_a_process_ends_after_the_jobs_under_way_unless_one_never_ends(job: str, said: str) -> None:
    program = [sys.executable, "-c", JOB.format(job=job)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, said, "")
