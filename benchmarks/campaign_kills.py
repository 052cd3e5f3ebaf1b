"""Signals to random processes of a command at random moments; afterwards it is resumed and compared."""

import random
import shutil
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaign_oracles import BAD_INPUT, DONE, FAILED, RESUMABLE, Fault, judge
from campaign_place import Place
from campaign_process import AWAKE, Order, Outcome, Running, wait_for
from campaign_truth import judge_episodes, newest_checkpoint, weights_digest
from campaign_visits import DASHBOARD
from campaign_workshop import (
    ASYNC,
    FLEET,
    SMALL_DQN,
    SMALL_PPO,
    SPARES,
    STUDY,
    Subject,
    Workshop,
    run_folders,
    weights_of_fleet,
)

# long enough to be struck, with checkpoints all the time
OFTEN = ("--checkpoint-minutes", "0.006")
SUBJECTS = {
    "dqn": (*SMALL_DQN, *OFTEN, "--max-steps", "1600"),
    "stored": (*SMALL_DQN, *OFTEN, "--max-steps", "1600", "--replay.path", "runs/frames"),
    "ppo": (*SMALL_PPO, *OFTEN, "--max-steps", "3072"),
    "async": (*SMALL_DQN, *ASYNC, *OFTEN, "--max-steps", "100000"),
    "recording": (),
    "study": STUDY,
    "fleet": (*FLEET, *OFTEN, "--max-steps", "3072"),
    "dashboard": DASHBOARD,
}
CHOICES = (
    *("dqn", "dqn", "stored", "ppo", "ppo", "async", "async", "async", "recording", "study", "study"),
    *("fleet", "fleet", "fleet", "dashboard"),
)
WITHOUT_RUN = ("recording", "study", "fleet", "dashboard")  # of their own
SIGNALS = (
    "SIGKILL",
    "SIGKILL",
    "SIGKILL",
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "SIGSTOP",
    "SIGQUIT",
    "SIGTERM twice",
    "SIGINT twice",
)
ASKING = ("SIGTERM", "SIGINT", "SIGHUP")
MOMENTS = ("starting", "training", "training", "saving", "resuming")
EXACT = ("dqn", "stored", "ppo")  # of those that are one run
NUM_ENVS = 4
FURTHER_STEPS = 400  # that an async run goes on after it was struck
STARTING_S, TRAINING_S, STUDYING_S, RESUMING_S, PAUSE_S = 4.0, 0.8, 3.0, 0.7, 2.0
SHARES = (1.0, 0.5, 0.2, 0.0)  # of these times, one after the other while a command ends before it is struck
SAVING_WITHIN_S, BEGIN_WITHIN_S = 5.0, 60.0
GO_ON_S = 1.5  # that a run which survived goes on before it is asked to end
END_LIMIT_S = 60.0


@dataclass(frozen=True)
class Strike:
    """One signal to one process of one command."""

    subject: str
    signal: str
    moment: str
    is_any_process: bool  # else the command's own
    seed: str

    def row(self) -> dict[str, Any]:
        """Return it as plain data."""
        who = "any process" if self.is_any_process else "the command"
        return {"subject": self.subject, "signal": self.signal, "moment": self.moment, "to": who}


def draw_strike(_: Workshop, *, seed: int, index: int) -> Strike:
    """Return strike number `index` of a seed."""
    rng = random.Random(f"{seed}:kill:{index}")  # noqa: S311  not for secrets
    return Strike(rng.choice(CHOICES), rng.choice(SIGNALS), rng.choice(MOMENTS), rng.random() < 0.6, f"{seed}:{index}")


def reference_of(workshop: Workshop, name: str) -> Subject:
    """Return the undisturbed run, made once."""
    return workshop.reference(f"whole-{name}", SUBJECTS[name])


def run_strike(strike: Strike, workshop: Workshop, place: Place) -> list[Fault]:
    """Strike a command, sooner each time that it ends before; see it end, resume it and compare."""
    rng = random.Random(strike.seed)  # noqa: S311
    for share in SHARES:
        again = Place(place.root / f"strike-{share:g}").fill()
        faults = _try_to_strike(strike, workshop, again, rng, share)
        if faults is not None:
            return faults
    return [Fault("campaign", f"{strike.subject}: ended before every strike")]


