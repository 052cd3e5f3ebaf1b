"""Run directories with a value for everything that a report can show, and ones whose every text is hostile."""

import math
import random
from pathlib import Path

from made_runs import episode, event, facts, reading, sample, write_run

from redline.jsonl import Row

HOSTILE = (
    "</script></style></title><script>document.title='hacked'</script>"
    """<img src=x onerror="document.title='hacked'">$\\frac{$&amp;"'`{}"""
)
ROLES = ("supervisor", "learner", "actor-0", "actor-1", "evaluator")


def write_full_run(
    folder: Path,
    *,
    algorithm: str = "dqn",
    seed: int = 1,
    num_gpus: int = 2,
    num_cores: int = 2,
    num_samples: int = 300,
) -> Path:
    """Write a run of some minutes in which everything was recorded."""
    rng = random.Random(f"{algorithm} {seed}")  # noqa: S311 - a curve that looks real
    run = facts(seed=seed, topology="async", batch_size=64 if algorithm == "ppo" else 32)
    run |= {"algorithm": algorithm, "command": "redline train --env CartPole-v1", "device": "cuda", "commit": "0" * 40}
    run["adjustments"] = ["replay.bytes: auto → 12_558_848 (zstd makes 60 bytes of a frame)"]
    run["host"]["usable_cores"] = num_cores
    pace = {"dqn": 1.0, "ppo": 1.6, "c51": 0.8}.get(algorithm, 1.2) * rng.uniform(0.95, 1.05)
    return write_run(
        folder,
        run,
        metrics=[_reading(at_s, pace, rng) for at_s in range(5, num_samples + 1, 5)],
        episodes=_episodes(num_samples, pace, rng),
        events=_events(num_samples),
        hardware=[_sample(at_s, pace, rng, num_gpus, num_cores) for at_s in range(1, num_samples + 1)],
    )


def _reading(at_s: int, pace: float, rng: random.Random) -> Row:
    busy = {"act": 0.3, "learn": 0.45, "keep": 0.05}
    roles = [{"role": role, "busy": busy, "waiting": {"actors": 0.1, "gather": 0.02}} for role in ROLES[:4]]
    speed = 100 * pace * rng.uniform(0.9, 1.1)
    more = {"steps_per_s": speed, "updates_per_s": speed / 4, "roles": roles, "warmup_steps_per_s": 900.0}
    return reading(float(at_s), samples=at_s * 800, samples_per_step=8.0, **more)


def _episodes(num_samples: int, pace: float, rng: random.Random) -> list[Row]:
    rows = [
        episode(float(at_s), 20 + 400 * pace / 2 * (1 - math.exp(-at_s / 120)) + rng.gauss(0, 25), lane=at_s % 4)
        for at_s in range(2, num_samples, 2)
    ]
    for number, at_s in enumerate(range(60, num_samples + 1, 60), start=1):
        greedy = {"role": "greedy", "evaluation": number, "weights_steps": 100 * at_s - 500}
        rows += [episode(float(at_s), 60.0 * number + lane, **greedy | {"lane": lane}) for lane in range(3)]
    return sorted(rows, key=lambda row: float(row["unix_s"]))


