"""A run's page: rows thinned at first, then what is new, whatever happens to the files meanwhile."""

import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import HOST, Client
from full_runs import HOSTILE, write_broken_run, write_full_run, write_hostile_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_runs import episode, event, facts, reading, sample, write_run

from redline.dashboard.videos import Videos
from redline.jsonl import cut_after, encode_row

Dashboards = Callable[..., Client]
OWN = {"origin": f"http://{HOST}"}


def append(path: Path, *rows: dict[str, object]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(encode_row(row) for row in rows))


def marks(rows: dict[str, Any]) -> dict[str, str]:
    return {name: rows[name]["mark"] for name in ("live", "about", "metrics", "episodes", "hardware")}


def test_a_page_gets_everything_once_and_then_what_is_new(dashboard: Dashboards, tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        facts(),
        metrics=[reading(float(at), loss=1.0 / at) for at in range(1, 11)],
        episodes=[episode(float(at), float(at)) for at in range(1, 11)],
        hardware=[sample(float(at), cpu_cores_used=1.5, cpu_s=1.5 * at) for at in range(1, 11)],
    )
    client = dashboard()
    identity = client.id_of()
    first = client.rows(identity, axis="steps").json()
    assert first["metrics"]["x"] == [100.0 * at for at in range(1, 11)]
    assert first["metrics"]["mean"]["loss"][:2] == [1.0, 0.5]
    assert first["episodes"]["mean"]["mean"][-1] == 5.5
    assert first["hardware"]["x"] == first["metrics"]["x"]
    known = marks(first)
    assert client.rows(identity, axis="steps", **known).status == 304
    append(folder / "metrics.jsonl", reading(11.0, loss=7.0))
    append(folder / "hardware.jsonl", sample(11.0, cpu_cores_used=2.0))
    news = client.rows(identity, axis="steps", **known).json()
    assert set(news) == {"live", "metrics", "hardware"}
    assert (news["metrics"]["whole"], news["metrics"]["x"], news["metrics"]["mean"]["loss"]) == (False, [1100.0], [7.0])
    assert (news["hardware"]["x"], news["hardware"]["mean"]["cpu_cores_used"]) == ([1100.0], [2.0])
    assert client.rows(identity, axis="minutes", **known).json()["metrics"]["whole"]  # another axis


def test_every_axis_has_its_places(dashboard: Dashboards, tmp_path: Path) -> None:
    write_run(
        tmp_path / "run",
        facts(),
        metrics=[reading(60.0), reading(120.0)],
        episodes=[episode(90.0, 1.0), episode(91.0, 2.0, role="greedy", evaluation=1, weights_steps=6_000)],
        hardware=[sample(60.0, 60.0, cpu_s=30.0), sample(120.0, 60.0, cpu_s=90.0)],
    )
    client = dashboard()
    for axis, place, evaluated in (("steps", 9_000.0, 6_000.0), ("minutes", 1.5, 91 / 60), ("cpu_s", 60.0, 61.0)):
        found = client.rows(client.id_of(), axis=axis).json()["episodes"]
        assert found["x"] == [pytest.approx(place)]
        assert found["evaluations"] == {"x": [pytest.approx(evaluated)], "mean": [2.0]}


def test_a_resume_that_takes_rows_back_sends_everything_anew(dashboard: Dashboards, tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        facts(),
        metrics=[reading(float(at)) for at in range(1, 11)],
        episodes=[episode(float(at), float(at)) for at in range(1, 11)],
    )
    client = dashboard()
    identity = client.id_of()
    first = client.rows(identity, axis="steps").json()
    cut_after(folder / "metrics.jsonl", 500)
    cut_after(folder / "episodes.jsonl", 500)
    append(folder / "metrics.jsonl", reading(6.5))
    news = client.rows(identity, axis="steps", **marks(first)).json()
    assert (news["metrics"]["whole"], news["metrics"]["x"]) == (True, [100.0, 200.0, 300.0, 400.0, 500.0, 650.0])
    assert (news["episodes"]["whole"], news["episodes"]["numbers"]) == (True, [1, 2, 3, 4, 5])


