"""Which checkpoint is meant."""

from pathlib import Path

import pytest

from redline.errors import DamagedError, UserError
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory
from redline.runs.manifest import BEST, NEWEST, find_checkpoint


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with four checkpoints, two of which have a score."""
    with RunDirectory.create(tmp_path, game="cartpole", algorithm="dqn", seed=1) as run, CheckpointStore(run) as store:
        for steps, score in ((100, None), (200, 9.0), (300, 4.0), (400, None)):
            store.save(steps=steps, files={"weights.safetensors": b""}, state={}, score=score)
        return run.path


@pytest.mark.parametrize(
    ("which", "steps"), [(NEWEST, 400), (BEST, 200), ("3_00", 300), ("1,00", 100), ("300", 300), (300, 300)]
)
def test_a_checkpoint_is_found_by_name_or_by_its_steps(which: str | int, steps: int, run: Path) -> None:
    assert find_checkpoint(run, which, with_replay=False).steps == steps


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("last", "checkpoint is 'last': use newest, best or its steps, such as 400"),
        ("-1", "use newest, best or its steps"),
        ("250", "has no checkpoint 250: it has 100, 200, 300, 400"),
        (-1, "has no checkpoint -1: it has 100"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(which: str | int, message: str, run: Path) -> None:
    with pytest.raises(UserError, match=message):
        find_checkpoint(run, which, with_replay=False)


def test_a_damaged_newest_is_skipped_and_a_damaged_choice_is_refused(run: Path) -> None:
    (run / "checkpoints" / "400" / "weights.safetensors").write_bytes(b"torn")
    assert find_checkpoint(run, NEWEST, with_replay=True).steps == 300
    with pytest.raises(DamagedError):
        find_checkpoint(run, "400", with_replay=True)


def test_no_score_is_no_best(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has a score, which takes 100 episodes"):
        find_checkpoint(tmp_path, BEST, with_replay=False)