def _events(num_samples: int) -> list[Row]:
    rows = [
        event(0.0, "start", protocol="one action per step"),
        *(event(0.1, "process", role=role, pid=100 + place, threads=1) for place, role in enumerate(ROLES)),
        event(0.2, "monitor-start", pid=1, hz=1.0, cores=2, gpus=["Abacus 9", "Abacus 9"], absent={}),
        *(
            event(float(at_s), "evaluation", number=at_s // 60, mean_return=60.0, episodes=3, duration_s=2.0)
            for at_s in range(60, num_samples + 1, 60)
        ),
        event(120.0, "gpu-lost", gpu=1, message="GPU is lost"),
        event(130.0, "adjustment", message="samples_per_step: 8 → 7.9 (the learner was late)"),
        event(float(num_samples), "checkpoint", path="30000", stalled_s=0.12),
        event(float(num_samples), "monitor-stop", reason="closed", samples=num_samples, monitor_cpu_share=0.001),
        event(float(num_samples), "stop", reason="max-steps reached"),
    ]
    return [row for row in rows if row["time_s"] <= num_samples]


def _sample(at_s: int, pace: float, rng: random.Random, num_gpus: int, num_cores: int) -> Row:
    cores = [min(1.0, max(0.0, 0.8 + rng.gauss(0, 0.08))) for _ in range(num_cores)]
    use = sum(cores) * 0.9
    roles = {
        role: {"cpu_cores_used": use / 5, "rss_bytes": 200_000_000 + 1e6 * place, "processes": 1}
        for place, role in enumerate(ROLES)
    }
    gpus = [
        {
            "index": index,
            "name": f"Abacus {index}",
            "utilisation_percent": min(100.0, 55 + 20 * index + rng.gauss(0, 6)),
            "memory_controller_percent": 20 + 10 * index + rng.gauss(0, 3),
            "memory_used_bytes": 3e9 + 1e9 * index + 1e6 * at_s,
            "memory_total_bytes": 24e9,
            "power_w": 180 + 40 * index + rng.gauss(0, 9),
            "temperature_c": 50 + 8 * index + 10 * (1 - math.exp(-at_s / 60)),
            "fan_percent": 40 + 10 * index,
            "clock_sm_mhz": 1_800 - 90 * index + rng.choice((0, 15, 30)),
            "clock_memory_mhz": 9_501,
            "throttle_reasons": ["sw_power_cap"],
        }
        for index in range(num_gpus if at_s < 120 else min(num_gpus, 1))
    ]
    row = sample(
        float(at_s),
        cpu_cores_used=use,
        cpu_s=0.72 * num_cores * at_s,
        machine_cpu_cores_used=sum(cores),
        core_busy=cores,
        load_average_1m=2 * (1 - math.exp(-at_s / 60)) * pace,
        rss_bytes=1_100_000_000 + 1e6 * at_s,
        shared_bytes=300_000_000,
        processes=5,
        threads=22,
        memory_available_bytes=20e9 - 1e6 * at_s,
        read_bytes_per_s=4_096.0 * (at_s % 7 == 0),
        write_bytes_per_s=90_000.0 * rng.random(),
        disk_read_bytes_per_s=0.0,
        disk_write_bytes_per_s=150_000.0 * rng.random(),
        disk_free_bytes=70e9 - 1e5 * at_s,
        shm_used_bytes=64e6,
        shm_free_bytes=8e9,
        roles=roles,
        monitor_cpu_s=0.1 + 0.002 * at_s,
    )
    row |= {"pss_bytes": 900_000_000.0} if at_s % 10 == 1 else {}
    return row | ({"gpus": gpus} if gpus else {})


def write_hostile_run(folder: Path, *, seed: int = 1) -> Path:
    """Write a run that has markup wherever text can stand."""
    run = facts(note=HOSTILE, env={"id": HOSTILE}, seed=seed) | {
        "algorithm": HOSTILE,
        "command": HOSTILE,
        "protocol": HOSTILE,
    }
    run["adjustments"] = [f"{HOSTILE}: {HOSTILE} → {HOSTILE} ({HOSTILE})"]
    run["host"]["cpu_model"] = HOSTILE
    roles = [{"role": HOSTILE, "busy": {HOSTILE: 0.5}, "waiting": {HOSTILE: 0.2}}]
    odd = {
        "roles": {HOSTILE: {"cpu_cores_used": 1.0, "rss_bytes": 1e8}},
        HOSTILE: 3.0,
        "cpu_cores_used": 1.0,
        "\x00\ud800": 2.0,
    }
    return write_run(
        folder,
        run,
        metrics=[reading(float(at_s), roles=roles) for at_s in range(1, 20)],
        episodes=[episode(float(at_s), float(at_s), role=HOSTILE if at_s % 2 else "actor") for at_s in range(1, 20)],
        events=[event(0.0, HOSTILE, message=HOSTILE), event(1.0, "warning", **{HOSTILE: HOSTILE})],
        hardware=[sample(float(at_s), **odd) for at_s in range(1, 20)],
    )


def write_broken_run(folder: Path) -> Path:
    """Write a run of which every file is damaged in its own way, and of which no episode is left."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"algorithm": "dqn", "config": [1, 2')
    torn = '{"time_s": 3.0, "unix_s": 1700000003.0, "steps": 30, "steps_per_s": NaN'
    (folder / "metrics.jsonl").write_text(f'{{"time_s": NaN, "steps": "many", "unix_s": null}}\nnot JSON\n{torn}')
    (folder / "episodes.jsonl").write_text("")
    (folder / "hardware.jsonl").write_text(
        '{"unix_s": 1700000001.0, "interval_s": 1.0, "cpu_cores_used": NaN}\n[1]\n{"unix_s"'
    )
    return folder
