"""`python -m redline.cli.tune_trial TUNER train …`: a run of a search that dies with its tuner."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

from redline.cli.main import FAILED, main  # loads nothing slow: a tuner may be killed while its run still starts

PR_SET_PDEATHSIG = 1


def run(args: Sequence[str]) -> int:
    """Run `redline` with the arguments after the tuner's process id; the kernel kills this process with the tuner."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    return main(args[1:]) if os.getppid() == int(args[0]) else FAILED  # the tuner had already ended


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
