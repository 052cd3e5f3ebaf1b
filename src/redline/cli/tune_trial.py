"""`python -m redline.cli.tune_trial TUNER train …`: a run of a search, which the kernel ends when its tuner does."""

import os
import sys
from collections.abc import Sequence

from redline.cli.main import FAILED, main
from redline.runtime.processes.process_pool import end_with_parent


def run(args: Sequence[str]) -> int:
    """Run `redline` as the arguments behind the tuner's process id say."""
    end_with_parent()
    if os.getppid() != int(args[0]):  # it had ended before the kernel was told
        return FAILED
    return main(args[1:])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
