"""What the processes of a run have told their supervisor, written into the run's records as it comes."""

import time
from dataclasses import replace
from pathlib import Path

from redline.recordings.setting import Setting
from redline.runs.directory import RunDirectory
from redline.runs.errors import CheckpointError
from redline.runtime.counters import Counters, Scores
from redline.runtime.evaluation import NumberedEvaluation, record_evaluation
from redline.runtime.gauges import Gauges, RoleGauges
from redline.runtime.job import Job
from redline.runtime.limits import SOLVED
from redline.runtime.processes.board import Board
from redline.runtime.processes.messages import Message, episode_of
from redline.runtime.processes.role_readings import RoleReadings, mean_actor_age
from redline.runtime.recording import Recorder
from redline.runtime.session import Solved, solved_by
from redline.runtime.sinks import Sinks
from redline.runtime.solving import is_confirmed
from redline.runtime.watching import Watcher


class Notebook:
    """The newest that is known, and the records of what was."""

    def __init__(
        self,
        run: RunDirectory,
        counters: Counters,
        *,
        board: Board,
        readings: RoleReadings,
        watcher: Watcher,
        setting: Setting | None,
        job: Job,
        scores: Scores,
        waited_from_s: float,
        sinks: Sinks,
    ) -> None:
        self._job = job
        self._scores = scores  # of these, only what belongs to evaluations is followed
        self._waited_from_s = waited_from_s  # monotonic time of `elapsed_s` 0
        self._run = run
        self._counters = counters  # as far as the learner has told
        self._board = board
        self._readings = readings
        self._watcher = watcher
        self._recorder = Recorder(run, counters, watcher, setting=setting, sinks=sinks)
        self.lost: list[str] | None = None  # of the checkpoint that was brought back; None until the learner is ready
        self.limit: str | None = None  # that was reached
        self.gauges: Gauges | None = None
        self._recorded: Gauges | None = None
        self.learning_steps_per_s: float | None = None
        self.checkpoint: Path | None = None  # the newest
        self.save_error: str | None = None  # why the newest could not be saved
        self.saves_answered = 0  # number of the newest order that was carried out, or could not be
        self.evaluated_s = 0.0  # monotonic time of the newest evaluation
        self.is_ending = False  # all but the learner are gone: what they were doing before is what counts

    def close(self) -> None:
        """Let the sinks finish."""
        self._recorder.close()

    def begin(self) -> None:
        """Note that the processes that play begin now."""
        self._recorder.begin()
        self._readings.begin()
        self.evaluated_s = time.monotonic()

    def solved(self) -> Solved | None:
        """Return how the run solved its game, if it did."""
        return solved_by(self._job, self._counters, self._scores)

    @property
    def evaluations(self) -> int:
        """Evaluations that the run has had."""
        return self._counters.evaluations

    def event(self, name: str, **details: object) -> None:
        """Write down that something happened."""
        self._recorder.event(name, **details)

    def record(self) -> None:
        """Write down the newest reading, if there is one that was not written yet."""
        if self.gauges is not None and self.gauges is not self._recorded:
            self._recorded = self.gauges
            self._recorder.metrics(self.gauges)

    def warn(self, message: str) -> None:
        """Tell of something that is not as it should be."""
        self._watcher.note(f"warning: {message}")
        self.event("warning", message=message)

    def take(self, message: Message) -> None:
        """Take in what a process tells."""
        match message["kind"]:
            case "ready":
                self.lost = message["lost"]
            case "episodes":
                self._follow(message["steps"], message["time_s"])
                for row in message["rows"]:
                    self._recorder.episode(episode_of(row))
            case "reading":
                self._take_reading(message)
            case "evaluation":
                self._take_evaluation(message)
            case "sync":
                self._board.answer_sync(message["number"], is_safe=self._sync())
            case "saved":
                self.checkpoint, self.saves_answered = Path(message["path"]), message["order"]
                self.save_error = None
                self.event("checkpoint", path=self.checkpoint.name, stalled_s=message["stalled_s"])
            case "save-failed":
                self.save_error, self.saves_answered = message["message"], message["order"]
                if self.lost is not None and not self.is_ending:
                    self.warn(f"{self.save_error}; training goes on, the next checkpoint will try again")
            case "adjustment":
                self._watcher.note(f"requested → effective: {message['message']}")
                self.event("adjustment", message=message["message"])
            case "warning":
                self.warn(message["message"])
            case "limit":
                self.limit = message["reason"]

    def _follow(self, steps: int, time_s: float) -> None:
        self._counters.steps, self._counters.time_s = steps, time_s

    def _take_reading(self, message: Message) -> None:
        told = Gauges.from_row(message["gauges"])
        self._follow(told.steps, told.time_s)
        self.learning_steps_per_s = message["learning_steps_per_s"]
        roles = self.gauges.roles if self.is_ending and self.gauges is not None else self._read_roles(told)
        self.gauges = replace(
            told,
            roles=roles,
            actor_weights_age_updates=mean_actor_age(roles),
            cpu_percent=sum(role.cpu_percent or 0.0 for role in roles),
            rss_bytes=sum(role.rss_bytes or 0 for role in roles),
        )
        self._watcher.show(self.gauges)

    def _read_roles(self, told: Gauges) -> tuple[RoleGauges, ...]:
        """Return a reading of each process; only the learner itself knows what keeps it busy."""
        busy = told.roles[0].busy if told.roles else {}
        return tuple(replace(role, busy=busy) if role.role == "learner" else role for role in self._readings.read())

    def _take_evaluation(self, message: Message) -> None:
        evaluation = NumberedEvaluation(
            number=message["number"],
            weights_steps=message["steps"],
            episodes=[episode_of(row) for row in message["rows"]],
            duration_s=message["duration_s"],
            is_confirmation=message["is_confirmation"],
        )
        self._counters.evaluations, self.evaluated_s = evaluation.number, time.monotonic()
        record_evaluation(
            evaluation, job=self._job, scores=self._scores, recorder=self._recorder, watcher=self._watcher
        )
        mean, target = evaluation.mean_return, self._job.limits.target_eval_return
        self._board.show_evaluation(number=evaluation.number, steps=evaluation.weights_steps, mean=mean)
        if evaluation.is_confirmation and target is not None and is_confirmed(mean, target):
            self._end_solved(mean, target)

    def _end_solved(self, mean: float, target: float) -> None:
        self._counters.solved_s = time.monotonic() - self._waited_from_s
        self._board.show_solved(mean=mean, target=target, elapsed_s=self._counters.solved_s)
        self.event("solved", elapsed_s=self._counters.solved_s, mean_return=mean)
        self.limit = SOLVED

    def _sync(self) -> bool:
        """Write out all rows; a checkpoint must not outlive rows from before it."""
        try:
            self._recorder.flush()
            self._run.sync_records()
        except (CheckpointError, OSError) as error:
            self.warn(f"the records can't be written: {error}")
            return False
        return True
