"""What recordings will take, beside what really recorded episodes take."""

from pathlib import Path

import pytest
from recorded_runs import append_episode, play_at_random

from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.episodes.estimate import (
    MeasuredRecordings,
    describe_estimate,
    estimate_bytes,
    measure_recordings,
    recorded_bytes,
)
from redline.episodes.tracing import RecordingConfig
from redline.runs.blocks import FILE_MAGIC, BlockWriter


def close_to(actual: float, expected: float) -> bool:
    return expected / 1.5 <= actual <= expected * 1.5


@pytest.mark.parametrize(("env_id", "has_values"), [("pong", False), ("breakout", False), ("ALE/Breakout-v5", True)])
def test_an_estimate_is_close_to_what_random_play_takes(env_id: str, has_values: bool, tmp_path: Path) -> None:
    config = EnvConfig(id=env_id)
    played = play_at_random(config, RecordingConfig(record_values=has_values), episodes=4)
    path = tmp_path / "recordings" / "episodes.rec"
    with BlockWriter(path) as blocks:
        for steps, trace in played:
            append_episode(blocks, steps, trace)
    taken = path.stat().st_size - len(FILE_MAGIC)
    steps = sum(trace.length_steps for _, trace in played)
    expected = estimate_bytes(
        steps=steps,
        num_actions=env_spec(config).num_actions,
        mean_length_steps=steps / len(played),
        values=has_values,
        record="all",
    )
    assert close_to(expected, taken)
    assert sum(recorded_bytes(trace) for _, trace in played) == pytest.approx(taken, rel=0.02)
    if not has_values:
        assert taken / len(played) <= 3_000


def test_an_estimate_counts_the_actions_that_lead_to_a_kept_episode() -> None:
    played = play_at_random(EnvConfig(id="breakout"), RecordingConfig(record="4"), episodes=3, num_envs=1)
    steps = played[-1][0]
    assert sum(len(trace.actions) for _, trace in played) == steps  # all nine episodes', three of which are kept
    taken = sum(recorded_bytes(trace) for _, trace in played[1:])  # nothing leads to the first
    expected = estimate_bytes(
        steps=8 * steps // 9, num_actions=4, mean_length_steps=steps / 9, values=False, record="4"
    )
    assert close_to(expected, taken)


def test_what_is_not_kept_takes_less() -> None:
    def estimate(record: str, *, values: bool = False) -> int:
        return estimate_bytes(steps=10_000_000, num_actions=6, mean_length_steps=900.0, values=values, record=record)

    assert estimate("off") == 0
    assert 0 < estimate("best") < estimate("2") < estimate("all") < estimate("all", values=True)
    assert 0 < estimate("100") < estimate("10") < estimate("2")
    assert estimate("1") == pytest.approx(estimate("all"), rel=0.01)


def test_fifty_million_steps_of_either_game_take_less_than_a_gigabyte() -> None:
    for num_actions, length_steps in ((6, 900.0), (4, 190.0)):
        each = {"num_actions": num_actions, "mean_length_steps": length_steps, "values": False, "record": "all"}
        assert estimate_bytes(steps=50_000_000, **each) < 1e9


def test_odd_numbers_make_no_trouble() -> None:
    def estimate(steps: int, length_steps: float, num_actions: int = 3) -> int:
        return estimate_bytes(
            steps=steps, num_actions=num_actions, mean_length_steps=length_steps, values=True, record="all"
        )

    assert estimate(0, 10.0) == 0
    assert estimate(1, 1_000.0) > 0
    assert estimate(10, 0.0) > 0
    assert estimate(1_000_000, 500_000.0, 18) < 1_000_000 * 18 * 3
    assert estimate(1_000, 10.0, 1_000) > 0


def test_a_sentence_says_what_is_kept() -> None:
    def sentence(record: str, *, values: bool = False) -> str:
        return describe_estimate(61_234_567, steps=50_000_000, record=record, values=values)

    assert sentence("all") == "every episode is recorded, about 61.2 MB for 50,000,000 steps"
    assert sentence("1") == sentence("all")
    assert sentence("100", values=True) == (
        "one episode in 100 is recorded, with the agent's values, about 61.2 MB for 50,000,000 steps"
    )
    assert sentence("best").startswith("every episode that beats all earlier ones is recorded")
    assert sentence("off") == "no episode is recorded: --record all keeps every one"


def test_random_play_is_weighed_until_each_lane_has_ended_once() -> None:
    shares: list[float] = []
    found = measure_recordings(
        EnvConfig(id="CartPole-v1"), values=False, seconds=0.1, seed=0, num_envs=3, threads=1, progress=shares.append
    )
    assert found.is_measured
    assert found.num_episodes >= 3
    assert 8 <= found.mean_length_steps <= 60
    assert 250 <= found.bytes_per_episode <= 600
    assert found.bytes_per_step == pytest.approx(found.bytes_per_episode / found.mean_length_steps)
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] <= shares[-1] <= 1.0


def test_where_no_episode_ends_in_time_it_is_computed() -> None:
    found = measure_recordings(EnvConfig(id="enduro"), values=False, seconds=0.05, seed=0, num_envs=2, threads=1)
    assert not found.is_measured
    assert found.num_episodes == 1
    assert found.recorded_bytes > 200


def test_a_measurement_speaks_of_episodes_and_steps() -> None:
    found = MeasuredRecordings(num_steps=1_000, num_episodes=4, recorded_bytes=2_000, is_measured=True)
    assert (found.mean_length_steps, found.bytes_per_episode, found.bytes_per_step) == (250.0, 500.0, 2.0)