def test_a_long_run_has_at_most_two_thousand_points_and_no_lost_peak(dashboard: Dashboards, tmp_path: Path) -> None:
    write_run(
        tmp_path / "run",
        facts(),
        metrics=[reading(float(at), loss=1_000.0 if at == 1_234 else 1.0) for at in range(1, 5_001)],
        episodes=[episode(float(at), -99.0 if at == 321 else 1.0) for at in range(1, 5_001)],
    )
    client = dashboard()
    identity = client.id_of()
    found = client.rows(identity, pixels=1_000).json()
    assert len(found["metrics"]["x"]) <= 1_000
    assert max(found["metrics"]["high"]["loss"]) == 1_000.0
    assert len(found["episodes"]["x"]) <= 2_000
    assert found["episodes"]["numbers"][found["episodes"]["mean"]["return"].index(-99.0)] == 321
    part = client.rows(identity, pixels=1_000, axis="steps", begin=123_000, to=124_000).json()["metrics"]
    assert (part["x"][0], part["x"][-1], len(part["x"])) == (123_000.0, 124_000.0, 11)  # zoomed: row by row
    assert max(part["mean"]["loss"]) == 1_000.0


def test_a_long_gap_breaks_the_line(dashboard: Dashboards, tmp_path: Path) -> None:
    at = [*range(1, 50), *range(1_000, 1_050)]
    write_run(tmp_path / "run", facts(), metrics=[reading(float(place)) for place in at])
    client = dashboard()
    [gap] = client.rows(client.id_of()).json()["metrics"]["gaps"]
    assert 49 / 60 < gap < 1_000 / 60


def test_the_page_says_what_the_run_does(dashboard: Dashboards, tmp_path: Path) -> None:
    write_full_run(tmp_path / "run")
    client = dashboard()
    found = client.rows(client.id_of()).json()
    tiles = {name: value for name, value, _ in found["live"]["tiles"]}
    assert tiles["steps"] == "30,000"
    assert [bar[0] for bar in found["live"]["shares"][0]["bars"]] == ["supervisor", "learner", "actor-0", "actor-1"]
    assert found["live"]["events"][0][2:] == ["stop", "reason max-steps reached"]
    assert found["about"]["changes"][0][1:4] == ["replay.bytes", "auto", "12_558_848"]
    charts = {chart["name"]: chart for chart in found["about"]["charts"]}
    assert {"steps-per-s", "cores", "core-busy", "gpu-use", "memory", "role-cores"} <= set(charts)
    assert charts["core-busy"]["series"] == [["core_busy.0", "core 0"], ["core_busy.1", "core 1"]]


def test_the_speed_that_auto_measured_stands_beside_the_speed(dashboard: Dashboards, tmp_path: Path) -> None:
    auto = {"chosen": "b", "candidates": [{"name": "a", "steps_per_s": 1.0}, {"name": "b", "steps_per_s": 321.0}]}
    write_run(tmp_path / "run", facts() | {"auto": auto}, metrics=[reading(1.0)])
    client = dashboard()
    charts = client.rows(client.id_of()).json()["about"]["charts"]
    assert [chart["limit"]["value"] for chart in charts if "limit" in chart] == [321.0]


def test_broken_hostile_and_empty_runs_have_a_page(dashboard: Dashboards, tmp_path: Path) -> None:
    write_broken_run(tmp_path / "broken")
    write_hostile_run(tmp_path / "hostile")
    write_run(tmp_path / "empty", {})
    odd = {"role": 7, "busy": [1], "waiting": {"x": "y", "z": math.inf}}
    write_run(
        tmp_path / "odd", {"schema": 1, "config": 7, "auto": [3]}, metrics=[reading(1.0, roles=[odd, 3], loss=[1])]
    )
    client = dashboard()
    for name, run in client.runs().items():
        for axis in ("steps", "minutes", "cpu_s"):
            answer = client.rows(run["id"], axis=axis)
            assert client.notes == []
            assert answer.json()["about"]["title"], name
    assert HOSTILE[:40] in client.rows(client.id_of("hostile")).json()["about"]["title"]
    assert client.notes == []


