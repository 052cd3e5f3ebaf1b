"""The fault campaign: the same numbers give the same cases, and each oracle sees what is planted."""

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import campaign
from campaign_crew import Worker, run_cases
from campaign_lines import draw_line
from campaign_options import Command, Option, from_json, read_options, to_json
from campaign_oracles import Fault, judge
from campaign_place import Place
from campaign_process import Order, Outcome, Zygote
from campaign_rows import append_row, group, in_turn, read_done
from campaign_ruin import RUINS, ruin
from campaign_truth import judge_episodes, judge_evaluation, judge_weights
from campaign_visits import visit

HELP = """\
usage: redline train [-h] [OPTIONS]

--lr and --gamma are short for --optimizer.lr and --returns.gamma. --help-all shows every flag.

╭─ options ──────────────────────────────────────────╮ ╭─ env options ─────────────────────────────╮
│ -h, --help             show this help message      │ │ --env STR, --env.id STR                   │
│ --plain                Plain lines (default: False)│ │ --env.size INT         Side (default: 84) │
│ --topology {inline,async}                          │ ╰───────────────────────────────────────────╯
│                        Who runs where.             │
│ --max-minutes {None}|FLOAT                         │
│ --track [STR [STR ...]]                            │
╰────────────────────────────────────────────────────╯
"""
COMMANDS = [
    Command(("train",), read_options(HELP)),
    Command(("plan", "memory"), (Option("--capacity", "INT"), Option("--json", ""))),
]
PROGRAM = """\
import os, subprocess, sys, time, types

CHILD = '''
import os, sys
print("of redline", "campaign_zygote" in sys.modules, os.getppid(), os.getcwd(), os.environ["GIVEN"])
sys.exit(3)
'''

def main():
    argv = sys.argv[1:]
    match argv[0]:
        case "hang": time.sleep(600)
        case "orphan": subprocess.Popen(["sleep", "600"], start_new_session=True)
        case "fail": raise LookupError("planted")
        case "touch": open("../outside/file", "a").write("x")
        case "child":
            command, environ = [sys.executable, "-c", CHILD], {**os.environ, "GIVEN": "a=b"}
            child = subprocess.run(command, env=environ, cwd="/", text=True, stdout=subprocess.PIPE)
            print(child.returncode, os.getpid(), child.stdout)
        case "signal":
            import signal
            signal.raise_signal(int(argv[1]))
        case "serve":
            import json
            from http.server import BaseHTTPRequestHandler, HTTPServer

            class Failing(BaseHTTPRequestHandler):
                def do_GET(self):
                    self.send_response(200 if self.path == "/api/runs" else 500)
                    self.end_headers()
                    self.wfile.write(b'{"runs": [{"id": "0123456789abcdef"}], "fleets": []}')

            server = HTTPServer(("127.0.0.1", 0), Failing)
            print(json.dumps({"address": f"http://127.0.0.1:{server.server_port}"}), flush=True)
            server.serve_forever()
        case "stay":
            import signal
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
            time.sleep(600)
    return 0

program = types.ModuleType("redline.cli.main")
program.main = main
sys.modules["redline.cli.main"] = program
import campaign_zygote
campaign_zygote.load = lambda: None
campaign_zygote.serve()
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "case").fill()


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that forks a program with planted faults."""
    script = tmp_path_factory.mktemp("zygote") / "planted.py"
    here = str(Path(campaign.__file__).parent)
    script.write_text(f"import sys\nsys.path.insert(0, {here!r})\n{PROGRAM}", encoding="utf-8")
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]  # as nohup or a shell's background does
    try:
        with Zygote(f"test-{os.getpid()}", script) as found:
            yield found
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def outcome(*argv: str, code: int = 0, out: str = "", err: str = "") -> Outcome:
    return Outcome(argv, code, out, err, seconds=0.1)


def oracles(faults: list[Fault]) -> set[str]:
    return {fault.oracle for fault in faults}


def test_the_help_tells_every_option_and_its_type() -> None:
    found = {option.flag: option.takes for option in read_options(HELP)}
    assert found == {
        "--plain": "",
        "--env": "STR",
        "--env.size": "INT",
        "--topology": "{inline,async}",
        "--max-minutes": "{None}|FLOAT",
        "--track": "[STR [STR ...]]",
    }
    assert Option("--topology", found["--topology"]).choices == ["inline", "async"]
    assert from_json(to_json(COMMANDS)) == COMMANDS


def test_the_same_seed_and_number_give_the_same_command_line() -> None:
    first = [draw_line(COMMANDS, seed=3, index=index) for index in range(40)]
    assert [draw_line(COMMANDS, seed=3, index=index) for index in reversed(range(40))] == first[::-1]
    assert [draw_line(COMMANDS, seed=4, index=index) for index in range(40)] != first
    assert len({str(line.row()) for line in first}) > 20


