"""`redline resume RUN`: go on with a run that was stopped or killed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import tyro

from redline.cli.flags import ENV_COUNTS, scan
from redline.cli.parsing import parse, split_run
from redline.cli.stopping import StopRequest
from redline.cli.train import command_begun_s, display, train
from redline.runtime.config import Job
from redline.runtime.launch import resume_run
from redline.runtime.resolve import reopened, share_out
from redline.runtime.resuming import read_run

# flags that decide what others, where not typed, are to be
DECIDE_OTHERS = {**ENV_COUNTS, "topology": "topology", "pacing": "pacing"}


@dataclass(frozen=True)
class ResumeFlags:
    """Go on with a run. The defaults shown are the run's own; docs/resume.md lists what may change."""

    job: Annotated[Job, tyro.conf.arg(name="")]
    """What the run does."""
    plain: bool = False
    """Plain lines instead of the live panel."""
    json: bool = False
    """Print the summary as one JSON object on stdout, and nothing else there."""


def run(args: Sequence[str]) -> int:
    """Resume as the flags say and return the exit code."""
    if "--help" in args[:1] or "-h" in args[:1]:
        parse(ResumeFlags, args, default=ResumeFlags(job=Job()), prog="redline resume RUN")
    path, rest = split_run(args, "resume")
    with StopRequest() as stop:
        saved = read_run(path)
        flags = parse_resume(saved.job, rest)
        title = f"redline · {saved.algorithm} on {flags.job.env.id} · seed {flags.job.seed}"
        with display(title, plain=flags.plain, as_json=flags.json) as watcher:
            go_on = partial(resume_run, saved, flags.job, watcher, stop.reason, begun_s=command_begun_s())
            return train(go_on, watcher, stop, as_json=flags.json)


def parse_resume(saved: Job, args: Sequence[str]) -> ResumeFlags:
    """Return what the user asks a run to go on with, or raise UserError in one line."""
    typed = scan(args, DECIDE_OTHERS)
    start = ResumeFlags(job=reopened(saved, typed))
    flags = parse(ResumeFlags, args, default=start, prog="redline resume RUN")
    return replace(flags, job=share_out(flags.job, typed))
