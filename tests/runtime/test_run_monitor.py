"""Every run is watched by a process of its own, in both topologies, and goes on without it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.jsonl import Row, read_records
from redline.monitor.processes import read_stat
from redline.replay.layout import ReplayConfig
from redline.runtime.config import EvaluatorConfig, Job, Limits, MonitorConfig
from redline.runtime.gauges import Display
from redline.runtime.launch import AnySession, start_run

SHORT = replace(DQN_CLASSIC, warmup_steps=100, replay=ReplayConfig(capacity=1_000), samples_per_step=8.0)


def job(log_dir: Path, **changes: Any) -> Job:
    env, limits = EnvConfig("CartPole-v1", stack=1, skip=1), Limits(max_steps=None, max_minutes=0.01)
    made = Job(env=env, algorithm=SHORT, log_dir=log_dir, num_envs=4, limits=limits, monitor=MonitorConfig(hz=20.0))
    return replace(made, **changes)


def play(session: AnySession) -> tuple[list[Row], list[Row]]:
    """Train to the end, and return samples and events."""
    with session:
        session.train(lambda: None)
    return read_records(session.run.path / "hardware.jsonl"), read_records(session.run.path / "events.jsonl")


def test_a_run_records_its_hardware_and_says_what_that_cost(tmp_path: Path, listener: Display) -> None:
    rows, events = play(start_run(job(tmp_path), "dqn", listener))
    (own,) = (process for process in rows[-1]["watched"] if process["pid"] == os.getpid())
    assert own["role"] == "inline"
    assert rows[-1]["roles"]["inline"]["rss_bytes"] == own["rss_bytes"]
    names = [row["event"] for row in events]
    assert names.index("monitor-start") < names.index("monitor-stop") < names.index("stop")
    stop = events[names.index("monitor-stop")]
    assert stop["samples"] == len(rows)
    assert 0.0 < stop["monitor_cpu_share"] < 1.0
    assert {"steps", "time_s", "unix_s"} <= stop.keys()


def test_the_roles_of_a_run_with_processes_of_its_own_are_told_apart(tmp_path: Path, listener: Display) -> None:
    changes = {"evaluator": EvaluatorConfig(every_minutes=0.0), "limits": Limits(max_steps=None, max_minutes=0.03)}
    rows, events = play(start_run(job(tmp_path, topology="async", actors=2, **changes), "dqn", listener))
    named = {row["pid"]: row["role"] for row in events if row["event"] == "process"}
    roles = {role for row in rows for role in row["roles"]}
    assert {"supervisor", "learner", "actor-0", "actor-1"} <= roles <= {*named.values(), "other"}
    assert all(named[process["pid"]] == process["role"] for process in rows[-1]["watched"] if process["pid"] in named)
    assert any(row["roles"].get("learner", {}).get("cpu_cores_used", 0.0) > 0.0 for row in rows)


def test_no_monitor_leaves_no_trace(tmp_path: Path, listener: Display) -> None:
    limits = Limits(max_steps=200)
    session = start_run(job(tmp_path, monitor=MonitorConfig(hz=0), limits=limits), "dqn", listener)
    with session:
        session.train(lambda: None)
    assert not (session.run.path / "hardware.jsonl").exists()
    assert "monitor-start" not in {row["event"] for row in read_records(session.run.path / "events.jsonl")}


def test_a_run_goes_on_when_its_monitor_is_lost(tmp_path: Path, listener: Display) -> None:
    session = start_run(job(tmp_path, limits=Limits(max_steps=None, max_minutes=0.03)), "dqn", listener)
    killed: list[int] = []

    def kill_monitor() -> None:
        """Kill the monitor, once it has begun."""
        monitor = session._monitor._process  # type: ignore[union-attr]
        if (
            not killed
            and monitor is not None
            and monitor.pid is not None
            and (session.run.path / "hardware.jsonl").exists()
        ):
            killed.append(monitor.pid)
            os.kill(monitor.pid, 9)

    with session:
        outcome = session.train(kill_monitor)  # type: ignore[arg-type]
    assert outcome.reason.startswith("max-minutes")
    warnings = [row for row in read_records(session.run.path / "events.jsonl") if row["event"] == "monitor-warning"]
    assert [row["message"].partition(":")[0] for row in warnings] == ["the monitor was lost"]
    stat = read_stat(killed[0])
    assert stat is None or stat.has_ended


@pytest.mark.parametrize("hz", [-1.0, 0.01, 21.0, float("nan"), float("inf")])
def test_a_rate_that_cannot_be_kept_is_refused(hz: float) -> None:
    with pytest.raises(UserError, match=r"monitor\.hz is .*: use 0 for no monitor, or 0\.05 to 20"):
        MonitorConfig(hz=hz)
