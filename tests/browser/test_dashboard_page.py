"""The dashboard as a browser shows it: fresh, silent, usable without a mouse, and back when the server is."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from full_runs import HOSTILE, write_full_run, write_hostile_run
from made_fleets import add_run, make_fleet
from made_runs import episode, event, facts, reading, sample, write_run
from playwright.sync_api import Browser, Page

from redline.jsonl import cut_after, encode_row

pytestmark = pytest.mark.browser

PATIENCE_S = 30.0
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"
SERIOUS = ("serious", "critical")
# the newest x of a chart on the screen
NEWEST = "(name) => document.querySelector(`figure[data-name='${name}']`)?.panel?.plot?.data[0].at(-1)"
T0 = time.time() - 600.0


def append(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(encode_row(row) for row in rows))


def wait_for(page: Page, condition: str, argument: object = None, *, patience_s: float = PATIENCE_S) -> float:
    """Return how long it took until a condition held."""
    begun_s = time.monotonic()
    while not page.evaluate(condition, argument):
        assert time.monotonic() - begun_s < patience_s, condition
        page.wait_for_timeout(20)
    return time.monotonic() - begun_s


class Server:
    """A dashboard in a process of its own, on a port that stays the same."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.command = [sys.executable, "-m", "redline.cli.main", "dashboard", str(folder), "--json", *more, "--port"]
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            self.port = trial.getsockname()[1]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen([*self.command, str(self.port)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.told = json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def address(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


class Tab:
    """A page of the dashboard, and what it asked for and complained of."""

    def __init__(self, browser: Browser, server: Server, *, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            has_touch=width < 500,
        )
        self.page = self.context.new_page()
        self.server = server
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.server.address(path))
        return self.page

    def address_of(self, name: str) -> str | None:
        """Return where a run of the overview is shown."""
        link = self.page.locator("tbody tr", has=self.page.locator("small", has_text=name)).locator("a").first
        link.wait_for()
        return link.get_attribute("href")

    def open_run(self, name: str, query: str = "") -> Page:
        self.open()
        self.open(f"{self.address_of(name)}{query}")
        wait_for(self.page, "document.querySelector('figure[data-name=return]') !== null")
        return self.page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of some kinds: finished, going on, hostile, several seeds; and a fleet."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        write_full_run(folder / f"ppo-s{seed}", algorithm="ppo", seed=seed, num_samples=120)
    write_full_run(folder / "dqn-s1", num_samples=120)
    write_hostile_run(folder / "hostile")
    fleet = folder / "fleet"
    listing = make_fleet(fleet, games=("pong", "breakout"), price=3.6)
    add_run(fleet, listing.slots[0], [1.0, 2.0, 3.0])
    first = listing.slots[0].name
    turn = {"slot": first, "attempt": 1, "epoch": 1}
    append(
        fleet / "slots.jsonl", {"unix_s": T0, "state": "running", **turn}, {"unix_s": T0 + 9, "state": "done", **turn}
    )
    incident = {"row": "incident", "unix_s": T0, "kind": "hung", "slot": first, "message": HOSTILE}
    append(fleet / "health.jsonl", incident)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    yield server
    server.kill()


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def open_one(server: Server, **more: Any) -> Tab:
        tabs.append(Tab(browser, server, **more))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.context.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Path, Server]]:
    """A run that this process writes, and a dashboard."""
    path = write_run(tmp_path / "runs" / "live", facts(), events=[now("event", 0.0)])
    for at_s in range(1, 31):
        write(path, float(at_s))
    server = Server(tmp_path / "runs")
    yield path, server
    server.kill()


def now(kind: str, at_s: float) -> dict[str, Any]:
    made = {"event": event(at_s, "start"), "metrics": reading(at_s, loss=1.0 / (at_s + 1), mean_return_100=at_s)}
    row = made.get(kind) or (
        episode(at_s, at_s) if kind == "episodes" else sample(at_s, cpu_cores_used=1.0, cpu_s=at_s)
    )
    return {**row, "unix_s": T0 + at_s}


def write(path: Path, at_s: float) -> None:
    for kind in ("metrics", "episodes", "hardware"):
        append(path / f"{kind}.jsonl", now(kind, at_s))


