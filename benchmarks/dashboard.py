"""What does `redline dashboard` show how soon, what does it cost, and what does it survive?

Freshness with 20 tabs, 300 runs, a run of a day, the memory of the server, that of a page while such a run goes on, the
server's CPU time, a training beside it with and without polling by turns, 10,000 malformed requests, and the end by
Ctrl-C.
"""

import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean, median
from typing import Any

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from dashboard_runs import LiveRun, write_many, write_run
from recording import Measurement, at_least, finish, make_parser, refuse_busy_machine, say, spread
from redline.jsonl import Row, read_records
from redline.report.statistics import mean_interval

NAME = "dashboard"
PARTS = ("scale", "freshness", "memory", "faults", "cost")
PROGRAM = (sys.executable, "-m", "redline.cli.main")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
NEWEST = "document.querySelector(\"figure[data-name='loss']\")?.panel?.plot?.data[0].at(-1)"
DRAWN = "document.querySelectorAll('figure.lines canvas').length > 0"
WATCH = f"""(target) => {{
  window.seen = null;
  const look = () => {{
    if ({NEWEST} < target) return;
    window.seen = Date.now() / 1000;
    clearInterval(timer);
  }};
  const timer = setInterval(look, 10);
}}"""
WARM_UP_S, LEAST_PAIRS = 20.0, 5
PATIENCE_S = 120.0
DAY_S, DAY_EPISODES = 86_400, 100_000
# what must show
FRESH_S, LIST_S, FIRST_S, AGAIN_S, SERVER_BYTES, GROWTH, CORE_SHARE, SPEED_RATIO, END_S = (
    *(2.0, 1.0, 5.0, 1.0, 100e6),
    *(0.10, 0.01, 0.97, 1.0),
)
TRAINING = (
    *("train", "--env", "pong", "--algo", "dqn", "--warmup-steps", "500", "--replay.capacity", "20_000"),
    *("--max-minutes", "240", "--plain"),
)


class Server:
    """A dashboard of a folder."""

    def __init__(self, folder: Path) -> None:
        command = [*PROGRAM, "dashboard", str(folder), "--port", "0", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None  # noqa: S101 - a pipe was asked for
        self.address = str(json.loads(self.process.stdout.readline())["address"])
        self.facts = psutil.Process(self.process.pid)

    def ask(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"{self.address}{path}", timeout=PATIENCE_S) as answer:  # noqa: S310 - our own
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def runs(self) -> dict[str, str]:
        """Return the ids of the runs by their names."""
        return {run["name"]: run["id"] for run in json.loads(self.ask("/api/runs")[1])["runs"]}

    def cpu_s(self) -> float:
        times = self.facts.cpu_times()
        return float(times.user + times.system)

    def end(self) -> float:
        """Press Ctrl-C and return how long the end took."""
        begun_s = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)
        return time.monotonic() - begun_s

    def said(self) -> str:
        """Return what an ended server wrote to stderr."""
        return self.process.communicate()[1]


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a folder meanwhile."""
    server = Server(folder)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


def wait_for(page: Page, condition: str) -> float:
    """Return how long it took until a condition held."""
    begun_s = time.monotonic()
    while not page.evaluate(condition):
        if time.monotonic() - begun_s > PATIENCE_S:
            raise TimeoutError(condition)
        page.wait_for_timeout(10)
    return time.monotonic() - begun_s


def heap_bytes(page: Page) -> float:
    """Return what the page's script holds, after a collection of what it does not."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    found = session.send("Performance.getMetrics")["metrics"]
    session.detach()
    return float(next(one["value"] for one in found if one["name"] == "JSHeapUsedSize"))


def measure_freshness(browser: Browser, folder: Path, args: Namespace) -> Row:
    """Return how long a row takes to the screens of many tabs."""
    live = LiveRun(folder / "live")
    with serving(folder) as server:
        path = f"/run/{server.runs()['live']}?axis=steps"
        pages = [browser.new_page() for _ in range(args.tabs)]
        for page in pages:
            page.goto(server.address + path)
            wait_for(page, f"{NEWEST} > 0")
        delays_s: list[float] = []
        for _ in range(args.rows):
            steps = live.write()
            written_s = time.time()
            for page in pages:
                page.evaluate(WATCH, steps)
            time.sleep(2 * FRESH_S)
            seen = [page.evaluate("window.seen") for page in pages]
            delays_s += [FRESH_S * 99 if at_s is None else max(0.0, at_s - written_s) for at_s in seen]
        for page in pages:
            page.close()
    say(f"freshness: median {median(delays_s):.2f} s, largest {max(delays_s):.2f} s")
    return {"delay_s": spread(delays_s), "tabs": args.tabs, "rows": args.rows}


