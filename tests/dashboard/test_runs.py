"""The overview: which runs and fleets it lists, and what it says of them."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from asking import Client
from full_runs import HOSTILE, write_broken_run, write_full_run, write_hostile_run
from made_fleets import add_run, make_fleet
from made_runs import episode, event, facts, reading, sample, write_run

from redline.jsonl import encode_row
from redline.runs.directory import RunLock

Dashboards = Callable[..., Client]


def append(path: Path, *rows: dict[str, object]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(encode_row(row) for row in rows))


def test_runs_are_listed_with_state_curve_and_reading(dashboard: Dashboards, tmp_path: Path) -> None:
    metrics = [reading(float(at), mean_return_100=at / 10, progress=at / 400, cost=0.5) for at in range(1, 401)]
    write_run(
        tmp_path / "pong" / "dqn" / "a",
        facts(),
        metrics=metrics,
        events=[event(0, "start"), event(9, "stop", reason="done")],
    )
    [run] = dashboard().runs().values()
    assert (run["name"], run["game"], run["algorithm"], run["seed"]) == ("pong/dqn/a", "CartPole-v1", "dqn", 1)
    assert (run["state"], run["how"]) == ("stopped", "done")
    assert (run["steps"], run["progress"], run["cost"]) == (40_000, 1.0, 0.5)
    assert len(run["spark"]) == 33
    assert run["spark"] == sorted(run["spark"])
    assert run["spark"][-1] == 40.0


def test_a_run_runs_while_its_lock_is_held_and_is_killed_without_a_last_word(
    dashboard: Dashboards, tmp_path: Path
) -> None:
    path = write_run(tmp_path / "a", facts(), metrics=[reading(1.0)], events=[event(0, "start")])
    client = dashboard()
    assert client.runs()["a"]["state"] == "killed"
    lock = RunLock(path)
    assert client.runs()["a"]["state"] == "running"
    lock.release()
    append(path / "events.jsonl", event(5, "stop", reason="SIGTERM"))
    assert client.runs()["a"]["how"] == "SIGTERM"


def test_only_what_changed_is_sent_again(dashboard: Dashboards, tmp_path: Path) -> None:
    for name in "abc":
        write_run(tmp_path / name, facts(), metrics=[reading(1.0)])
    client = dashboard()
    client.refresh()
    mark = client.get("/api/runs").json()["mark"]
    assert client.get(f"/api/runs?mark={mark}").status == 304
    append(tmp_path / "b" / "metrics.jsonl", reading(2.0))
    shutil.rmtree(tmp_path / "c")
    client.refresh()
    answer = client.get(f"/api/runs?mark={mark}").json()
    assert ([run["name"] for run in answer["runs"]], len(answer["gone"]), answer["whole"]) == (["b"], 1, False)
    client.refresh()
    assert client.get(f"/api/runs?mark={answer['mark']}").status == 304
    for other in ("", "x", "00000000-3", f"{mark}9999999999999999999", "-1", "é"):
        assert client.get(f"/api/runs?mark={other}").json()["whole"]


def test_links_lead_nowhere(dashboard: Dashboards, tmp_path: Path) -> None:
    secret = write_run(tmp_path / "elsewhere" / "secret", facts(), metrics=[reading(1.0)])
    shown = tmp_path / "runs"
    own = write_run(shown / "own", facts(), metrics=[reading(1.0)])
    (shown / "out").symlink_to(secret)
    (shown / "within").symlink_to(own)
    (shown / "loop").symlink_to(shown)
    write_run(shown / "holed", facts())
    (shown / "holed" / "metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    os.mkfifo(shown / "holed" / "events.jsonl")
    runs = dashboard(shown).runs()
    assert set(runs) == {"own", "holed"}
    assert runs["holed"]["steps"] is None


def test_damaged_and_hostile_runs_are_listed_as_text(dashboard: Dashboards, tmp_path: Path) -> None:
    write_broken_run(tmp_path / "broken")
    write_hostile_run(tmp_path / "hostile")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.json").write_text("[" * 100_000)
    write_run(
        tmp_path / "no\x1b[31mname\n", facts(), metrics=[reading(1.0, progress=float("inf"), cost="much", steps=True)]
    )
    client = dashboard()
    runs = client.runs()
    assert len(runs) == 4
    assert next(run for run in runs.values() if run["name"] == "hostile")["game"].startswith(HOSTILE[:40])
    assert all(name.isprintable() for name in runs)
    assert client.notes == []


def test_a_folder_that_vanishes_is_no_error(dashboard: Dashboards, tmp_path: Path) -> None:
    write_full_run(tmp_path / "runs" / "a", num_samples=20)
    client = dashboard(tmp_path / "runs")
    identity = client.id_of()
    shutil.rmtree(tmp_path / "runs")
    assert client.runs() == {}
    assert client.get(f"/api/runs/{identity}/rows").status == 404


def test_recordings_of_foreign_code_are_listed(dashboard: Dashboards, tmp_path: Path) -> None:
    path = write_run(
        tmp_path / "other", hardware=[sample(1.0, cpu_cores_used=1.0)], events=[event(0, "monitor-start", hz=1)]
    )
    for file in path.iterdir():
        os.utime(file, (0, 0))  # nothing was written for long
    [run] = dashboard().runs().values()
    assert (run["kind"], run["state"], run["game"]) == ("recording", "killed", None)


def test_stop_asks_the_process_that_holds_the_lock_and_no_other(dashboard: Dashboards, tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", facts(), metrics=[reading(1.0)])
    (path / "run.lock").write_text(  # of a living process that has nothing to do with the run
        json.dumps(
            {
                "pid": os.getppid(),
                "process_start_unix_s": psutil.Process(os.getppid()).create_time(),
                "host": os.uname().nodename,
            }
        )
    )
    client = dashboard(allow_stop=True)
    target, own = f"/api/runs/{client.id_of()}/stop", {"origin": "http://127.0.0.1:8090"}
    assert client.ask("POST", target, **own).status == 409
    assert dashboard().ask("POST", target, **own).status == 403
    child = os.fork()
    if child == 0:
        RunLock(path)
        time.sleep(60)
        os._exit(0)
    end_s = time.monotonic() + 20
    while client.ask("POST", target, **own).status == 409:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == 15


def test_three_hundred_runs_are_listed_once_and_then_left_alone(dashboard: Dashboards, tmp_path: Path) -> None:
    for number in range(300):
        write_run(
            tmp_path / f"{number}", facts(seed=number), metrics=[reading(1.0)], events=[event(1, "stop", reason="x")]
        )
    client = dashboard()
    assert len(client.runs()) == 300
    before = psutil.Process().io_counters().read_chars
    client.get("/api/runs")
    assert psutil.Process().io_counters().read_chars - before < 20_000


# Fleets


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    folder = tmp_path / "fleets" / "first"
    listing = make_fleet(folder, games=("pong", "breakout"), seeds=(1, 2), price=3.6)
    add_run(folder, listing.slots[0], [1.0, 2.0, 3.0])
    append(
        folder / "slots.jsonl",
        {"unix_s": 1_700_000_000.0, "slot": listing.slots[0].name, "state": "running", "attempt": 1},
        {"unix_s": 1_700_000_100.0, "slot": listing.slots[0].name, "state": "done", "attempt": 1, "epoch": 1},
    )
    append(
        folder / "health.jsonl",
        {
            "row": "incident",
            "unix_s": 1_700_000_050.0,
            "kind": "hung",
            "slot": listing.slots[0].name,
            "message": HOSTILE,
        },
    )
    return folder


def test_a_fleet_shows_slots_incidents_and_the_bill(dashboard: Dashboards, fleet: Path) -> None:
    client = dashboard(fleet.parent)
    runs = client.runs()
    [listed] = client.get("/api/runs").json()["fleets"]
    assert listed["counts"] == {"waiting": 3, "running": 0, "done": 1, "stopped": 0, "given up": 0}
    assert [run["fleet"] for run in runs.values()] == [listed["id"]]
    answer = client.get(f"/api/fleets/{listed['id']}").json()
    first = answer["slots"][0]
    assert (first["game"], first["state"], first["steps"]) == ("pong", "done", 10_000)
    assert first["run"] == next(iter(runs.values()))["id"]
    assert answer["bill"] == {"hours_s": 100.0, "most": 1, "price": "$3.60 per hour", "cost": "$0.100"}
    assert answer["incidents"][0]["message"].startswith(HOSTILE[:40])
    assert client.get(f"/api/fleets/{listed['id']}?mark={answer['mark']}").status == 304


def test_a_damaged_fleet_says_so_and_a_link_in_it_leads_nowhere(dashboard: Dashboards, fleet: Path) -> None:
    client = dashboard(fleet.parent)
    client.runs()
    [listed] = client.get("/api/runs").json()["fleets"]
    (fleet / "health.jsonl").unlink()
    (fleet / "health.jsonl").symlink_to("/etc/passwd")
    client.refresh()
    assert "is a link" in client.get(f"/api/fleets/{listed['id']}").json()["problem"]
    (fleet / "health.jsonl").unlink()
    (fleet / "fleet.json").write_text("{")
    client.refresh()
    assert "damaged" in client.get(f"/api/fleets/{listed['id']}").json()["problem"]
    assert client.get("/api/fleets/0123456789abcdef").status == 404
    assert client.notes == []


def test_numbers_of_rows_stay_those_of_the_file(dashboard: Dashboards, tmp_path: Path) -> None:
    write_run(tmp_path / "a", facts(), episodes=[episode(1.0, 5.0), episode(2.0, 6.0)])
    client = dashboard()
    rows = client.rows(client.id_of()).json()
    assert rows["episodes"]["numbers"] == [1, 2]