def test_a_run_that_is_removed_while_it_is_open_is_told(dashboard: Dashboards, tmp_path: Path) -> None:
    write_full_run(tmp_path / "run", num_samples=20)
    client = dashboard()
    identity = client.id_of()
    assert client.rows(identity).status == 200
    shutil.rmtree(tmp_path / "run")
    assert client.rows(identity).status in (200, 304)  # until the next search
    client.runs()
    assert client.rows(identity).status == 404


def test_a_large_run_tells_how_far_it_is_read(
    dashboard: Dashboards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.dashboard.app.READ_S", 0.0)
    monkeypatch.setattr("redline.dashboard.app.WAIT_S", 0.0)
    monkeypatch.setattr("redline.report.growing_run.SLICE_BYTES", 10_000)
    write_run(tmp_path / "run", facts(), metrics=[reading(float(at)) for at in range(1, 5_000)])
    client = dashboard()
    identity = client.id_of()
    told = [client.get(f"/api/runs/{identity}/rows").json().get("progress") for _ in range(3)]
    assert 0.0 < told[0] < told[1] < told[2] < 1.0
    client.wait(1.0)
    assert len(client.rows(identity, pixels=300).json()["metrics"]["x"]) == 300


# Several runs


def test_seeds_of_one_setting_are_a_band_and_games_have_charts_of_their_own(
    dashboard: Dashboards, tmp_path: Path
) -> None:
    for seed in (1, 2, 3):
        write_run(
            tmp_path / f"a{seed}", facts(seed=seed), episodes=[episode(float(at), at * seed) for at in range(1, 50)]
        )
    write_run(tmp_path / "b", facts(seed=1, batch_size=64), episodes=[episode(float(at), 5.0) for at in range(1, 50)])
    write_run(tmp_path / "c", facts(env={"id": "pong"}), episodes=[episode(float(at), 5.0) for at in range(1, 50)])
    client = dashboard()
    ids = ",".join(run["id"] for run in client.runs().values())
    answer = client.get(f"/api/compare?axis=steps&ids={ids}").json()
    assert [chart["title"] for chart in answer["charts"]] == ["CartPole-v1", "pong"]
    band, single = answer["charts"][0]["chart"]["lines"]
    assert band["label"].endswith("3 runs")
    assert band["y"][-1] == pytest.approx(2 * 25.0)
    assert (band["low"][-1], band["high"][-1]) == (pytest.approx(25.0), pytest.approx(75.0))
    assert "low" not in single
    assert [run["group"] for run in answer["runs"]].count(answer["runs"][0]["group"]) == 3


@pytest.mark.parametrize(
    "query", ["", "ids=", "ids=../..", "ids=x" * 9, "ids=" + ",".join(["0" * 16] * 99), "axis=no&ids=" + "0" * 16]
)
def test_a_comparison_of_nothing_is_refused(dashboard: Dashboards, query: str) -> None:
    assert dashboard().get(f"/api/compare?{query}").status == 400


# Videos


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "run", facts(), episodes=[episode(1.0, 5.0)])
    (folder / "recordings").mkdir()
    (folder / "recordings" / "episodes.rec").write_bytes(b"")
    return folder


def with_videos(client: Client, script: str) -> None:
    client.dashboard.videos.close()
    client.dashboard.videos = Videos(
        lambda run, number, out: [sys.executable, "-c", script, str(run), number, str(out)]
    )


def made(client: Client, target: str) -> dict[str, Any]:
    answer = client.ask("POST", target, **OWN).json()
    for _ in range(400):
        if answer["state"] in ("made", "failed"):
            break
        client.wait(0.05)
        answer = client.get(target).json()
    return answer


