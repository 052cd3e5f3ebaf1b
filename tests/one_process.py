"""Commands of Redline, one after the other, in one process that is not this one: it loads what they need once."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

OBEY = """
import contextlib, io, json, sys
from redline.cli.main import main
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


class Redline(Protocol):
    """Runs one command to its end."""

    def __call__(self, *args: object) -> Ended: ...


@contextmanager
def redline_in(folder: Path, *, environ: Mapping[str, str], python: Path = Path(sys.executable)) -> Iterator[Redline]:
    """Start the process in a folder, and end it with the block."""
    process = subprocess.Popen(
        [str(python), "-c", OBEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environ
    )

    def run(*args: object) -> Ended:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(arg) for arg in args]) + "\n")
        process.stdin.flush()
        return Ended(*json.loads(process.stdout.readline()))

    with process:
        yield run
        process.communicate()