def test_an_argument_that_a_shell_could_not_pass_is_never_drawn() -> None:
    lines = [draw_line(COMMANDS, seed=1, index=index) for index in range(50)]
    assert not any("\0" in word for line in lines for word in line.argv)


@pytest.mark.parametrize("how", RUINS)
def test_every_damage_changes_the_run_the_same_way_again(how: str, tmp_path: Path) -> None:
    results = []
    for attempt in ("first", "second"):
        place = Place(tmp_path / attempt).fill()
        run = place.cwd / "run"
        (run / "checkpoints").mkdir(parents=True)
        for name in ("run.json", "other.json", "checkpoints/state.json"):
            (run / name).write_text('{"config": {"gamma": 0.82}, "versions": [1, 2]}', encoding="utf-8")
        place.remember(run)
        ruin(run, "run.json", how, outside=place.outside, rng=random.Random(5))  # noqa: S311  not for secrets
        if how != "swap":  # with another of the same content
            assert place.changes(run)
        results.append(sorted(str(path.relative_to(run)) for path in run.rglob("*")))
    assert results[0] == results[1]


def test_a_traceback_is_told_by_its_error_and_place() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/x/src/redline/cli/main.py", line 9, in main\n'
        '  File "/x/src/redline/runs/lock.py", line 7, in read\n'
        "KeyError: 'host'\n"
    )
    (fault,) = judge(outcome("resume", "run", code=1, err=trace))
    assert fault == Fault("traceback", "KeyError: '…' in redline/runs/lock.py:read")


@pytest.mark.parametrize(
    ("found", "oracle"),
    [
        (outcome("train", code=3), "exit code"),
        (outcome("train", code=-9), "exit code"),
        (outcome("train", code=2, err="redline: a\nredline: b\n"), "one line"),
        (outcome("train", code=2), "one line"),
        (outcome("eval", "--json", out="{}\n{}\n"), "one object"),
        (outcome("eval", "--json", out='{"x": NaN}\n'), "one object"),
        (outcome("eval", out="\x1b[31mred"), "escapes"),
    ],
)
def test_what_a_command_says_and_returns_is_judged(found: Outcome, oracle: str) -> None:
    assert oracles(judge(found)) == {oracle}


def test_a_clean_end_and_a_clean_refusal_have_no_fault() -> None:
    assert judge(outcome("eval", "--json", out='{"schema": 1}\n')) == []
    assert judge(outcome("train", code=2, err="redline: seed is -1: use 0 or more\n")) == []
    assert judge(outcome("train", code=-9), allowed=(-9,)) == []


def test_a_planted_traceback_reaches_the_oracle(zygote: Zygote, place: Place) -> None:
    assert oracles(judge(zygote.run(Order(("fail",)), place))) == {"traceback"}