def test_an_episode_is_played_when_asked_for_and_kept(dashboard: Dashboards, recorded: Path) -> None:
    client = dashboard()
    with_videos(
        client,
        "import sys; open(sys.argv[3], 'wb').write(b'film'); "
        """print('{"episodes": [{"id": "' + sys.argv[2] + '", "return": 5.0, "length_steps": 9}]}')""",
    )
    target = f"/api/runs/{client.id_of()}/videos/1"
    assert client.get(target).json() == {"state": "none"}
    assert client.get(f"{target}/file").status == 404
    assert made(client, target)["about"] == {"number": "1", "value": 5.0, "length": 9}
    answer = client.get(f"{target}/file", range="bytes=1-2")
    assert (answer.status, answer.body) == (206, b"il")
    assert client.ask("POST", target, **OWN).json()["state"] == "made"


def test_an_episode_that_cannot_be_played_says_why(dashboard: Dashboards, recorded: Path) -> None:
    client = dashboard()
    with_videos(client, """print('{"error": "the emulator is gone"}')""")
    answer = made(client, f"/api/runs/{client.id_of()}/videos/last")
    assert (answer["state"], answer["why"]) == ("failed", "the emulator is gone")


def test_recordings_behind_a_link_are_not_played(dashboard: Dashboards, recorded: Path, tmp_path: Path) -> None:
    (recorded / "recordings").rename(tmp_path / "elsewhere")
    (recorded / "recordings").symlink_to(tmp_path / "elsewhere")
    client = dashboard()
    with_videos(client, "import sys; open(sys.argv[3], 'wb').write(b'film')")
    answer = made(client, f"/api/runs/{client.id_of('run')}/videos/1")
    assert "is a link" in answer["why"]


def test_few_videos_wait_at_a_time(dashboard: Dashboards, recorded: Path) -> None:
    client = dashboard()
    with_videos(client, "import time; time.sleep(60)")
    identity = client.id_of()
    states = [client.ask("POST", f"/api/runs/{identity}/videos/{number}", **OWN).status for number in range(1, 9)]
    assert states == [200] * 6 + [429] * 2


@pytest.mark.parametrize("episode", ["..", "1/../2", "-1", "--out", "x", "1" * 13, "%2e%2e", "best;x", "é"])
def test_an_episode_is_a_number_or_a_word(dashboard: Dashboards, recorded: Path, episode: str) -> None:
    client = dashboard()
    assert client.ask("POST", f"/api/runs/{client.id_of()}/videos/{episode}", **OWN).status in (400, 404, 405)


# Nonsense

PIECES = st.sampled_from(
    [
        "api",
        "runs",
        "rows",
        "..",
        ".",
        "",
        "static",
        "app.js",
        "etc",
        "passwd",
        "%2e%2e",
        "%00",
        "\\",
        "login",
        "compare",
        "fleets",
        "videos",
        "file",
        "~",
        "é",
        "\x00",
        "\n",
    ]
)
QUERY = st.text(st.characters(codec="utf-8"), max_size=60)
NAMES = st.sampled_from(
    ["axis", "pixels", "from", "to", "metrics", "episodes", "hardware", "live", "about", "mark", "ids", "once", "x"]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X"]),
    path=st.lists(PIECES, max_size=7).map("/".join),
    query=st.lists(st.tuples(NAMES, QUERY), max_size=6),
)
def test_nonsense_is_refused_and_shows_nothing(
    noisy: Client, method: str, path: str, query: list[tuple[str, str]]
) -> None:
    target = "/" + path + "?" + "&".join(f"{name}={value}" for name, value in query)
    answer = noisy.ask(method, target, **OWN)
    assert 200 <= answer.status < 500
    assert b"root:" not in answer.body
    assert noisy.notes == []


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.dictionaries(NAMES, st.one_of(QUERY, st.floats().map(str), st.integers().map(str)), max_size=8))
def test_nonsense_about_a_run_is_refused(noisy: Client, query: dict[str, str]) -> None:
    answer = noisy.rows(noisy.id_of(), **query)
    assert answer.status in (200, 304, 400)
    assert noisy.notes == []


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("noisy")
    write_run(folder / "run", facts(), metrics=[reading(float(at)) for at in range(1, 9)], events=[event(0, "start")])
    client = Client([folder])
    yield client
    client.close()