def _try_to_strike(
    strike: Strike, workshop: Workshop, place: Place, rng: random.Random, share: float
) -> list[Fault] | None:
    """Return the faults; None if the command had ended without one before it was struck."""
    is_cold = strike.moment == "starting"  # imports take most of a start
    if strike.subject == "dashboard":
        shutil.copytree(workshop.subject("fleet").path, place.cwd / "run", symlinks=True)
        place.remember(place.cwd / "run")
    begun = _start(strike, _command(strike.subject), workshop, place)
    if is_cold:
        wait_for((place.root / AWAKE).exists, begun, BEGIN_WITHIN_S)
        begun.has_ended(share * rng.uniform(0.0, STARTING_S))
    else:
        _wait_for_moment(strike, begun, place, rng, share)
    faults = []
    if strike.moment == "resuming" and not begun.has_ended():
        begun.send(signal.SIGKILL)
        faults = judge(_finish(strike, begun), allowed=(-signal.SIGKILL,))
        begun = _start(strike, _resume(strike.subject, place), workshop, place)
        begun.has_ended(share * rng.uniform(0.0, RESUMING_S))
    struck = _strike(strike, begun, workshop, rng)
    is_asked = struck == begun.pid and strike.signal in ASKING  # a second signal would interrupt its last checkpoint
    if struck is not None and not is_asked and not begun.has_ended(GO_ON_S):
        begun.send(signal.SIGTERM)
    outcome = _finish(strike, begun)
    faults += judge(outcome, allowed=_allowed(strike) if struck is not None else ())
    if struck is None:
        return faults or None
    faults += _judge_code(strike, outcome)
    if not faults:
        faults += _judge_afterwards(strike, outcome, workshop, place)
    if changed := place.changes(place.outside):
        faults.append(Fault("outside", f"{strike.subject}: {', '.join(changed)}"))
    return faults


def _start(strike: Strike, argv: tuple[str, ...], workshop: Workshop, place: Place) -> Running:
    is_cold = strike.moment == "starting"
    order = Order(argv, limit_s=END_LIMIT_S, is_cold=is_cold, spares=SPARES.get(strike.subject, 0))
    return workshop.zygote.start(order, place)


def _finish(strike: Strike, running: Running) -> Outcome:
    """See it end; runs of a fleet go on without their supervisor, until they are ended here."""
    outcome = running.finish()
    return replace(outcome, left=()) if strike.subject == "fleet" else outcome


def _command(subject: str, *, out: str = "run") -> tuple[str, ...]:
    if subject == "recording":
        return ("monitor", "--out", out, "--hz", "20", "--", "sleep", "3")  # Python would print a traceback at Ctrl-C
    if subject == "study":
        return ("tune", *STUDY, "--study", "study", "--json")
    if subject == "fleet":
        return ("fleet", "start", *SUBJECTS[subject], "--dir", "fleet", "--json")
    if subject == "dashboard":
        return DASHBOARD
    return ("train", *SUBJECTS[subject], "--log-dir", "runs", "--json")


def _resume(subject: str, place: Place) -> tuple[str, ...]:
    """Return the command that goes on; another recording and another dashboard begin anew."""
    if subject == "study" and (place.cwd / "study").exists():
        return ("tune", "--resume", "study", "--json")
    if subject == "fleet" and (place.cwd / "fleet" / "fleet.json").exists():
        return ("fleet", "resume", "fleet", "--json")
    if subject in WITHOUT_RUN:
        return _command(subject, out="again")
    return ("resume", "runs", "--checkpoint-minutes", "5", "--json")


def find_run(place: Place) -> Path | None:
    """Return the run directory, None before there is one."""
    runs = sorted(place.cwd.glob("runs/*/*/*/run.json"))
    return runs[0].parent if runs else None


def _wait_for_moment(strike: Strike, running: Running, place: Place, rng: random.Random, share: float) -> None:
    """Wait until training has begun, and then for a random time or for the next checkpoint."""
    if strike.subject in WITHOUT_RUN:
        running.has_ended(share * rng.uniform(0.0, STUDYING_S))
    elif wait_for(lambda: _has_begun(place), running, BEGIN_WITHIN_S):
        if strike.moment == "saving":
            wait_for(lambda: _is_saving(place), running, share * SAVING_WITHIN_S, poll_s=0.0005)
            time.sleep(share * rng.uniform(0.0, 0.01))
        else:
            running.has_ended(share * rng.uniform(0.0, TRAINING_S))


def _has_begun(place: Place) -> bool:
    run = find_run(place)
    return run is not None and newest_checkpoint(run) >= 0


def _is_saving(place: Place) -> bool:
    run = find_run(place)
    return run is not None and any((run / "checkpoints").glob(".*"))


def _strike(strike: Strike, running: Running, workshop: Workshop, rng: random.Random) -> int | None:
    """Send the signal; return the pid that got it, None if the command has ended."""
    if running.has_ended():
        return None
    others = [pid for pid in workshop.zygote.targets() if pid != running.pid]
    pid = rng.choice(others) if strike.is_any_process and others else running.pid
    name, _, is_twice = strike.signal.partition(" ")
    number = signal.Signals[name]
    running.send(number, pid)
    if is_twice:
        time.sleep(rng.uniform(0.0, 0.3))
        running.send(number, pid)
    if number is signal.SIGSTOP:
        time.sleep(rng.uniform(0.1, PAUSE_S))
        running.send(signal.SIGCONT, pid)
    return pid