def test_a_hang_is_ended_and_told_with_its_place(zygote: Zygote, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaign_process.LOOK_S", 0.5)
    found = zygote.run(Order(("hang",), limit_s=0.5), place)
    assert found.is_hung
    assert found.code == -9
    assert "in main" in found.err  # faulthandler's trace
    assert oracles(judge(found)) == {"hang"}


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_a_command_gets_signals_that_the_campaign_ignores(number: signal.Signals, zygote: Zygote, place: Place) -> None:
    assert zygote.run(Order(("signal", str(int(number)))), place).code == -number


def test_a_command_that_goes_on_is_asked_to_end(zygote: Zygote, place: Place) -> None:
    found = zygote.run(Order(("stay",), limit_s=30.0, ask_after_s=0.5), place)
    assert (found.code, found.was_asked) == (75, True)
    assert judge(found) == []


def test_a_dashboard_is_asked_for_every_view_and_an_error_is_told_without_the_id(zygote: Zygote, place: Place) -> None:
    running = zygote.start(Order(("serve",)), place)
    faults = visit(running)
    assert running.finish().code == -signal.SIGTERM
    assert oracles(faults) == {"server error"}
    assert {fault.detail for fault in faults} >= {"/run/ID", "/api/runs/ID/rows"}


def test_an_orphan_is_found_by_its_mark_and_ended(
    zygote: Zygote, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("campaign_process.GONE_WITHIN_S", 0.2)
    found = zygote.run(Order(("orphan",)), place)
    assert list(found.left) == ["sleep"]
    assert oracles(judge(found)) == {"left running"}
    assert zygote.others() == {}


@pytest.mark.parametrize("spares", [0, 1])
def test_a_spare_becomes_the_interpreter_that_a_command_starts(spares: int, zygote: Zygote, place: Place) -> None:
    found = zygote.run(Order(("child",), spares=spares), place)
    code, pid, *said = found.out.split()
    assert (code, said) == ("3", ["of", "redline", str(spares == 1), pid, "/", "a=b"])
    assert found.left == []


def test_a_touched_sentinel_is_seen(zygote: Zygote, place: Place) -> None:
    assert place.changes(place.outside) == []
    zygote.run(Order(("touch",)), place)
    assert place.changes(place.outside) == ["file was changed"]
    (place.outside / "new").touch()
    shutil.rmtree(place.outside / "folder")
    assert {"new is new", "folder is gone", "folder/inner is gone"} <= set(place.changes(place.outside))


def test_wrong_weights_and_returns_are_seen_unless_they_are_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "8").mkdir(parents=True)
    (tmp_path / "checkpoints" / "8" / "weights.safetensors").write_bytes(b"other")
    resumed = outcome("resume", "run")
    assert oracles(judge_weights(resumed, tmp_path, steps=8, expected="0" * 64)) == {"weights"}
    assert oracles(judge_weights(resumed, tmp_path, steps=9, expected="0" * 64)) == {"lost run"}
    assert judge_weights(outcome(err="not bit-exact: why"), tmp_path, steps=8, expected="0" * 64) == []
    assert judge_weights(outcome(code=2), tmp_path, steps=8, expected="0" * 64) == []
    said = outcome("eval", "--json", out='{"checkpoint_steps": 8, "returns": [1.0]}')
    assert judge_evaluation(said, {"8": [1.0]}) == []
    assert oracles(judge_evaluation(said, {"8": [2.0]})) == {"evaluation"}


def test_an_episode_that_is_counted_twice_is_seen(tmp_path: Path) -> None:
    row = '{"role": "actor", "lane": 0, "seed": 1, "seed_offset_steps": 0, "steps": 5, "length_steps": 5}\n'
    (tmp_path / "checkpoints" / "8").mkdir(parents=True)
    (tmp_path / "checkpoints" / "8" / "state.json").write_text('{"counters": {"steps": 8, "episodes": 1}}')
    (tmp_path / "episodes.jsonl").write_text(row)
    assert judge_episodes(tmp_path, num_envs=1) == []
    (tmp_path / "episodes.jsonl").write_text(row + row)
    assert oracles(judge_episodes(tmp_path, num_envs=None)) == {"episodes"}


def test_kinds_take_turns_by_their_goals() -> None:
    turns = in_turn({"line": 100, "kill": 4})
    assert len(turns) == 104
    assert [sum(kind == "kill" for kind, _ in turns[: 26 * part]) for part in (1, 2, 3, 4)] == [1, 2, 3, 4]


def test_a_campaign_goes_on_from_its_rows_and_shows_the_smallest_case(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    fault = {"oracle": "hang", "detail": "eval"}
    for index, size in ((0, 9), (1, 3), (2, 5)):
        row = {"kind": "line", "index": index, "seed": 1, "commit": "c", "size": size, "case": {}, "faults": [fault]}
        append_row(path, row)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"kind": "li')
    rows = read_done(path, seed=1, commit="c")
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert read_done(path, seed=2, commit="c") == read_done(path, seed=1, commit="d") == []
    (found,) = group(rows)
    assert (found["count"], found["index"]) == (3, 1)


def test_a_case_is_named_by_kind_and_number() -> None:
    assert campaign.as_case("damage:12") == ("damage", 12)
    with pytest.raises(ValueError, match="x:1"):
        campaign.as_case("x:1")


WORKER = """\
import json, sys

print("ready", flush=True)
for line in sys.stdin:
    kind, _, index = line.strip().partition(":")
    if int(index) == 3:
        sys.exit(9)
    print(json.dumps({"kind": kind, "index": int(index), "faults": []}), flush=True)
"""


def test_workers_share_the_cases_and_one_that_dies_of_a_case_is_a_fault_of_it(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER, encoding="utf-8")
    rows: list[dict[str, Any]] = []
    workers = [Worker(script=script) for _ in range(2)]
    run_cases(iter([("line", index) for index in range(8)]), workers, keep=rows.append, is_over=lambda: False)
    assert sorted(row["index"] for row in rows) == list(range(8))
    assert [(row["index"], row["faults"]) for row in rows if row["faults"]] == [
        (3, [{"oracle": "campaign", "detail": "its worker ended with 9"}])
    ]


def test_a_worker_that_can_not_start_ends_the_campaign(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    workers = [Worker(script=tmp_path / "none.py")]
    with pytest.raises(RuntimeError, match="can't start: it ended with 2"):
        run_cases(iter([("line", 0)]), workers, keep=rows.append, is_over=lambda: False)
    assert rows == []


def test_no_case_begins_when_the_time_is_over(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    run_cases(iter([("line", 0)]), [Worker(script=tmp_path / "none.py")], keep=rows.append, is_over=lambda: True)
    assert rows == []