def test_a_new_row_reaches_the_screens_of_twenty_tabs(live: tuple[Path, Server], open_tab: Callable[..., Tab]) -> None:
    path, server = live
    tabs = [open_tab(server) for _ in range(2)]
    pages = [tab.open_run("live", "?axis=steps") for tab in tabs]
    for tab in tabs:
        for _ in range(9):
            page = tab.context.new_page()
            page.goto(tab.page.url)
            pages.append(page)
    for page in pages:
        wait_for(page, f"({NEWEST})('loss') === 3000")
    write(path, 31.0)
    for page in pages:
        wait_for(page, f"({NEWEST})('loss') === 3100 && ({NEWEST})('return') === 3100")
    assert all(tab.complaints == [] for tab in tabs)


def test_the_page_finds_the_server_again_and_shows_what_it_missed(
    live: tuple[Path, Server], open_tab: Callable[..., Tab]
) -> None:
    path, server = live
    page = open_tab(server).open_run("live", "?axis=steps")
    wait_for(page, f"({NEWEST})('loss') === 3000")
    server.kill()
    wait_for(page, "document.querySelector('#connection').textContent.includes('does not answer')")
    write(path, 31.0)
    server.start()
    wait_for(page, f"({NEWEST})('loss') === 3100")
    assert page.inner_text("#connection") == "live"


def test_rows_that_a_resume_takes_back_leave_the_charts(
    live: tuple[Path, Server], open_tab: Callable[..., Tab]
) -> None:
    path, server = live
    page = open_tab(server).open_run("live", "?axis=steps")
    wait_for(page, f"({NEWEST})('loss') === 3000")
    for kind in ("metrics", "episodes"):
        cut_after(path / f"{kind}.jsonl", 2_000)
    wait_for(page, f"({NEWEST})('loss') === 2000 && ({NEWEST})('return') === 2000")
    write(path, 21.0)
    wait_for(page, f"({NEWEST})('loss') === 2100")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_is_whole_silent_and_accessible(
    folder: Path, server: Server, open_tab: Callable[..., Tab], scheme: str, width: int
) -> None:
    tab = open_tab(server, width=width, scheme=scheme)
    page = tab.open()
    page.wait_for_selector("tbody tr")
    paths = [
        page.get_attribute("a.fleet", "href"),
        "/",
        page.locator("tbody a[href^='/run/']").first.get_attribute("href"),
        tab.address_of("hostile"),
    ]
    ids = [
        path.rsplit("/", 1)[1] for path in page.eval_on_selector_all("tbody a", "links => links.map((a) => a.pathname)")
    ]
    for path in [*paths, f"/compare?ids={','.join(ids[:4])}"]:
        tab.open(path)
        page.wait_for_selector("h1")
        page.wait_for_timeout(1_500)
        assert page.evaluate(WIDTHS) == [width, width], path
        faults = [
            (path, fault["id"], [node["html"][:150] for node in fault["nodes"]][:3])
            for fault in Axe().run(page).response["violations"]
            if fault["impact"] in SERIOUS
        ]
        assert faults == []
    assert tab.complaints == []
    assert all(request.startswith(server.address()) for request in tab.requests)


def test_markup_of_a_run_stays_text(server: Server, open_tab: Callable[..., Tab]) -> None:
    tab = open_tab(server)
    page = tab.open_run("hostile")
    wait_for(page, "document.querySelector('h1').textContent.length > 5")
    page.wait_for_timeout(500)
    assert HOSTILE[:40] in page.inner_text("h1")
    assert "hacked" not in page.title()[:6]
    assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0
    assert tab.complaints == []


