"""What all cases share: the process that runs commands, and small real runs with what they come to undisturbed."""

import fcntl
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign_options import Command, from_json, read_commands, to_json
from campaign_oracles import DONE
from campaign_place import Place
from campaign_process import Order, Outcome, Zygote
from campaign_truth import newest_checkpoint, object_of, weights_digest
from recording import say
from redline.runs.host import commit

SMALL_DQN = (
    "--env",
    "CartPole-v1",
    "--algo",
    "dqn",
    "--num-envs",
    "4",
    "--warmup-steps",
    "100",
    "--replay.capacity",
    "2000",
)
# one thread: two on a busy machine spend most of their time in waiting for each other
SMALL_PPO = (
    *("--env", "redline/Catch-v0", "--algo", "ppo", "--num-envs", "4", "--network", "small"),
    *("--learner.threads", "1"),
)
EVALUATING = ("--evaluate-every-steps", "100", "--evaluator.episodes", "1")
ASYNC = ("--topology", "async", "--actors", "2", "--evaluator.every-minutes", "0.01", "--evaluator.episodes", "1")
TRAININGS: Mapping[str, tuple[str, ...]] = {
    "tiny": ("--env", "CartPole-v1", "--num-envs", "2", "--warmup-steps", "8", "--replay.capacity", "2000"),
    "dqn": (*SMALL_DQN, *EVALUATING),
    "ppo": (*SMALL_PPO, *EVALUATING),
    "async": (*SMALL_DQN, *ASYNC),
}
STOPS = {"tiny": (16,), "dqn": (200, 400), "ppo": (512, 1_024), "async": (300, 600)}
FURTHER = {"tiny": 32, "dqn": 800, "ppo": 2_048, "async": 900}  # to which the reference goes on
EXACT = ("tiny", "dqn", "ppo")
STUDY = (
    *("--env", "CartPole-v1", "--model", "ppo", "--goal", "return-at-steps:256", "--trials", "2"),
    *("--seeds-per-trial", "1", "--final-seeds", "1", "--minutes-per-trial", "0.2", "--side-by-side", "1"),
)
# two runs side by side, with a thread each; of the one in SUBJECTS, one run begins anew when it is resumed
FLEET = (
    *("--games", "CartPole-v1", "--model", "ppo", "--seeds", "1-2", "--num-envs", "4", "--learner.threads", "1"),
    *("--concurrency", "2", "--stagger-s", "0"),
)
# interpreters that commands start: a fork server and a second one, trials, or runs
SPARES = {"async": 2, "study": 4, "fleet": 4}
EVALUATION = ("--episodes", "2", "--seed", "0", "--json")
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Subject:
    """A real run, fleet, study or recording, and what it comes to undisturbed."""

    name: str
    path: Path
    further_steps: int = 0
    weights: str = ""  # digest after `further_steps`; empty if the run is not exact
    returns: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of an evaluation, by checkpoint