def measure_memory(browser: Browser, folder: Path, args: Namespace) -> Row:
    """Return the memory of a page of a run of a day, before and after so many minutes in which the run goes on."""
    live = LiveRun(folder / "live", seconds=int(DAY_S * args.share), episodes=int(DAY_EPISODES * args.share))
    held: list[float] = []
    with serving(folder) as server:
        page = browser.new_page()
        page.goto(f"{server.address}/run/{server.runs()['live']}")
        wait_for(page, DRAWN)
        for _ in range(2):
            end_s = time.monotonic() + (WARM_UP_S if not held else args.minutes * 60)
            while time.monotonic() < end_s:
                live.write()
                page.wait_for_timeout(1_000)
            held.append(heap_bytes(page))
        page.close()
    say(f"page: {held[0] / 1e6:.1f} MB, after {args.minutes:g} minutes {held[1] / 1e6:.1f} MB")
    return {"page_bytes": held, "page_growth": held[1] / held[0] - 1, "minutes": args.minutes}


def measure_scale(browser: Browser, folder: Path, args: Namespace) -> Row:
    """Return how soon 300 runs are listed and a run of a day is open."""
    write_many(folder / "many", args.runs, seconds=300)
    write_run(folder / "day", seconds=int(DAY_S * args.share), episodes=int(DAY_EPISODES * args.share))
    with serving(folder) as server:
        page = browser.new_page()
        begun_s = time.monotonic()
        listed = len(json.loads(server.ask("/api/runs")[1])["runs"])
        list_s = time.monotonic() - begun_s
        page.goto(server.address)
        shown_s = wait_for(page, f"document.querySelectorAll('tbody tr').length >= {min(listed, 400)}")
        identity = server.runs()["day"]
        page.goto(f"{server.address}/run/{identity}")
        told = wait_for(page, "!document.querySelector('.reading').hidden || " + DRAWN)
        first_s = told + wait_for(page, DRAWN)
        page.goto(server.address)
        page.goto(f"{server.address}/run/{identity}")
        again_s = wait_for(page, DRAWN)
        rss_bytes = server.facts.memory_info().rss
        page.close()
    say(f"scale: {listed} runs in {list_s:.2f} s; a day first {first_s:.1f} s, again {again_s:.2f} s")
    return {
        **{"runs": listed, "list_s": list_s, "list_shown_s": shown_s, "progress_after_s": told, "first_s": first_s},
        **{"again_s": again_s, "server_rss_bytes": rss_bytes},
    }


def poll_once(server: Server, identity: str, marks: dict[str, str]) -> None:
    """Ask for a run's rows as its page does, once."""
    query = "&".join(f"{name}={mark}" for name, mark in marks.items())
    status, body = server.ask(f"/api/runs/{identity}/rows?axis=minutes&pixels=1000&{query}")
    if status == 200:
        marks.update({name: part["mark"] for name, part in json.loads(body).items() if isinstance(part, dict)})


def measure_cost(folder: Path, args: Namespace) -> Row:
    """Return the server's share of a core, and how fast a training is with and without polling, by turns."""
    training = subprocess.Popen(
        [*PROGRAM, *TRAINING, "--log-dir", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with serving(folder) as server:
            while not (found := server.runs()):
                time.sleep(1.0)
            identity, marks = next(iter(found.values())), dict[str, str]()
            metrics = next(folder.rglob("metrics.jsonl"))
            time.sleep(args.settle_s)
            pairs, shares = [], []
            for number in range(args.pairs):
                speeds: dict[bool, float] = {}
                for is_polled in (True, False) if number % 2 else (False, True):
                    before_s, end_s = server.cpu_s(), time.monotonic() + args.turn_s
                    begun_unix_s = time.time()
                    while time.monotonic() < end_s:
                        if is_polled:
                            poll_once(server, identity, marks)
                        time.sleep(1.0)
                    if is_polled:
                        shares.append((server.cpu_s() - before_s) / args.turn_s)
                    speeds[is_polled] = speed_since(metrics, begun_unix_s)
                pairs.append(speeds[True] / speeds[False])
                say(f"pair {number + 1}: {speeds[True]:.1f} steps/s polled, {speeds[False]:.1f} not")
    finally:
        training.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            training.wait(60)
        training.kill()
        training.wait()
    return {"core_share": fmean(shares), "speed_ratios": pairs, "interval": mean_interval(pairs)}


def speed_since(metrics: Path, unix_s: float) -> float:
    """Return the steps per second of a training since a moment, by its own rows."""
    rows = [row for row in read_records(metrics) if row["unix_s"] >= unix_s]
    return float((rows[-1]["steps"] - rows[0]["steps"]) / (rows[-1]["unix_s"] - rows[0]["unix_s"]))


def measure_faults(folder: Path, args: Namespace) -> Row:
    """Send malformed requests; return how many hung, and what the server wrote or gave away."""
    write_run(folder / "run", seconds=60, episodes=60)
    rng = random.Random(1)  # noqa: S311 - the same nonsense every time
    with serving(folder) as server:
        identity = server.runs()["run"]
        wholes = [
            f"GET /api/runs/{identity}/rows?axis=steps&from=1&to=2 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
            b"GET /static/../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /api/links HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 9\r\n\r\n{}",
        ]
        hung = leaked = 0
        for number in range(args.requests):
            raw = bytearray(rng.choice(wholes) if number % 4 else rng.randbytes(rng.randrange(300)))
            for _ in range(rng.randrange(6)):
                if raw:
                    raw[rng.randrange(len(raw))] = rng.randrange(256)
            try:
                leaked += b"root:" in send(server, bytes(raw))
            except TimeoutError:
                hung += 1
        is_alive = server.ask("/api/runs")[0] == 200
        rss_bytes = server.facts.memory_info().rss
        end_s = server.end()
        said = server.said()
    say(f"faults: {args.requests} requests, {hung} hung, {leaked} leaked, {len(said)} characters on stderr")
    return {
        **{"requests": args.requests, "hung": hung, "leaked": leaked, "answers_after": is_alive},
        **{"stderr_characters": len(said), "rss_bytes": rss_bytes, "end_s": end_s},
    }


def send(server: Server, raw: bytes) -> bytes:
    """Send bytes and return the answer."""
    port = int(server.address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=20.0) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65_536), b""))
        except ConnectionError:
            return b""


