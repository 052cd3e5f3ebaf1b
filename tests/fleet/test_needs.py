"""What a run takes, by the files of a real one and by a driver's library that the tests make."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import redline
from health_stage import LOOK_S, RUNNER, Stage, process
from redline.fleet.growth import BLOCKS
from redline.fleet.needs import find_gpu, gpu_room_bytes, measure_needs, resident_bytes
from redline.fleet.packing import Machine, choose
from redline.jsonl import RecordWriter, Row, read_records
from redline.runs.host import usable_cores
from redline.runs.run_json import encode_run_json, read_run_json

FAKE_NVML = Path(__file__).parents[1] / "monitor" / "fake_nvml.c"
GIB = 2**30
CAPACITY = 2_000


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that has learnt for some seconds, watched closely."""
    return redline.train(
        "redline/Catch-v0",
        "dqn",
        seed=1,
        max_minutes=0.03,
        warmup_steps=100,
        replay={"capacity": CAPACITY},
        monitor={"hz": 20.0},
        log_dir=str(tmp_path_factory.mktemp("runs")),
        sets_process=False,
    ).path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def rewrite(path: Path, rows: list[Row]) -> None:
    path.unlink(missing_ok=True)
    with RecordWriter(path) as writer:
        for row in rows:
            writer.write(row)


def set_budget(run: Path, num_bytes: int | None) -> None:
    """Let the checkpoints say that the replay memory has so many bytes, or as many as its raw frames take."""
    for manifest in run.glob("checkpoints/*/manifest.json"):
        content = json.loads(manifest.read_text(encoding="utf-8"))
        content["replay"]["budget_bytes"] = num_bytes
        manifest.write_text(json.dumps(content), encoding="utf-8")


def test_a_run_that_is_over_tells_what_it_took(run: Path) -> None:
    needs = measure_needs(run, None)
    assert needs is not None
    assert 0.0 < needs.cores <= usable_cores() + 0.5
    assert 50_000_000 < needs.memory_bytes < 5_000_000_000
    assert needs.replay_capacity == CAPACITY
    assert needs.gpu_share is needs.gpu_memory_bytes is None
    saved = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert saved <= needs.disk_bytes < 20 * saved + 100_000_000


def test_its_packing_is_told(run: Path) -> None:
    needs = measure_needs(run, None)
    assert needs is not None
    packing = choose(needs, Machine(cores=4, memory_bytes=10**11, disk_bytes=10**12), slots=100)
    assert packing.concurrency >= 2
    assert packing.why.startswith(f"{packing.concurrency} side by side, 1 thread each: one run uses ")


def test_a_living_run_is_measured_once_it_has_learnt_for_a_while(run: Path) -> None:
    rows = read_records(run / "metrics.jsonl")
    early, late = rows[-1] | {"updates": 0, "time_s": 5.0}, rows[-1] | {"updates": 50, "time_s": 8.0}
    for known, is_enough in (
        ([early], False),
        ([early, late], False),
        ([early, late, late | {"time_s": 18.0}], True),
        ([early | {"time_s": 59.0}], False),
        ([early | {"time_s": 60.0}], True),  # a long warm-up
    ):
        rewrite(run / "metrics.jsonl", known)
        assert (measure_needs(run, os.getpid()) is not None) is is_enough


