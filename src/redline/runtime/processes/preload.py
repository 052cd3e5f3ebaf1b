"""Loads everything in the fork server before it forks, so that a new process starts at once; imported only there.

The server must have no threads. It must ignore the stop signals: when it ends, all processes that it forked end too.
"""

import os
from importlib import import_module

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is loaded: it would start threads

import_module("redline.runtime.processes.process_pool").become_server()
import_module("redline.runtime.processes.roles")