def measure(args: Namespace) -> Measurement:
    found: dict[str, Row] = {}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as name:
        program = next(path for one in CHROMIUM if (path := shutil.which(one)))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        parts: dict[str, Callable[[Path], Row]] = {
            "scale": lambda folder: measure_scale(browser, folder, args),
            "freshness": lambda folder: measure_freshness(browser, folder, args),
            "memory": lambda folder: measure_memory(browser, folder, args),
            "faults": lambda folder: measure_faults(folder, args),
            "cost": lambda folder: measure_cost(folder, args),
        }
        for part in args.only or parts:
            folder = Path(name) / part
            folder.mkdir()
            found[part] = parts[part](folder)
        browser.close()
    goals = goals_of(found)
    missed = [goal for goal, is_met in goals.items() if not is_met]
    told = f"; missed: {', '.join(missed)}" if missed else ""
    return Measurement(
        name=f"{NAME}-{'-'.join(args.only)}" if args.only else NAME,
        title=f"The dashboard: {', '.join(args.only or PARTS)}",
        headline=f"{len(goals) - len(missed)} of {len(goals)} goals met{told}",
        learning="a training beside it, polled and not" if "cost" in found else "nothing was trained",
        passed=not missed if args.share == 1.0 else None,
        config={name: value for name, value in vars(args).items() if name not in ("json", "no_record", "allow_busy")},
        repeats=[{"part": part, **rows} for part, rows in found.items()],
        summary={"goals": goals},
        packages=("starlette", "uvicorn", "playwright"),
    )


def goals_of(found: dict[str, Row]) -> dict[str, bool]:
    """Return what was required of the parts that were measured."""
    goals: dict[str, bool] = {}
    if scale := found.get("scale"):
        goals |= {
            "300 runs within 1 s": scale["list_s"] <= LIST_S,
            "a day within 5 s": scale["first_s"] <= FIRST_S,
            "again within 1 s": scale["again_s"] <= AGAIN_S,
            "server within 100 MB": scale["server_rss_bytes"] <= SERVER_BYTES,
        }
    if fresh := found.get("freshness"):
        goals["a row within 2 s"] = fresh["delay_s"]["max"] <= FRESH_S
    if memory := found.get("memory"):
        goals["page within 10 %"] = memory["page_growth"] <= GROWTH
    if faults := found.get("faults"):
        silent = not (faults["hung"] or faults["leaked"] or faults["stderr_characters"])
        goals |= {"nonsense": silent and faults["answers_after"], "Ctrl-C within 1 s": faults["end_s"] <= END_S}
    if cost := found.get("cost"):
        goals["1 % of a core"] = cost["core_share"] <= CORE_SHARE
        goals["training at 0.97"] = cost["interval"] is not None and cost["interval"][0] >= SPEED_RATIO
    return goals


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="*", choices=PARTS, help="measure these alone")
    parser.add_argument("--tabs", type=at_least(1), default=20)
    parser.add_argument("--rows", type=at_least(1), default=10, help="that are written for the freshness")
    parser.add_argument("--minutes", type=float, default=30.0, help="for which the page stays open")
    parser.add_argument("--runs", type=at_least(1), default=300)
    parser.add_argument("--share", type=float, default=1.0, help="of a day, for the long run")
    parser.add_argument("--requests", type=at_least(1), default=10_000)
    parser.add_argument("--pairs", type=at_least(1), default=12, help="of turns of the training")
    parser.add_argument("--turn-s", type=float, default=60.0)
    parser.add_argument("--settle-s", type=float, default=60.0, help="before the first turn")
    parser.add_argument("--allow-busy", action="store_true", help="measure although others use the machine")
    return parser.parse_args()


def main() -> int:
    args: Any = parse_arguments()
    refuse_busy_machine(NAME, allow_busy=args.allow_busy)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, a shell would ignore it
    return finish(measure(args), as_json=args.json, keep=not args.no_record)


if __name__ == "__main__":
    raise SystemExit(main())
