"""What must hold of every command, whatever was done to it."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from campaign_process import Outcome

DONE, FAILED, BAD_INPUT, RESUMABLE = 0, 1, 2, 75  # the exit codes that docs/commands.md promises
SIGTERM_CODE = -15
TRAINS = ("train", "resume", "tune", "fleet", "monitor")  # catch SIGTERM
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x9b]")
DETAIL_CHARACTERS = 300


@dataclass(frozen=True)
class Fault:
    """An oracle that says no."""

    oracle: str
    detail: str  # the same fault has the same detail, as far as possible

    def row(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"oracle": self.oracle, "detail": self.detail}


def judge(outcome: Outcome, *, allowed: Iterable[int] = ()) -> list[Fault]:
    """Return what is wrong with how a command ended; some exit codes may be allowed besides the four."""
    if outcome.is_hung:
        return [Fault("hang", f"{_command(outcome)}: {_where(outcome.err)}")]
    faults = [*_tracebacks(outcome), *_codes(outcome, set(allowed)), *_leftovers(outcome)]
    if not any(fault.oracle == "traceback" for fault in faults):
        faults += [*_lines(outcome), *_objects(outcome), *_escapes(outcome)]
    return faults


def _tracebacks(outcome: Outcome) -> list[Fault]:
    for text in (outcome.err, outcome.out):
        at = text.find("Traceback (most recent call last)")
        if at >= 0:
            return [Fault("traceback", _shape_of(text[at:]))]
        if "Exception ignored in" in text or "Fatal Python error" in text:
            return [Fault("traceback", _cut(text))]
    return []


def _codes(outcome: Outcome, allowed: set[int]) -> list[Fault]:
    allowed |= {DONE, FAILED, BAD_INPUT, RESUMABLE}
    if outcome.was_asked and outcome.argv[:1] and outcome.argv[0] not in TRAINS:
        allowed.add(SIGTERM_CODE)
    if outcome.code in allowed:
        return []
    return [Fault("exit code", f"{_command(outcome)} ended with {outcome.code}: {_last_line(outcome.err)}")]


def _leftovers(outcome: Outcome) -> list[Fault]:
    return [Fault("left running", f"{_command(outcome)}: {', '.join(outcome.left)}")] if outcome.left else []


def _lines(outcome: Outcome) -> list[Fault]:
    """Exit code 2 is told in one line."""
    if outcome.code != BAD_INPUT or not outcome.argv:
        return []
    lines = outcome.err.splitlines()
    refusals = [line for line in lines if line.startswith("redline: ")]
    if len(refusals) == 1 and lines[-1] is refusals[0]:
        return []
    return [
        Fault(
            "one line",
            f"{_command(outcome)}: {len(lines)} lines, {len(refusals)} of them redline's: {_cut(outcome.err)}",
        )
    ]


def _objects(outcome: Outcome) -> list[Fault]:
    """With --json there is one object on stdout."""
    argv = list(outcome.argv)
    typed = argv[: argv.index("--")] if "--" in argv else argv
    is_asked = "--json" in typed and not {"-h", "--help", "--help-all", "-V", "--version", "help"} & set(typed)
    if not is_asked or outcome.code < 0:
        return []
    try:
        is_object = isinstance(json.loads(outcome.out, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        is_object = False
    return (
        [] if is_object else [Fault("one object", f"{_command(outcome)}, code {outcome.code}: {_cut(outcome.out)!r}")]
    )


def _refuse(name: str) -> None:
    raise ValueError(name)


def _escapes(outcome: Outcome) -> list[Fault]:
    """Nothing that was read from a file or a command line may steer the terminal."""
    for name, text in (("stdout", outcome.out), ("stderr", outcome.err)):
        if found := CONTROL.search(text):
            around = text[max(found.start() - 40, 0) : found.end() + 20]
            return [Fault("escapes", f"{_command(outcome)} on {name}: {around!r}")]
    return []


def _command(outcome: Outcome) -> str:
    words = [word for word in outcome.argv[:2] if word.isalpha()]
    return " ".join(words) or "redline"


def _shape_of(trace: str) -> str:
    """Return the error and where it was raised last in Redline."""
    frames = re.findall(r'File "[^"]*?/(redline/[^"]+)", line (\d+), in (\S+)', trace)
    error = next((line for line in reversed(trace.splitlines()) if re.match(r"[A-Za-z_][\w.]*(:|$)", line)), "")
    at = f"{frames[-1][0]}:{frames[-1][2]}" if frames else "outside Redline"
    return f"{_general(error)[:120]} in {at}"


def _where(err: str) -> str:
    frames = re.findall(r'File "[^"]*?/(redline/[^"]+)", line \d+ in (\S+)', err)
    return " in ".join(frames[0][::-1]) if frames else "no trace of Redline"


def _general(text: str) -> str:
    """Return a text without numbers, quoted parts and paths, so that like faults look alike."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", text)
    text = re.sub(r"/[\w./-]+", "/…", text)
    return re.sub(r"\d+", "N", text)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return _general(lines[-1])[:DETAIL_CHARACTERS] if lines else "nothing on stderr"


def _cut(text: str) -> str:
    return _general(text.strip())[:DETAIL_CHARACTERS]
