"""Command lines and configuration files from the real option types, and how each is run and judged."""

import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from campaign_options import SWITCH, Command
from campaign_oracles import BAD_INPUT, Fault, judge
from campaign_place import Place
from campaign_process import Order
from campaign_words import near_misses, toml_values, typed_option
from campaign_workshop import SPARES, Workshop

TRIES = 4  # of Hypothesis for one line: its first is always the simplest
READERS = ("resume", "watch", "eval", "episodes", "play", "report", "replay", "dashboard")
# what keeps an accepted command short; what is drawn stands behind it and overrides it
SHORT = {
    "train": ("--env", "CartPole-v1", "--max-steps", "16", "--warmup-steps", "8", "--replay.capacity", "2000"),
    "profile": ("--env", "CartPole-v1", "--rounds", "1", "--turn-seconds", "0.01", "--warmup-steps", "8"),
    "resume": ("--max-steps", "24"),
    "eval": ("--episodes", "1"),
    "plan memory": ("--env", "CartPole-v1", "--seconds", "0.05"),
    "plan disk": ("--env", "CartPole-v1", "--seconds", "0.05"),
    "plan run": ("--env", "CartPole-v1"),
    "bench env": ("--rounds", "1", "--turn-seconds", "0.01", "--num-envs", "1"),
    "bench learner": ("--rounds", "1", "--turn-seconds", "0.01", "--batch-size", "4"),
    "bench train": ("--rounds", "1", "--seconds", "0.01", "--warmup-steps", "8"),
    "bench replay": ("--rounds", "1", "--turn-seconds", "0.01", "--games", "pong", "--transitions", "200"),
    "tune": ("--env", "CartPole-v1", "--model", "ppo", "--goal", "return-at-steps:100", "--trials", "1"),
    "fleet start": ("--games", "CartPole-v1", "--model", "ppo", "--max-steps", "16"),
    "dashboard": ("--port", "0"),
}
OF_FLEET = tuple(f"fleet {subject}" for subject in ("status", "resume", "stop", "change", "report"))
TRAINS_OWN = ("train", "profile")
NO_REPLAY = ("ppo", "a2c", "pqn", "a2c-gae")
# commands that start interpreters, and which subject does the same
STARTS = {("tune",): "study", ("fleet", "start"): "fleet", ("fleet", "resume"): "fleet"}
LOCK_TAKEN = "run/run.lock was changed"  # for a moment, while the run was looked at
ASK_AFTER_S, LIMIT_S = 8.0, 40.0
SERVES_S = 1.0  # of a command that goes on until it is asked


@dataclass(frozen=True)
class Line:
    """A command line, the configuration file that it may name, and whether it needs a run."""

    argv: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)  # name → content, with surrogates for bytes that are no UTF-8

    def row(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "argv": [_shown(word) for word in self.argv],
            "files": {name: _shown(text) for name, text in self.files.items()},
        }


