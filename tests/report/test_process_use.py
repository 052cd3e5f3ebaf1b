"""The largest processes of a recording, and why its GPUs were slowed down."""

from pathlib import Path

from made_runs import made_run, sample

from redline.jsonl import Row
from redline.report.hardware_use import LARGEST
from redline.report.run_charts import NEVER, throttling_chart


def process(pid: int, cores: float, rss_bytes: float, **more: object) -> Row:
    return {"pid": pid, "role": "learner", "name": "python", "cpu_cores_used": cores, "rss_bytes": rss_bytes, **more}


def test_cores_are_means_over_time_and_memory_is_the_peak(tmp_path: Path) -> None:
    rows = [
        sample(1.0, watched=[process(7, 2.0, 5e8)]),
        sample(4.0, 3.0, watched=[process(7, 1.0, 3e8), process(8, 0.5, 1e8, role="actor")]),
    ]
    found = made_run(tmp_path, hardware=rows).processes
    assert [(use.pid, use.role, use.cores, use.rss_peak_bytes) for use in found.largest()] == [
        (7, "learner", 1.25, 5e8),
        (8, "actor", 0.5, 1e8),
    ]
    assert len(found.found) == 2


def test_memory_on_gpus_is_that_of_all_at_a_time_also_of_strangers(tmp_path: Path) -> None:
    def gpus(*held: tuple[int, float]) -> list[Row]:
        return [
            {"index": place, "processes": [{"pid": pid, "memory_bytes": size}]}
            for place, (pid, size) in enumerate(held)
        ]

    rows = [
        sample(1.0, watched=[process(7, 1.0, 1e8)], gpus=gpus((7, 1e9), (7, 2e9))),
        sample(2.0, watched=[process(7, 1.0, 1e8)], gpus=gpus((7, 2e9), (99, 5e9))),
    ]
    found = made_run(tmp_path, hardware=rows).processes
    assert [(use.pid, use.role, use.gpu_peak_bytes) for use in found.largest()] == [
        (7, "learner", 3e9),
        (99, None, 5e9),
    ]


def test_of_many_processes_the_largest_are_chosen(tmp_path: Path) -> None:
    watched = [process(pid, float(pid), 1e9 - pid) for pid in range(1, 101)]
    found = made_run(tmp_path, hardware=[sample(1.0, watched=watched)]).processes
    assert len(found.found) == 100
    assert {use.pid for use in found.largest()} == {*range(1, LARGEST + 1), *range(101 - LARGEST, 101)}


def test_what_is_no_process_is_passed_over(tmp_path: Path) -> None:
    odd = [{"pid": "x"}, {}, {"pid": 3, "name": 4, "cpu_cores_used": None, "rss_bytes": "x"}]
    rows = [sample(1.0, watched=odd, gpus=[{"processes": 3}, {"processes": [{"pid": 1}]}]), sample(2.0, watched=5)]
    assert made_run(tmp_path, hardware=rows).processes.largest() == []


def test_reasons_of_throttling_are_shares_of_the_samples(tmp_path: Path) -> None:
    def gpus(at_s: int) -> list[Row]:
        reasons = ["sw_power_cap"] if at_s % 2 else []
        return [{"index": 0, "throttle_reasons": reasons}, {"index": 1, "throttle_reasons": []}]

    run = made_run(tmp_path, hardware=[sample(float(at_s), gpus=gpus(at_s)) for at_s in range(1, 241)])
    chart = throttling_chart(run)
    assert chart is not None
    assert [line.label for line in chart.lines] == ["GPU 0: sw_power_cap", f"GPU 1: {NEVER}"]
    assert set(chart.lines[0].y) == {50.0}
    assert set(chart.lines[1].y) == {0.0}
    assert len(chart.lines[0].x) == 24


def test_without_gpus_there_is_no_chart_of_throttling(tmp_path: Path) -> None:
    assert throttling_chart(made_run(tmp_path, hardware=[sample(1.0, cpu_cores_used=1.0)])) is None