def _allowed(strike: Strike) -> set[int]:
    """Return the exit codes besides the usual four: of the signals that nobody can or has to catch."""
    allowed = {-signal.SIGQUIT} if strike.signal == "SIGQUIT" else set()
    if strike.signal == "SIGKILL":
        allowed.add(-signal.SIGKILL)
    if strike.subject == "dashboard":  # it has nothing to save
        allowed |= {-signal.SIGTERM, -signal.SIGHUP}
    if strike.subject == "recording":
        allowed |= {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 130, 143, 129, 137, 128 + signal.SIGQUIT}
    return allowed


def _judge_code(strike: Strike, outcome: Outcome) -> list[Fault]:
    """A run that is told to stop says by its exit code that it can be resumed."""
    is_asked = not strike.is_any_process and strike.signal in ("SIGTERM", "SIGHUP")
    if not is_asked or strike.subject in ("recording", "dashboard"):
        return []
    if outcome.code in (DONE, RESUMABLE):
        return []
    return [Fault("exit code", f"{strike.signal} while {strike.moment}: {strike.subject} ended with {outcome.code}")]


def _judge_afterwards(strike: Strike, before: Outcome, workshop: Workshop, place: Place) -> list[Fault]:
    """Go on with what was struck, and compare it with what was not."""
    match strike.subject:
        case "recording":
            return []
        case "dashboard":
            changed = place.changes(place.cwd / "run")
            return [Fault("reader wrote", f"dashboard: {', '.join(changed)[:200]}")] if changed else []
        case "study":
            return _resume_study(workshop, place)
        case "fleet":
            return _resume_fleet(workshop, place)
    return _resume_and_compare(strike, before, workshop, place)


def _resume_and_compare(strike: Strike, before: Outcome, workshop: Workshop, place: Place) -> list[Fault]:
    run = find_run(place)
    if run is None:
        return []
    saved = newest_checkpoint(run)
    further = () if strike.subject in EXACT else ("--max-steps", str(max(saved, 0) + FURTHER_STEPS))
    argv = (*_resume(strike.subject, place), *further)
    outcome = workshop.zygote.run(Order(argv, limit_s=120.0, spares=SPARES.get(strike.subject, 0)), place)
    faults = judge(outcome)
    if saved < 0:
        return (
            faults
            if outcome.code in (BAD_INPUT, FAILED)
            else [*faults, Fault("lost run", "resumed without a checkpoint")]
        )
    if outcome.code != DONE:
        why = outcome.err.strip().splitlines()[-1:] or [""]
        return [
            *faults,
            Fault(
                "lost run", f"{strike.subject}: resume ended with {outcome.code} after {before.code}: {why[0][:160]}"
            ),
        ]
    faults += judge_episodes(run, num_envs=NUM_ENVS if strike.subject in EXACT else None)
    if strike.subject in EXACT:
        reference = reference_of(workshop, strike.subject)
        if weights_digest(run, reference.further_steps) != reference.weights:
            faults.append(Fault("weights", f"{strike.subject}: other weights than those of the undisturbed run"))
    return faults


def _resume_study(workshop: Workshop, place: Place) -> list[Fault]:
    if not (place.cwd / "study").exists():
        return []
    order = Order(_resume("study", place), limit_s=120.0, ask_after_s=60.0, spares=SPARES["study"])
    return judge(workshop.zygote.run(order, place))


def _resume_fleet(workshop: Workshop, place: Place) -> list[Fault]:
    """Its runs end as those of a fleet that nobody disturbed, each trained once."""
    fleet = place.cwd / "fleet"
    if not (fleet / "fleet.json").exists():
        return []
    outcome = workshop.zygote.run(Order(_resume("fleet", place), limit_s=180.0, spares=SPARES["fleet"]), place)
    faults = judge(outcome)
    if outcome.code != DONE:
        return [*faults, Fault("lost run", f"fleet: resume ended with {outcome.code}")]
    for runs in run_folders(fleet).values():
        if len(runs) != 1:
            return [*faults, Fault("lost run", f"fleet: a slot was trained {len(runs)} times")]
        faults += judge_episodes(runs[0], num_envs=NUM_ENVS)
    reference = workshop.fleet("whole-fleet", SUBJECTS["fleet"])
    if weights_of_fleet(fleet) != reference.weights:
        faults.append(Fault("weights", "fleet: other weights than those of the undisturbed fleet"))
    return faults


def size_of(strike: Strike) -> int:
    """Return how large a case is: signals to the command itself are simpler than those to others."""
    return len(strike.subject) + 20 * strike.is_any_process + 10 * MOMENTS.index(strike.moment)