def draw_line(commands: Sequence[Command], *, seed: int, index: int) -> Line:
    """Return command line number `index` of a seed; the same numbers give the same line."""
    drawn: list[Line] = []

    @seeded(seed * 1_000_003 + index)
    @settings(
        max_examples=TRIES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(lines(commands))
    def keep(line: Line) -> None:
        drawn.append(line)

    keep()
    return drawn[-1]


@st.composite
def lines(draw: st.DrawFn, commands: Sequence[Command]) -> Line:
    """Draw a command line of any command; every fifth names a configuration file."""
    train = next(command for command in commands if command.name == "train")
    command = train if draw(st.sampled_from(range(10))) < 4 else draw(st.sampled_from(commands))
    if draw(st.sampled_from(range(5))) == 0:
        text = draw(st.one_of(config_files(train), garbage()))
        words = ("tune", "--space", "job.toml", *SHORT["tune"]) if draw(st.sampled_from(range(10))) == 0 else None
        argv = words or ("train", "--config", "job.toml", "--max-steps", "16")
        return Line(_with_json(argv, draw(st.booleans())), {"job.toml": text})
    drawn: list[str] = []
    for option in draw(st.lists(st.sampled_from(command.options), max_size=4)) if command.options else ():
        drawn += draw(typed_option(option))
    argv = (*command.words, *_operands(draw, command), *_short(command, drawn), *drawn)
    if draw(st.sampled_from(range(40))) == 0:
        argv = (draw(near_misses(f"  {command.words[0]}")).strip(), *argv[1:])
    return Line(_with_json(argv, draw(st.booleans())))


def _with_json(argv: tuple[str, ...], is_json: bool) -> tuple[str, ...]:
    at = 2 if len(argv) > 1 and not argv[1].startswith("-") else 1
    return (*argv[:at], "--json", *argv[at:]) if is_json and "--json" not in argv and "--" not in argv else argv


def _operands(draw: st.DrawFn, command: Command) -> tuple[str, ...]:
    """Return what stands before the flags: a run, a fleet, a list of runs, a shell."""
    if command.name in OF_FLEET:
        return (
            draw(st.sampled_from(("fleet", "fleet", "fleet", "fleet", "run", ".", "nowhere", "", "fifo", "\udcff"))),
        )
    match command.words[0]:
        case name if name in READERS:
            return (
                draw(
                    st.sampled_from(
                        ("run", "run", "run", "run", ".", "last", "nowhere", "", "fifo", "x" * 300, "\udcff")
                    )
                ),
            )
        case "completion":
            return (draw(st.sampled_from(("bash", "zsh", "fish", ""))),)
        case "recipes" | "algos" | "envs":
            return draw(
                st.sampled_from(((), ("pong",), ("dqn",), ("dqm",), ("",), ("x" * 300,), ("\x1b[31m",), ("\udcff",)))
            )
    return ()


def _short(command: Command, drawn: Sequence[str]) -> tuple[str, ...]:
    short = SHORT.get(command.name, ())
    if command.words[0] in TRAINS_OWN and any(word.rpartition("=")[2] in NO_REPLAY for word in drawn):
        short = tuple(word for word in short if word not in ("--replay.capacity", "2000"))
    if command.name == "monitor" and "--pid" not in drawn:
        return ()
    return short


@st.composite
def config_files(draw: st.DrawFn, train: Command) -> str:
    """Draw a TOML file of some settings, seldom with names that are unknown or given twice."""
    rows = ["env = 'CartPole-v1'"] if draw(st.sampled_from(range(6))) else []
    options = [option for option in train.options if option.takes != SWITCH]
    for option in draw(st.lists(st.sampled_from(options), min_size=1, max_size=4)):
        is_misspelt = draw(st.sampled_from(range(12))) == 0
        name = (draw(near_misses(option.flag)) if is_misspelt else option.flag).strip("-") or "x"
        rows.append(f"{name} = {draw(toml_values(option))}")
    return "\n".join(rows) + "\n"


def garbage() -> st.SearchStrategy[str]:
    """Return files that are no settings."""
    binary = st.binary(min_size=1, max_size=60).map(lambda raw: raw.decode(errors="surrogateescape"))
    known = st.sampled_from(
        (
            "\0",
            "\ufeffenv = 'pong'\n",
            "{}",
            "[",
            "x = " + "[" * 5_000,
            "a." * 3_000 + "b = 1",
            "[[env]]\n",
            "[env]\n[env]\n",
            "\udcff",
            "env = {id = 5}\n",
            "[recipe]\nname = 5\n",
            "x" * 3_000_000,
        )
    )
    return st.one_of(binary, known)


def run_line(line: Line, workshop: Workshop, place: Place) -> list[Fault]:
    """Run a command line in a fresh folder and judge it; a line that is refused must leave nothing behind."""
    for name, text in line.files.items():
        (place.cwd / name).write_bytes(text.encode(errors="surrogateescape"))
    os.mkfifo(place.cwd / "fifo")
    (place.cwd / "file").write_text("a file\n", encoding="utf-8")
    if line.argv[0] in READERS:
        shutil.copytree(workshop.subject("tiny").path, place.cwd / "run", symlinks=True)
    if line.argv[0] == "fleet":
        shutil.copytree(workshop.subject("fleet").path, place.cwd / "fleet", symlinks=True)
    place.remember(place.cwd)
    order = Order(
        line.argv,
        limit_s=LIMIT_S,
        ask_after_s=SERVES_S if line.argv[0] == "dashboard" else ASK_AFTER_S,
        environ={"WANDB_MODE": "disabled", "BROWSER": "true"},  # no browser is opened
        spares=next((SPARES[STARTS[words]] for words in (line.argv[:1], line.argv[:2]) if words in STARTS), 0),
    )
    outcome = workshop.zygote.run(order, place)
    faults = judge(outcome, allowed=(-signal.SIGTERM,) if outcome.was_asked else ())  # kills ask earlier and say more
    changed = [change for change in place.changes(place.cwd) if change != LOCK_TAKEN]
    if outcome.code == BAD_INPUT and changed:
        faults.append(Fault("left files", f"{line.argv[0]} was refused: {', '.join(changed)[:200]}"))
    return faults


def size_of(line: Line) -> int:
    """Return how large a case is: the smallest of several like ones is shown."""
    return len(json.dumps(line.row()))


def _shown(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:40]}… ({len(text)} characters)"
