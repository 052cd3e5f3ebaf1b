"""The Gymnasium wrappers tell, with the last step of each episode, what the hardware did while it was played."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from redline.jsonl import encode_row, read_records
from redline.monitor import AttachedRecording, MonitorEnv, MonitorVectorEnv
from redline.monitor.gym_wrappers import MAX_ROWS_PER_SAMPLE, MAX_SAMPLES, SampleWindow


class Corridor(gym.Env[int, int]):
    """Ends after `length_steps`, or is cut off there; each step is worth what it is numbered, from 1."""

    observation_space = gym.spaces.Discrete(100)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length_steps: int, *, is_cut: bool = False) -> None:
        self._length_steps = length_steps
        self._is_cut = is_cut
        self._at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        self._at = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self._at += 1
        is_last = self._at == self._length_steps
        return self._at, float(self._at), is_last and not self._is_cut, is_last and self._is_cut, {}


class Idle:
    """In place of the process that records."""

    is_closed = False

    def close(self) -> list[Any]:
        self.is_closed = True
        return []


@pytest.fixture
def idle() -> Idle:
    return Idle()


@pytest.fixture
def recording(tmp_path: Path, idle: Idle) -> AttachedRecording:
    """A recording whose samples the test writes."""
    return AttachedRecording(tmp_path, idle, hz=10.0)  # type: ignore[arg-type]


def sample(folder: Path, unix_s: float, *, interval_s: float = 1.0, **values: Any) -> None:
    with (folder / "hardware.jsonl").open("ab") as file:
        file.write(encode_row({"unix_s": unix_s, "interval_s": interval_s, **values}))


def episodes(folder: Path) -> list[dict[str, Any]]:
    return read_records(folder / "episodes.jsonl")


def play(env: gym.Env[int, int]) -> list[dict[str, Any]]:
    """Play an episode and return the infos of its steps."""
    env.reset()
    infos = []
    is_over = False
    while not is_over:
        _, _, terminated, truncated, info = env.step(0)
        infos.append(info)
        is_over = terminated or truncated
    return infos


def test_the_last_step_tells_and_no_other(recording: AttachedRecording) -> None:
    env = MonitorEnv(Corridor(3), recording)
    sample(recording.path, time.time(), cpu_cores_used=1.5)
    assert play(env) == [{}, {}, {"hardware": {"cpu_cores_used": 1.5}}]


def test_each_episode_is_a_row(recording: AttachedRecording) -> None:
    begun_unix_s = time.time()
    env = MonitorEnv(Corridor(3), recording)
    sample(recording.path, begun_unix_s, core_busy=[0.5])
    play(env)
    env.reset()
    env.step(0)  # not over: no row, but a step
    play(env)
    first, second = episodes(recording.path)
    assert begun_unix_s - 0.01 <= first.pop("begun_unix_s") <= first.pop("unix_s") <= time.time() + 0.01
    assert first == {
        "schema": 1,
        "steps": 3,
        "role": "actor",
        "return": 6.0,
        "length_steps": 3,
        "lane": 0,
        "truncated": False,
        "hardware": {"core_busy.0": 0.5},
    }
    assert (second["steps"], second["return"]) == (7, 6.0)


def test_an_episode_that_was_cut_off_did_not_end(recording: AttachedRecording) -> None:
    play(MonitorEnv(Corridor(2, is_cut=True), recording))
    assert episodes(recording.path)[0]["truncated"] is True


def test_before_the_first_sample_there_are_no_means(recording: AttachedRecording) -> None:
    assert play(MonitorEnv(Corridor(1), recording)) == [{"hardware": {}}]


def test_samples_of_an_earlier_recording_are_not_counted(recording: AttachedRecording) -> None:
    sample(recording.path, time.time(), cpu_cores_used=9.0)
    assert play(MonitorEnv(Corridor(1), recording)) == [{"hardware": {}}]


def test_a_recording_that_was_given_goes_on_when_the_env_is_closed(recording: AttachedRecording, idle: Idle) -> None:
    env = MonitorEnv(Corridor(1), recording)
    env.close()
    env.close()
    assert not idle.is_closed


def test_an_env_can_be_played_after_it_was_closed(recording: AttachedRecording) -> None:
    env = MonitorEnv(Corridor(2), recording)
    play(env)
    env.close()
    assert play(env) == [{}, {"hardware": {}}]
    assert len(episodes(recording.path)) == 1


def test_samples_are_looked_for_at_the_rate_of_the_recording(recording: AttachedRecording) -> None:
    env = MonitorEnv(Corridor(1), recording, hz=1.0)
    assert env.episode_log.samples.period_s == 0.1


def test_a_disk_that_refuses_is_told_once_and_training_goes_on(
    recording: AttachedRecording, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = MonitorEnv(Corridor(1), recording)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("redline.monitor.gym_wrappers.RecordWriter.write", refuse)
    with pytest.warns(RuntimeWarning, match="No space left"):
        play(env)
    play(env)  # a second warning would be an error here


class TestSampleWindow:
    """Time here is whatever the samples say."""

    @pytest.fixture
    def window(self, tmp_path: Path) -> SampleWindow:
        (tmp_path / "hardware.jsonl").touch()
        return SampleWindow(tmp_path / "hardware.jsonl", hz=20.0)

    def test_a_span_is_weighted_by_time(self, window: SampleWindow, tmp_path: Path) -> None:
        for second, value in ((11.0, 1.0), (12.0, 2.0), (13.0, 4.0)):
            sample(tmp_path, second, load_average_1m=value)
        assert window.means(10.5, 13.0) == {"load_average_1m": pytest.approx((0.5 * 1 + 2 + 4) / 2.5)}

    def test_a_span_without_a_sample_of_its_own_gets_the_newest(self, window: SampleWindow, tmp_path: Path) -> None:
        sample(tmp_path, 11.0, load_average_1m=1.0)
        sample(tmp_path, 12.0, load_average_1m=2.0)
        assert window.means(12.3, 12.4) == {"load_average_1m": 2.0}
        assert window.means(11.3, 11.4) == {"load_average_1m": 2.0}

    def test_what_is_forgotten_counts_no_more_but_the_newest_stays(self, window: SampleWindow, tmp_path: Path) -> None:
        sample(tmp_path, 11.0, load_average_1m=1.0)
        sample(tmp_path, 12.0, load_average_1m=3.0)
        assert window.means(10.0, 12.0) == {"load_average_1m": 2.0}
        window.forget_before(99.0)
        assert window.means(10.0, 12.0) == {"load_average_1m": 3.0}

    def test_a_long_episode_takes_bounded_memory_and_its_mean_is_the_same(
        self, window: SampleWindow, tmp_path: Path
    ) -> None:
        rows = (encode_row({"unix_s": 1.0 + at, "interval_s": 1.0, "cpu": at}) for at in range(2 * MAX_SAMPLES + 3))
        (tmp_path / "hardware.jsonl").write_bytes(b"".join(rows))
        assert window.means(0.0, 2 * MAX_SAMPLES + 3) == {"cpu": pytest.approx(MAX_SAMPLES + 1)}
        assert len(window._samples) <= MAX_SAMPLES

    def test_rows_that_are_no_samples_are_passed_over(self, window: SampleWindow, tmp_path: Path) -> None:
        (tmp_path / "hardware.jsonl").write_bytes(b'{"unix_s":null}\n{"interval_s":1}\nrubbish\n{"unix_s":')
        assert window.means(0.0, 1.0) == {}


def test_many_short_episodes_cost_little(recording: AttachedRecording, monkeypatch: pytest.MonkeyPatch) -> None:
    env = MonitorEnv(Corridor(1), recording)
    sample(recording.path, time.time(), cpu_cores_used=1.0)
    looks = []
    tail = env.episode_log.samples._tail
    read = tail.new_rows
    monkeypatch.setattr(tail, "new_rows", lambda: looks.append(1) or read())
    begun_s = time.monotonic()
    for _ in range(200):
        assert play(env)[-1]["hardware"] == {"cpu_cores_used": 1.0}
    assert len(looks) <= 2 + (time.monotonic() - begun_s) / 0.5
    rows = episodes(recording.path)
    assert len(rows) == 200
    assert sum("hardware" in row for row in rows) == MAX_ROWS_PER_SAMPLE


def corridors(mode: AutoresetMode, *, lengths: tuple[int, ...] = (2, 3, 5)) -> SyncVectorEnv:
    makers: list[Callable[[], gym.Env[int, int]]] = [
        lambda length=length: Corridor(length, is_cut=length == 3)  # type: ignore[misc]
        for length in lengths
    ]
    return SyncVectorEnv(makers, autoreset_mode=mode)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_counts_as_gymnasium_does(mode: AutoresetMode, recording: AttachedRecording) -> None:
    env = MonitorVectorEnv(RecordEpisodeStatistics(corridors(mode)), recording)
    sample(recording.path, time.time(), cpu_cores_used=1.5)
    env.reset(seed=1)
    expected = []
    for _ in range(20):
        _, _, terminated, truncated, info = env.step(np.zeros(3, dtype=int))
        ended = terminated | truncated
        assert ("hardware" in info) == ended.any()
        if ended.any():
            assert info["_hardware"].tolist() == ended.tolist()
            np.testing.assert_array_equal(info["hardware"]["cpu_cores_used"], np.where(ended, 1.5, np.nan))
            statistics = info["episode"]
            expected += [(lane, statistics["r"][lane], statistics["l"][lane]) for lane in np.flatnonzero(ended)]
    rows = episodes(recording.path)
    assert [(row["lane"], row["return"], row["length_steps"]) for row in rows] == expected
    assert all(row["truncated"] == (row["lane"] == 1) for row in rows)
    assert {row["length_steps"] for row in rows if row["lane"] == 2} == {5}
    # where a step only resets, it is none
    assert rows[-1]["steps"] == (60 if mode is AutoresetMode.SAME_STEP else 60 - 6 - 5 - 3)


def test_a_vector_that_resets_nothing_by_itself_is_reset_by_a_mask(recording: AttachedRecording) -> None:
    env = MonitorVectorEnv(corridors(AutoresetMode.DISABLED, lengths=(2, 4)), recording)
    env.reset()
    for _ in range(8):
        _, _, terminated, truncated, _ = env.step(np.zeros(2, dtype=int))
        ended = terminated | truncated
        if ended.any():
            env.reset(options={"reset_mask": ended})
    rows = episodes(recording.path)
    assert [(row["lane"], row["return"], row["length_steps"]) for row in rows if row["lane"] == 0] == [(0, 3.0, 2)] * 4
    assert [(row["lane"], row["return"], row["length_steps"]) for row in rows if row["lane"] == 1] == [(1, 10.0, 4)] * 2
    assert rows[-1]["steps"] == 16


def test_a_recording_of_its_own_is_made_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = MonitorEnv(gym.make("CartPole-v1"), hz=20.0)
    (folder,) = (tmp_path / "monitor").iterdir()
    with pytest.raises(ValueError, match="is being recorded already"):
        MonitorEnv(Corridor(1), folder)
    other = MonitorEnv(Corridor(1), env.episode_log.recording)
    deadline_s = time.monotonic() + 10.0
    while not (told := play(other)[-1]["hardware"]):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    other.close()
    assert told["rss_bytes"] > 1e6
    assert "cpu_cores_used" in told
    env.close()
    events = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    assert [row["event"] for row in events] == ["monitor-start", "monitor-stop"]
    assert read_records(folder / "hardware.jsonl")


def test_an_env_that_nobody_closed_leaves_its_folder_free(tmp_path: Path) -> None:
    def fail() -> None:
        env = MonitorEnv(Corridor(1), tmp_path)
        env.reset()
        raise RuntimeError("a bug of somebody's")

    with pytest.raises(RuntimeError) as caught:
        fail()
    del caught
    MonitorEnv(Corridor(1), tmp_path).close()
    events = read_records(tmp_path / "events.jsonl")
    assert [row["event"] for row in events] == ["monitor-start", "monitor-stop"] * 2


def test_an_env_whose_episodes_cannot_be_written_records_nothing(tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").mkdir()
    with pytest.raises(OSError, match=r"episodes.jsonl is a folder"):
        MonitorEnv(Corridor(1), tmp_path)
    assert read_records(tmp_path / "events.jsonl")[-1]["event"] == "monitor-stop"


@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium says that a worker failed
def test_workers_that_record_into_one_folder_are_told_what_to_use(tmp_path: Path) -> None:
    envs = AsyncVectorEnv([lambda: MonitorEnv(Corridor(1), tmp_path)] * 2)
    with pytest.raises(ValueError, match="around a vector of envs use one MonitorVectorEnv"):
        envs.reset()
    envs.close(terminate=True)
