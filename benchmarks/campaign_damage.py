"""Damage to every file of real runs, and every command that reads a run."""

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign_oracles import BAD_INPUT, DONE, Fault, judge
from campaign_place import Place
from campaign_process import Order
from campaign_ruin import ruin, ruins_for
from campaign_truth import judge_episodes, judge_evaluation, judge_weights, newest_checkpoint
from campaign_visits import DASHBOARD, visit
from campaign_workshop import EXACT, SPARES, Subject, Workshop

SUBJECTS = ("dqn", "dqn", "dqn", "dqn", "ppo", "ppo", "async", "async", "recording", "study", "fleet", "fleet")
READING: dict[str, tuple[str, ...]] = {
    "resume": ("resume", "run", "--json"),
    "resume plain": ("resume", "run", "--plain"),
    "eval": ("eval", "run", "--episodes", "2", "--seed", "0", "--json"),
    "report": ("report", "run", "--out", "page.html", "--episodes", "episodes.jsonl", "--json"),
    "report png": ("report", "run", "--out", "page.html", "--png", "png", "--plain"),
    "watch": ("watch", "run", "--plain"),
    "watch json": ("watch", "run", "--json"),
    "episodes": ("episodes", "run", "--json"),
    "episodes plain": ("episodes", "run", "--plain"),
    "play verify": ("play", "run", "--verify", "--json"),
    "play policy": ("play", "run", "--policy", "--episodes", "1", "--json"),
    "replay inspect": ("replay", "inspect", "run", "--out", "sheet.png", "--json"),
    "config": ("train", "--config", "run/run.json", "--print-config"),
    "dashboard": DASHBOARD,
}
OF_RECORDING = ("watch", "watch json", "report", "report png", "dashboard")
READING_STUDY: dict[str, tuple[str, ...]] = {
    "tune": ("tune", "--resume", "run", "--json"),
    "report": READING["report"],
    "watch json": READING["watch json"],
    "episodes": READING["episodes"],
    "dashboard": DASHBOARD,
}
READING_FLEET: dict[str, tuple[str, ...]] = {
    "fleet status": ("fleet", "status", "run", "--json"),
    "fleet status plain": ("fleet", "status", "run", "--plain"),
    "fleet resume": ("fleet", "resume", "run", "--json"),
    "fleet resume plain": ("fleet", "resume", "run", "--retry", "--plain"),
    "fleet stop": ("fleet", "stop", "run", "--json"),
    "fleet change": ("fleet", "change", "run", "--set", "gamma=0.9", "--json"),
    "fleet undo": ("fleet", "change", "run", "--undo", "--json"),
    "fleet report": ("fleet", "report", "run", "--json"),
    "dashboard": DASHBOARD,
}
OF_OTHERS = {"study": READING_STUDY, "fleet": READING_FLEET}  # what are no runs
WRITES_FLEET = tuple(name for name in READING_FLEET if name.startswith("fleet") and "status" not in name)
WRITES = ("resume", "resume plain", "play policy", "tune", *WRITES_FLEET)
NUM_ENVS = 4  # of the subjects
LIMIT_S, RESUME_LIMIT_S = 30.0, 90.0
BYTES_LIMIT = 3_000_000_000  # that a reader of a small run may take at most
MAX_SIZE = 1_000
TOP_WEIGHT = 6
BEHIND_SHARE = 0.3


@dataclass(frozen=True)
class Damage:
    """One damaged place of one run, and the command that meets it."""

    subject: str
    file: str  # below the run
    how: str  # kind of damage
    seed: str  # of the rest
    command: str
    is_behind: bool = False  # without its newest checkpoint, so that a resume has rows to set aside

    def row(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "subject": self.subject,
            "file": self.file,
            "how": self.how,
            "command": self.command,
            "behind": self.is_behind,
        }