class Workshop:
    """The process that runs commands, and the subjects, which are made when they are needed and kept."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        """Keep subjects in a folder, in which they are found when a campaign goes on."""
        self.zygote = zygote
        self.folder = folder
        self._subjects: dict[str, Subject] = {}
        self._commands: list[Command] | None = None

    def commands(self) -> list[Command]:
        """Return all commands with their options."""
        if self._commands is None:
            cache = self.folder / f"commands-{commit()}.json"
            with self._alone():
                if not cache.exists():
                    with tempfile.TemporaryDirectory(dir=self.folder) as name:
                        place = Place(Path(name) / "help").fill()
                        found = read_commands(lambda argv: self._ask(argv, place))
                    cache.write_text(to_json(found), encoding="utf-8")
            self._commands = from_json(cache.read_text(encoding="utf-8"))
        return self._commands

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Make what all workers share one at a time; the others find it afterwards."""
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _ask(self, argv: Sequence[str], place: Place) -> str:
        return self.zygote.run(Order(argv, limit_s=PATIENCE_S, environ={"COLUMNS": "300"}), place).out

    def subject(self, name: str) -> Subject:
        """Return a subject, made now if it is not there."""
        if name not in self._subjects:
            self._subjects[name] = self._made(name, lambda place: self._make(name, place))
        return self._subjects[name]

    def _made(self, name: str, make: Callable[[Place], dict[str, Any]]) -> Subject:
        """Return a run and its facts, made now if no worker has made it."""
        home = self.folder / "subjects" / name
        facts = home / "facts.json"
        with self._alone():
            if not facts.exists():
                say(f"making {name}")
                shutil.rmtree(home, ignore_errors=True)
                facts.write_text(json.dumps(make(Place(home).fill())), encoding="utf-8")
        return Subject(name, home / "cwd" / "run", **json.loads(facts.read_text(encoding="utf-8")))

    def _make(self, name: str, place: Place) -> dict[str, Any]:
        if name == "study":
            self.must(place, "tune", *STUDY, "--study", "run")
            return {}
        if name == "fleet":
            self.must(place, "fleet", "start", *FLEET, "--max-steps", "512", "--dir", "run")
            self.must(place, "fleet", "change", "run", "--only", "cartpole-v1-ppo-s2", "--set", "max-steps=1024")
            return {}
        if name == "recording":
            self.must(
                place, "monitor", "--out", "run", "--hz", "10", "--", sys.executable, "-c", "import time; time.sleep(2)"
            )
            return {}
        first, *later = STOPS[name]
        self.must(place, "train", *TRAININGS[name], "--max-steps", str(first), "--log-dir", "runs")
        (found,) = (place.cwd / "runs").glob("*/*/*")
        run = found.rename(place.cwd / "run")
        for steps in later:
            self.must(place, "resume", "run", "--max-steps", str(steps))
        stops = sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())
        evaluations = {
            str(steps): self.must(place, "eval", "run", "--checkpoint", str(steps), *EVALUATION) for steps in stops
        }
        shutil.copytree(run, place.cwd / "further")
        self.must(place, "resume", "further", "--max-steps", str(FURTHER[name]))
        further = newest_checkpoint(place.cwd / "further")
        return {
            "further_steps": further,
            "weights": weights_digest(place.cwd / "further", further) if name in EXACT else "",
            "returns": {steps: object_of(outcome)["returns"] for steps, outcome in evaluations.items()},
        }

    def reference(self, name: str, flags: Sequence[str]) -> Subject:
        """Return a training that nothing disturbs, made now if it is not there."""

        def make(place: Place) -> dict[str, Any]:
            self.must(place, "train", *flags, "--log-dir", "runs")
            (found,) = (place.cwd / "runs").glob("*/*/*")
            run = found.rename(place.cwd / "run")
            steps = newest_checkpoint(run)
            return {"further_steps": steps, "weights": weights_digest(run, steps)}

        if name not in self._subjects:
            self._subjects[name] = self._made(name, make)
        return self._subjects[name]

    def fleet(self, name: str, flags: Sequence[str]) -> Subject:
        """Return a fleet that nothing disturbs, made now if it is not there."""

        def make(place: Place) -> dict[str, Any]:
            self.must(place, "fleet", "start", *flags, "--dir", "run")
            return {"weights": weights_of_fleet(place.cwd / "run")}

        if name not in self._subjects:
            self._subjects[name] = self._made(name, make)
        return self._subjects[name]

    def must(self, place: Place, *argv: str) -> Outcome:
        """Run a command that has to work, because nothing is done to it."""
        outcome = self.zygote.run(Order(argv, limit_s=PATIENCE_S), place)
        if outcome.code != DONE:
            raise RuntimeError(f"redline {' '.join(argv)} ended with {outcome.code}: {outcome.err[-2_000:]}")
        return outcome


def run_folders(fleet: Path) -> dict[str, list[Path]]:
    """Return the runs of each slot of a fleet."""
    return {slot.name: sorted(slot.glob("*/*/*")) for slot in sorted((fleet / "runs").iterdir())}


def weights_of_fleet(fleet: Path) -> str:
    """Return the digests of the newest weights of all runs."""
    digests = [weights_digest(run, newest_checkpoint(run)) for runs in run_folders(fleet).values() for run in runs]
    return " ".join(map(str, digests))
