"""What else a machine does to a run with processes of its own: pauses, envs that are slow or hang, a full disk."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "processes"))

from observed_run import Records, WatchedRun, failing_variables, find_run, said_object

from redline.cli.main import DONE, FAILED, RESUMABLE
from redline.runtime.processes.supervisor import FAILURES_IN_A_ROW, KILLS_IN_A_ROW
from waiting import wait_for

FLAGS = (
    *("--env", "CartPole-v1", "--num-envs", 4, "--warmup-steps", 200, "--max-steps", 10_000_000),
    *("--topology", "async", "--actors", 2, "--checkpoint-minutes", 0.02, "--evaluator.every-minutes", 0.02),
    *("--evaluator.episodes", 1, "--json"),
)
FAILING = ("--env", "test/Failing-v0", "--actors", 1, "--num-envs", 1, "--evaluator.every-minutes", 0)
FORK_SERVER, RESOURCE_TRACKER = "forkserver import", "resource_tracker import"

pytestmark = pytest.mark.slow


def begin(folder: Path, *args: object) -> tuple[WatchedRun, Records]:
    """Start a run and let it play."""
    run = WatchedRun(folder, "train", *FLAGS, "--log-dir", folder / "runs", *args)
    records = find_run(folder / "runs")
    wait_for_steps(records, more_than=500)
    return run, records


def begin_failing(folder: Path, how: str, *args: object) -> WatchedRun:
    variables = failing_variables(folder, how)
    return WatchedRun(folder, "train", *FLAGS, *FAILING, *args, "--log-dir", folder / "runs", variables=variables)


def wait_for_steps(records: Records, *, more_than: int) -> None:
    wait_for(lambda: records.steps > more_than, f"there are more than {more_than} steps")


def check_end(run: WatchedRun, records: Records) -> None:
    """Check that a run still saves and ends as it is told, with true counts."""
    run.note_memories()
    run.signal_all(signal.SIGTERM)
    assert run.wait() == RESUMABLE, run.err
    run.wait_until_gone()
    assert records.check_counts() == said_object(run)["episodes"]
    records.check_evaluations(episodes=1)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP])
@pytest.mark.parametrize("who", ["supervisor", "all"])
def test_a_pause_costs_no_process(who: str, number: signal.Signals, tmp_path: Path) -> None:
    run, records = begin(tmp_path)
    with run:
        send: Callable[[signal.Signals], None] = run.signal_all if who == "all" else run.program.send_signal
        for pause_s in (2.5, 20.0):
            send(number)
            time.sleep(pause_s)
            send(signal.SIGCONT)
            wait_for_steps(records, more_than=records.steps + 500)
        time.sleep(5.0)
        assert records.events("process-lost") == []
        check_end(run, records)


def test_without_its_fork_server_a_run_ends_and_can_be_resumed(tmp_path: Path) -> None:
    run, records = begin(tmp_path)
    with run:
        os.kill(run.find_process(FORK_SERVER) or 0, signal.SIGKILL)
        assert run.wait(15.0) == RESUMABLE
        run.wait_until_gone()
        assert "Traceback" not in run.err
    with WatchedRun(tmp_path, "resume", records.run, "--max-steps", records.saved_steps + 500, "--json") as run:
        assert run.wait() == DONE
        assert records.check_counts() == said_object(run)["episodes"]


def test_a_learner_lost_before_its_first_checkpoint_leaves_nothing_and_promises_nothing(tmp_path: Path) -> None:
    with WatchedRun(tmp_path, "train", *FLAGS, "--log-dir", tmp_path / "runs") as run:
        os.kill(run.wait_for_role("learner"), signal.SIGKILL)
        assert run.wait() == FAILED
        run.wait_until_gone()
    assert list((tmp_path / "runs").glob("*/*/*")) == []
    assert "redline resume" not in run.err


def test_a_stopped_fork_server_does_not_make_a_run_hang(tmp_path: Path) -> None:
    run, _ = begin(tmp_path)
    with run:
        os.kill(run.find_process(FORK_SERVER) or 0, signal.SIGSTOP)
        actor = run.wait_for_role("actor-0")
        os.kill(actor, signal.SIGKILL)
        is_over = lambda: run.pid("actor-0") not in (None, actor) or run.program.poll() is not None  # noqa: E731
        wait_for(is_over, "the actor is replaced or the run ends", 40.0)
        if run.program.poll() is None:
            run.signal_all(signal.SIGTERM)
        assert run.wait(40.0) in (DONE, RESUMABLE)
        run.wait_until_gone()


def test_the_loss_of_pythons_resource_tracker_changes_nothing(tmp_path: Path) -> None:
    run, records = begin(tmp_path)
    with run:
        os.kill(run.find_process(RESOURCE_TRACKER) or 0, signal.SIGKILL)
        actor = run.wait_for_role("actor-0")
        os.kill(actor, signal.SIGKILL)
        run.wait_for_role("actor-0", other_than=actor)
        wait_for_steps(records, more_than=records.steps + 500)
        check_end(run, records)


def test_an_actor_whose_env_hangs_is_replaced(tmp_path: Path) -> None:
    with begin_failing(tmp_path, "hangs") as run:
        records = find_run(tmp_path / "runs")
        wait_for(lambda: records.events("process-lost"), "the actor is lost")
        assert records.events("process-lost")[0]["why"] == "showed no sign of life for 8 s"
        wait_for_steps(records, more_than=1_000)
        check_end(run, records)


def test_an_env_may_take_its_time_to_start(tmp_path: Path) -> None:
    with begin_failing(tmp_path, "slow start", "--max-steps", 1_000) as run:
        assert run.wait(90.0) == DONE
        assert find_run(tmp_path / "runs").events("process-lost") == []


def test_an_env_that_fails_every_few_steps_ends_the_run(tmp_path: Path) -> None:
    with begin_failing(tmp_path, "every 5 steps") as run:
        assert run.wait() == FAILED
        assert "test/Failing-v0 failed in lane 0, seed" in run.err.splitlines()[-1]
        assert len(find_run(tmp_path / "runs").events("process-lost")) < 100


@pytest.mark.parametrize("step", [1, 5])
def test_training_goes_on_without_an_evaluator_that_fails_again_and_again(step: int, tmp_path: Path) -> None:
    with begin_failing(tmp_path, f"evaluator at step {step}", "--evaluator.every-minutes", 0.01) as run:
        records = find_run(tmp_path / "runs")
        wait_for(lambda: "training goes on without it" in run.err, "the evaluator is given up")
        assert "test/Failing-v0 failed in lane 0, seed" in run.err
        assert len(records.events("process-lost")) == FAILURES_IN_A_ROW
        wait_for_steps(records, more_than=records.steps + 500)
        check_end(run, records)


def test_training_goes_on_without_an_evaluator_that_is_killed_again_and_again(tmp_path: Path) -> None:
    run, records = begin(tmp_path, "--evaluator.every-minutes", 5)
    with run:
        lost = run.wait_for_role("evaluator")
        for _ in range(KILLS_IN_A_ROW - 1):
            os.kill(lost, signal.SIGKILL)
            lost = run.wait_for_role("evaluator", other_than=lost)
        os.kill(lost, signal.SIGKILL)
        wait_for(lambda: "training goes on without it" in run.err, "the evaluator is given up")
        wait_for_steps(records, more_than=records.steps + 500)
        check_end(run, records)


def test_actors_killed_as_soon_as_they_start_end_the_run_in_one_line(tmp_path: Path) -> None:
    run, records = begin(tmp_path)
    with run:
        begun_s = time.monotonic()
        while run.program.poll() is None and time.monotonic() - begun_s < 60.0:
            for pid, name in run.processes().items():
                if name.startswith("redline-actor"):
                    os.kill(pid, signal.SIGKILL)
        assert run.wait() == FAILED
        run.wait_until_gone()
        assert "was killed by SIGKILL, again and again: the run ends" in run.err.splitlines()[-1]
        assert "Traceback" not in run.err
    with WatchedRun(tmp_path, "resume", records.run, "--max-steps", records.saved_steps + 500, "--json") as run:
        assert run.wait() == DONE


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):  # noqa: PT012
        while True:
            file.write(b"x" * 4_096)
    return filler


def test_a_full_disk_costs_checkpoints_and_nothing_else(mount_disk: Callable[[str], Path], tmp_path: Path) -> None:
    disk = mount_disk("16m")
    with WatchedRun(tmp_path, "train", *FLAGS, "--replay.capacity", 5_000, "--log-dir", disk / "runs") as run:
        records = find_run(disk / "runs")
        wait_for_steps(records, more_than=1_000)
        filler = fill(disk)
        saved = records.saved_steps
        wait_for(lambda: "training goes on, the next checkpoint will try again" in run.err, "a checkpoint fails")
        time.sleep(3.0)
        assert records.saved_steps == saved
        assert records.saved_state()["counters"]["steps"] == saved
        filler.unlink()
        wait_for(lambda: records.saved_steps > saved, "the next checkpoint works")
        filler = fill(disk)
        run.signal_all(signal.SIGTERM)
        assert run.wait() == FAILED
        run.wait_until_gone()
        assert f"{disk} has" in said_object(run)["error"]
    filler.unlink()
    with WatchedRun(tmp_path, "resume", records.run, "--max-steps", records.saved_steps + 500, "--json") as run:
        assert run.wait() == DONE
        assert records.check_counts() == said_object(run)["episodes"]