def test_the_address_holds_filter_order_axis_zoom_and_log(server: Server, open_tab: Callable[..., Tab]) -> None:
    page = open_tab(server).open("/?q=ppo&sort=name")
    page.wait_for_selector("tbody tr")
    names = page.eval_on_selector_all("tbody .c-name small", "found => found.map((one) => one.textContent)")
    assert names == ["ppo-s1", "ppo-s2", "ppo-s3"]
    page.click("tbody tr:nth-child(2) a")
    wait_for(page, f"({NEWEST})('return') > 0")
    page.click("button:text-is('steps')")
    page.click("figure[data-name=return] .log")
    wait_for(page, "document.querySelector('figure[data-name=return]').panel.plot.scales.y.distr === 3")
    box = page.locator("figure[data-name=return] .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 60, steps=4)
    page.mouse.up()
    wait_for(page, "location.search.includes('from=')")
    zoomed = page.url
    again = open_tab(server)
    again.open(zoomed.removeprefix(server.address("")))
    scale = "(({ min, max }) => [min, max])(document.querySelector('figure[data-name=return]').panel.plot.scales.x)"
    wait_for(again.page, "document.querySelector('figure[data-name=return]')?.panel?.plot?.scales.x.min > 0")
    assert again.page.evaluate(scale) == page.evaluate(scale)
    assert "axis=steps" in zoomed
    assert "log=return" in zoomed
    assert page.evaluate("document.querySelector('figure[data-name=return]').panel.plot.scales.y.distr") == 3
    page.keyboard.press("0")
    wait_for(page, "!location.search.includes('from=')")
    page.go_back()
    page.wait_for_selector("tbody tr")
    assert page.input_value("input[type=search]") == "ppo"


def test_everything_works_by_the_keyboard(server: Server, open_tab: Callable[..., Tab]) -> None:
    page = open_tab(server).open()
    page.wait_for_selector("tbody tr")
    page.keyboard.press("/")
    page.keyboard.type("ppo")
    wait_for(page, "document.querySelectorAll('tbody tr').length === 3")
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")
    for key in "jxjx":
        page.keyboard.press(key)
    page.keyboard.press("c")
    wait_for(page, "document.querySelectorAll('figure').length === 1")
    assert page.inner_text(".keys button").endswith("2 runs")
    page.keyboard.press("h")
    page.wait_for_selector("tbody tr")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    wait_for(page, f"({NEWEST})('return') > 0")
    page.keyboard.press("s")
    wait_for(page, f"({NEWEST})('return') > 100")
    plot = page.locator("figure[data-name=return] .plot")
    plot.focus()
    page.keyboard.press("ArrowRight")
    assert "steps" in page.inner_text("figure[data-name=return] .readout")
    page.keyboard.press("+")
    wait_for(page, "location.search.includes('from=')")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()


def test_a_run_stops_only_after_a_confirmation(tmp_path: Path, open_tab: Callable[..., Tab]) -> None:
    path = write_run(tmp_path / "runs" / "live", facts(), metrics=[now("metrics", 1.0)], events=[now("event", 0.0)])
    script = (
        "import sys, time; from pathlib import Path; from redline.runs.directory import RunLock; "
        "lock = RunLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    server = Server(tmp_path / "runs", "--allow-stop")
    try:
        page = open_tab(server).open_run("live")
        page.click("text=stop this run")
        page.click("text=let it run")
        page.wait_for_timeout(300)
        assert holder.poll() is None
        page.click("text=stop this run")
        page.click("text=stop it")
        assert holder.wait(PATIENCE_S) == -signal.SIGTERM
        wait_for(page, "document.querySelector('h1 + .state').textContent === 'killed'")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        server.kill()


def test_a_link_signs_a_phone_in(folder: Path, open_tab: Callable[..., Tab], tmp_path: Path) -> None:
    server = Server(folder, "--host", "0.0.0.0", "--token-file", str(tmp_path / "token"))  # noqa: S104
    try:
        phone = open_tab(server, width=390)
        phone.page.goto(server.address())
        assert "needs a link" in phone.page.inner_text("body")
        phone.page.goto(server.address("/login?" + server.told["link"].rpartition("?")[2]))
        phone.page.wait_for_selector("tbody tr")
        phone.page.click("text=link a device")
        link = phone.page.inner_text("dialog code")
        other = open_tab(server)
        other.page.goto(server.address("/login?" + link.rpartition("?")[2]))
        other.page.wait_for_selector("tbody tr")
    finally:
        server.kill()


def test_memory_of_the_page_stays_as_rows_come_in(live: tuple[Path, Server], open_tab: Callable[..., Tab]) -> None:
    path, server = live
    page = open_tab(server).open_run("live", "?axis=steps")
    for at_s in range(31, 4_000):
        append(path / "hardware.jsonl", now("hardware", float(at_s)))
    wait_for(page, "document.querySelector(\"figure[data-name='cores']\") !== null")
    page.wait_for_timeout(2_500)
    assert page.evaluate("document.querySelector(\"figure[data-name='cores']\").panel.make().columns[0].length") < 3_100