def test_memory_is_that_of_a_full_replay_memory(run: Path) -> None:
    (row,) = read_records(run / "metrics.jsonl")[-1:]
    filled = row | {"replay_bytes": 4 * GIB, "replay_capacity_transitions": 1_000, "replay_transitions": 250}
    rewrite(run / "metrics.jsonl", [filled])
    set_budget(run, None)
    now_bytes = resident_bytes(run)
    needs = measure_needs(run, None)
    assert needs is not None
    assert needs.memory_bytes - now_bytes == pytest.approx(3 * GIB, abs=GIB // 4)
    assert (needs.replay_bytes, needs.replay_capacity) == (4 * GIB, 1_000)


def test_compressed_replay_memory_counts_with_its_budget(run: Path) -> None:
    (row,) = read_records(run / "metrics.jsonl")[-1:]
    rewrite(run / "metrics.jsonl", [row | {"replay_bytes": GIB}])
    set_budget(run, 5 * GIB)
    needs = measure_needs(run, None)
    assert needs is not None
    assert needs.memory_bytes - resident_bytes(run) == pytest.approx(4 * GIB, abs=GIB // 4)


def test_replay_memory_on_the_disk_takes_disk(run: Path) -> None:
    (row,) = read_records(run / "metrics.jsonl")[-1:]
    rewrite(run / "metrics.jsonl", [row | {"replay_bytes": 4 * GIB, "replay_transitions": 0}])
    set_budget(run, None)
    facts = read_run_json(run)
    facts["config"]["replay"]["path"] = "elsewhere"
    (run / "run.json").write_bytes(encode_run_json(facts))
    needs = measure_needs(run, None)
    assert needs is not None
    assert needs.memory_bytes < GIB
    assert needs.disk_bytes > 8 * GIB  # the memory, and its copy in the checkpoints


def test_on_a_busy_machine_a_run_wants_more_than_it_gets(run: Path) -> None:
    rows = read_records(run / "hardware.jsonl")
    busy = [row | {"cpu_cores_used": 0.3, "machine_cpu_cores_used": usable_cores()} for row in rows]
    rewrite(run / "hardware.jsonl", busy)
    needs = measure_needs(run, None)
    assert needs is not None
    assert needs.cores == 1.0


def test_only_the_time_in_which_it_learnt_counts(run: Path) -> None:
    moments = [100.0, 110.0, 120.0]
    (row,) = read_records(run / "metrics.jsonl")[-1:]
    rewrite(run / "metrics.jsonl", [row | {"unix_s": at, "updates": int(at >= 110.0)} for at in moments])
    (sample,) = read_records(run / "hardware.jsonl")[-1:]
    used = {105.0: 0.1, 110.0: 0.1, 115.0: 1.4, 120.0: 1.4}
    samples = [sample | {"unix_s": at, "interval_s": 5.0, "cpu_cores_used": cores} for at, cores in used.items()]
    rewrite(run / "hardware.jsonl", [row | {"machine_cpu_cores_used": 0.0} for row in samples])
    needs = measure_needs(run, None)
    assert needs is not None
    assert needs.cores == pytest.approx(1.4)


def test_without_any_reading_a_run_counts_as_one_core(run: Path) -> None:
    rewrite(run / "metrics.jsonl", [{"unix_s": 100.0, "updates": 3, "time_s": 50.0}])
    (run / "hardware.jsonl").unlink()
    needs = measure_needs(run, None)
    assert needs is not None
    assert needs.cores == 1.0


def test_without_a_monitor_the_metrics_tell(run: Path) -> None:
    (run / "hardware.jsonl").unlink()
    (row,) = read_records(run / "metrics.jsonl")[-1:]
    rewrite(run / "metrics.jsonl", [row | {"cpu_percent": 70.0, "rss_bytes": 3 * GIB}])
    needs = measure_needs(run, None)
    assert needs is not None
    assert needs.cores == pytest.approx(0.7)
    assert needs.memory_bytes >= 3 * GIB


@pytest.mark.parametrize("damage", ["metrics.jsonl", "run.json", "checkpoints"])
def test_missing_files_are_no_reason_to_fail(run: Path, damage: str) -> None:
    path = run / damage
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    needs = measure_needs(run, None)
    assert (needs is None) is (damage != "checkpoints")


def test_rows_that_anybody_wrote_do_no_harm(run: Path) -> None:
    rewrite(run / "hardware.jsonl", [{"watched": 7, "gpus": "x", "unix_s": "y"}, {"watched": [{"pid": -1}, {}, 3]}])
    rewrite(run / "metrics.jsonl", [{"time_s": "long", "updates": [], "replay_capacity_transitions": {}}])
    assert measure_needs(run, None) is not None
    assert measure_needs(run, 1) is None


# GPUs, by the stand-in for the driver's library


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what the monitor's reader tells of the stand-in's two GPUs."""
    folder = tmp_path_factory.mktemp("nvml")
    command = ["gcc", "-std=c11", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(FAKE_NVML)]
    subprocess.run(command, check=True)
    code = "import json; from redline.monitor.gpus import open_gpus; print(json.dumps(open_gpus()[0].sample()[0]))"
    variables = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, check=True, timeout=60)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def hardware(gpus: list[dict[str, Any]], pid: int) -> list[Row]:
    return [{"unix_s": 1.0, "watched": [{"pid": pid}], "gpus": gpus}]


def test_gpu_memory_of_a_run_is_that_of_its_own_processes(gpus: list[dict[str, Any]]) -> None:
    use = find_gpu(hardware(gpus, 100), device="cuda")
    assert use is not None
    assert (use.own_bytes, use.room_bytes, use.share) == (20 * GIB, 30 * GIB, 0.97)
    second = find_gpu(hardware(gpus, 100), device="cuda:1")
    assert second is not None
    assert (second.own_bytes, second.room_bytes, second.share) == (2 * GIB, 16 * GIB, 0.03)


def test_a_gpu_that_somebody_made_up_does_no_harm() -> None:
    made_up = {"index": 0, "memory_total_bytes": 8, "processes": [{"pid": [100], "memory_bytes": 3}, {"pid": {}}]}
    for device in ("cuda:x", "cuda:" + "9" * 5_000, "cuda:²"):
        use = find_gpu(hardware([made_up], 100), device=device)
        assert use is not None
        assert (use.own_bytes, use.room_bytes) == (0, 8)


def test_in_a_container_that_does_not_see_its_numbers_all_of_the_memory_counts(gpus: list[dict[str, Any]]) -> None:
    use = find_gpu(hardware(gpus, 4_242), device="cuda:0")
    assert use is not None
    assert (use.own_bytes, use.room_bytes) == (30 * GIB, 40 * GIB)


def test_a_run_on_a_gpu_is_packed_by_its_memory_and_use(run: Path, gpus: list[dict[str, Any]]) -> None:
    facts = read_run_json(run)
    facts["device"] = "cuda:1"
    (run / "run.json").write_bytes(encode_run_json(facts))
    rewrite(run / "hardware.jsonl", hardware(gpus, 100))
    needs = measure_needs(run, None)
    assert needs is not None
    assert (needs.gpu_memory_bytes, needs.gpu_share, needs.is_gpu_unknown) == (2 * GIB, 0.03, False)
    machine = Machine(cores=64, memory_bytes=10**12, disk_bytes=10**13, gpu_memory_bytes=gpu_room_bytes(run))
    packing = choose(needs, machine, slots=100)
    assert packing.concurrency == 7  # 90 % of 16 GiB
    assert "GPU memory 7" in packing.why


def test_gpu_that_nothing_measures_is_for_one_run(run: Path) -> None:
    facts = read_run_json(run)
    facts["device"] = "cuda"
    (run / "run.json").write_bytes(encode_run_json(facts))
    (run / "hardware.jsonl").unlink()
    needs = measure_needs(run, None)
    assert needs is not None
    packing = choose(needs, Machine(cores=64, memory_bytes=10**12, disk_bytes=10**13), slots=100)
    assert packing.concurrency == 1
    assert packing.why.endswith("a GPU that is not measured 1")


# Health: no false alarm on what a real run writes


def test_files_of_a_real_run_raise_no_alarm(trained: Path, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for name in ("episodes.jsonl", "events.jsonl"):
        shutil.copy(trained / name, tmp_path / "run" / name)
    metrics, samples = read_records(trained / "metrics.jsonl"), read_records(trained / "hardware.jsonl")
    assert len(samples) > 2 * BLOCKS
    for place, sample in enumerate(samples):
        row = metrics[min(len(metrics) - 1, place * len(metrics) // len(samples))]
        steps = row["steps"] + place  # readings are rarer than samples
        stage.row = row | {"steps": steps, "roles": [{"pid": RUNNER}]}
        stage.processes[RUNNER] = process(rss_bytes=sample["rss_bytes"], cpu_s=LOOK_S * place)
        stage.look()
    assert [one for _, one in stage.told if one.kind != "no-learning"] == []
