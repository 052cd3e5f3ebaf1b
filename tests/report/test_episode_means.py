"""Episodes and the hardware meanwhile: overlaps by hand, and against the slow way."""

import random
import time
from pathlib import Path

import pytest
from made_runs import T0, episode, event, facts, made_run, sample, samples_of

from redline.monitor.hardware import means
from redline.report.run_files import RunFiles
from redline.report.run_series import episode_spans, joined_rows


def test_means_weigh_each_sample_by_its_overlap(tmp_path: Path) -> None:
    hardware = [sample(1.0, cpu_cores_used=1.0), sample(2.0, cpu_cores_used=2.0), sample(3.0, cpu_cores_used=4.0)]
    rows = [episode(0.5, 1.0), episode(2.25, 1.0), episode(2.75, 1.0), episode(9.0, 1.0), episode(11.0, 1.0)]
    joined = list(joined_rows(made_run(tmp_path / "run", facts(), hardware=hardware, episodes=rows)))
    assert [row["hardware"] for row in joined] == [
        {"cpu_cores_used": pytest.approx(1.0)},
        # ½ s at 1, 1 s at 2, ¼ s at 4
        {"cpu_cores_used": pytest.approx((0.5 * 1 + 1 * 2 + 0.25 * 4) / 1.75)},
        {"cpu_cores_used": pytest.approx(4.0)},
        # a quarter of a second is known of six
        {"cpu_cores_used": pytest.approx(4.0)},
        {},
    ]
    assert [row["begun_unix_s"] - T0 for row in joined] == pytest.approx([0.0, 0.5, 2.25, 2.75, 9.0])
    assert [row["return"] for row in joined] == [1.0] * 5


def test_a_value_that_is_read_rarely_is_a_mean_over_where_it_was_read(tmp_path: Path) -> None:
    hardware = [sample(1.0, rss_bytes=10.0), sample(2.0, rss_bytes=20.0, pss_bytes=5.0)]
    [row] = joined_rows(made_run(tmp_path / "run", facts(), hardware=hardware, episodes=[episode(2.0, 1.0)]))
    assert row["hardware"] == pytest.approx({"rss_bytes": 15.0, "pss_bytes": 5.0})


def spans_of(run: RunFiles) -> list[tuple[float, float]]:
    return [(begin - T0, end - T0) for begin, end in episode_spans(run)]


def test_an_episode_begins_where_the_one_before_in_its_lane_ended(tmp_path: Path) -> None:
    rows = [episode(2.0, 1.0), episode(3.0, 1.0, lane=1), episode(5.0, 1.0), episode(6.0, 1.0, begun_unix_s=T0 + 5.5)]
    run = made_run(tmp_path / "run", facts(), events=[event(0.5, "start")], episodes=rows)
    assert spans_of(run) == [(0.5, 2.0), (0.5, 3.0), (2.0, 5.0), (5.5, 6.0)]


def test_greedy_episodes_began_with_their_evaluation(tmp_path: Path) -> None:
    greedy = {"role": "greedy", "evaluation": 1}
    rows = [episode(1.0, 1.0), episode(9.9, 1.0, **greedy), episode(9.95, 1.0, **greedy), episode(12.0, 1.0)]
    events = [
        event(0.0, "start"),
        event(10.0, "evaluation", number=1, duration_s=4.0),
        # the same once more, after a resume took the run back
        event(90.0, "evaluation", number=1, duration_s=1.0),
    ]
    run = made_run(tmp_path / "run", facts(), events=events, episodes=rows)
    assert spans_of(run) == [(0.0, 1.0), (6.0, pytest.approx(9.9)), (6.0, pytest.approx(9.95)), (1.0, 12.0)]


def test_an_episode_after_a_resume_began_no_earlier(tmp_path: Path) -> None:
    events = [event(0.0, "start"), event(500.0, "resume")]
    run = made_run(tmp_path / "run", facts(), events=events, episodes=[episode(2.0, 1.0), episode(503.0, 1.0)])
    assert spans_of(run)[1] == (500.0, 503.0)


def test_a_beginning_after_the_end_is_no_time(tmp_path: Path) -> None:
    rows = [episode(2.0, 1.0, begun_unix_s=T0 + 50), episode(3.0, 1.0, begun_unix_s=-5.0)]
    run = made_run(tmp_path / "run", facts(), hardware=[sample(9.0, 9.0, rss_bytes=1.0)], episodes=rows)
    assert spans_of(run) == [(2.0, 2.0), (2.0, 3.0)]
    assert [row["hardware"] for row in joined_rows(run)] == [{}, {"rss_bytes": pytest.approx(1.0)}]


def test_means_that_were_written_stay_where_there_is_no_other(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", episodes=[episode(2.0, 1.0, hardware={"rss_bytes": 3.0})])
    assert next(joined_rows(run))["hardware"] == {"rss_bytes": 3.0}


def test_the_fast_way_is_the_slow_way() -> None:
    rng = random.Random(1)  # noqa: S311
    rows, end_s = [], 0.0
    for _ in range(200):
        interval_s = rng.uniform(0.01, 2.0)
        end_s += interval_s + rng.choice([0.0, 0.0, rng.uniform(0.0, 3.0)])
        more = {"pss_bytes": rng.uniform(0.0, 1e9)} if rng.random() < 0.2 else {}
        rows.append(sample(end_s, interval_s, core_busy=[rng.random(), rng.random()], cpu_s=end_s, **more))
    spans = [
        (T0 + begin, T0 + begin + rng.expovariate(1.0)) for begin in (rng.uniform(-5.0, end_s) for _ in range(300))
    ]
    fast = samples_of(rows).means(spans)
    slow = [means(rows, begin_unix_s=begin, end_unix_s=end) for begin, end in spans]
    assert any(not found for found in slow)
    assert [set(found) for found in fast] == [set(found) for found in slow]
    for ours, theirs in zip(fast, slow, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_many_episodes_and_samples_take_no_product_of_both() -> None:
    rows = [sample(float(n + 1), rss_bytes=float(n)) for n in range(5_000)]
    spans = [(T0 + n / 10, T0 + n / 10 + 0.1) for n in range(50_000)]
    started_s = time.process_time()
    found = samples_of(rows).means(spans)
    assert found[25_005] == {"rss_bytes": pytest.approx(2_500.0)}
    assert time.process_time() - started_s < 5.0  # pair by pair it would be minutes
