"""`redline resume RUN`: continue a run that was stopped or killed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import tyro

from redline.cli.displays import open_display
from redline.cli.flags import ENV_COUNTS, refuse_replay_flags, scan
from redline.cli.parsing import Json, Plain, Run, parse
from redline.cli.stopping import StopRequest
from redline.cli.train import command_begun_s, train
from redline.errors import UserError
from redline.runs.locating import locate_run
from redline.runtime.config import Job
from redline.runtime.launch import resume_run
from redline.runtime.resolve import reopened, share_out
from redline.runtime.resuming import read_run

# flags that decide the defaults of others
DECIDE_OTHERS = {**ENV_COUNTS, "topology": "topology", "pacing": "pacing"}


@dataclass(frozen=True)
class ResumeFlags:
    """Continue a run. The defaults shown are the run's own; docs/resume.md lists what may change."""

    run: Run
    job: Annotated[Job, tyro.conf.arg(name="")]
    """What the run does."""
    accept_changes: bool = False
    """Accept that somebody changed run.json since Redline wrote it."""
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """Resume as the flags say and return the exit code."""
    first = next((arg for arg in args if arg not in ("--plain", "--json")), "-")
    if first.startswith("-") and first not in ("-", "-h", "--help"):  # the run decides the defaults of the flags
        raise UserError(f"resume needs a run directory before its flags: redline resume last {first} …")
    if first.startswith("-"):  # prints the help, or asks for a run
        parse_resume(Job(), [arg for arg in args if arg in ("-h", "--help")])
    with StopRequest() as stop:
        saved = read_run(locate_run(first), accepts_changes="--accept-changes" in args)
        refuse_replay_flags(args, saved.job, saved.algorithm)
        flags = parse_resume(saved.job, args)
        title = f"redline · {saved.algorithm} on {flags.job.env.id} · seed {flags.job.seed}"
        with open_display(title, plain=flags.plain, as_json=flags.json) as display:
            proceed = partial(resume_run, saved, flags.job, display, stop.reason, begun_s=command_begun_s())
            return train(proceed, display, stop, as_json=flags.json)


def parse_resume(saved: Job, args: Sequence[str]) -> ResumeFlags:
    """Return what the user changes about a run, or raise UserError in one line."""
    typed = scan(args, DECIDE_OTHERS)
    start = ResumeFlags(run=tyro.MISSING, job=reopened(saved, typed))
    flags = parse(ResumeFlags, args, default=start, prog="redline resume")
    return replace(flags, job=share_out(flags.job, typed))
