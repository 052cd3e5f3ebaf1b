"""What the fork server loads before it forks, so that a process is there in no time; imported there and only there.

The server must have no threads, and must outlive the signals that are meant for the supervisor: when the server ends,
all that it forked end too.
"""

import os
from importlib import import_module

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is loaded: it would start threads

import_module("redline.runtime.processes.child").become_server()
for role in ("actor", "learner", "evaluator"):
    import_module(f"redline.runtime.processes.{role}_role")