def draw_damage(workshop: Workshop, *, seed: int, index: int) -> Damage:
    """Return damage number `index` of a seed."""
    rng = random.Random(f"{seed}:damage:{index}")  # noqa: S311  not for secrets
    subject = workshop.subject(rng.choice(SUBJECTS))
    file = rng.choice(places_in(subject.path))
    return Damage(
        subject=subject.name,
        file=file,
        how=rng.choice(ruins_for(subject.path / file)),
        seed=f"{seed}:{index}",
        command=rng.choice(commands_for(subject)),
        is_behind=rng.random() < BEHIND_SHARE,
    )


def places_in(run: Path) -> list[str]:
    """Return every file and folder below a run in a fixed order; those at the top and the newest checkpoint's often."""
    found = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    at_top = [name for name in found if "/" not in name]
    newest = [name for name in found if name.startswith(f"checkpoints/{newest_checkpoint(run)}/")]
    return found + TOP_WEIGHT * at_top + newest


def commands_for(subject: Subject) -> tuple[str, ...]:
    """Return the commands that read such a subject; those that write more often."""
    if subject.name == "recording":
        return OF_RECORDING
    names = tuple(OF_OTHERS.get(subject.name, READING))
    return (*names, *(name for name in names if name in WRITES), *(name for name in names if name.startswith("resume")))


def run_damage(damage: Damage, workshop: Workshop, place: Place) -> list[Fault]:
    """Damage a copy of the run, run the command and judge it."""
    subject, run = workshop.subject(damage.subject), place.cwd / "run"
    shutil.copytree(subject.path, run, symlinks=True)
    newest = run / "checkpoints" / str(newest_checkpoint(run))
    if damage.is_behind and newest.exists() and not (run / damage.file).is_relative_to(newest):
        shutil.rmtree(newest)
    ruin(run, damage.file, damage.how, outside=place.outside, rng=random.Random(damage.seed))  # noqa: S311
    place.remember(place.outside)  # what was put there is known
    place.remember(run)
    order = _order(damage, subject)
    running = workshop.zygote.start(order, place)
    faults = visit(running) if damage.command == "dashboard" else []
    outcome = running.finish()
    faults += judge(outcome)
    if changed := place.changes(place.outside):
        faults.append(Fault("outside", f"{damage.command} after {damage.how}: {', '.join(changed)}"))
    if damage.command not in WRITES and (changed := place.changes(run)):
        faults.append(Fault("reader wrote", f"{damage.command}: {', '.join(changed)[:200]}"))
    if outcome.peak_bytes > BYTES_LIMIT:
        faults.append(Fault("memory", f"{damage.command} after {damage.how}: more than {BYTES_LIMIT:_} bytes"))
    if damage.command.startswith("resume"):
        faults += (
            judge_weights(outcome, run, steps=subject.further_steps, expected=subject.weights)
            if subject.weights
            else []
        )
        if outcome.code == DONE and not damage.file.startswith("episodes"):
            faults += judge_episodes(run, num_envs=NUM_ENVS if subject.name in EXACT else None)
    if damage.command == "eval":
        faults += judge_evaluation(outcome, subject.returns)
    if outcome.code == BAD_INPUT and damage.command == "config" and not outcome.err.strip():
        faults.append(Fault("one line", "train --config was refused without a word"))
    return faults


def _order(damage: Damage, subject: Subject) -> Order:
    spares = SPARES.get(subject.name, 0) if damage.command in WRITES else 0
    if subject.name in OF_OTHERS:
        argv = OF_OTHERS[subject.name][damage.command]
        return Order(argv, limit_s=RESUME_LIMIT_S, ask_after_s=20.0, spares=spares)
    argv = READING[damage.command]
    if damage.command in WRITES:
        further = ("--max-steps", str(subject.further_steps)) if damage.command.startswith("resume") else ()
        return Order((*argv, *further), limit_s=RESUME_LIMIT_S, ask_after_s=60.0, spares=spares)
    return Order(argv, limit_s=LIMIT_S)


def size_of(damage: Damage) -> int:
    """Return how large a case is: a file at the top is simpler than one below."""
    return min(MAX_SIZE, len(os.path.split(damage.file)[0]) * 10 + len(damage.command) + len(damage.how))
