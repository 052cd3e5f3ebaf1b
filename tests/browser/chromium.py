"""Chromium without a window, driven over a pipe: pages, what they ask for, what they complain of."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
)
# the browser reads orders from descriptor 3 and answers on 4
LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
LOWEST_DESCRIPTOR = 10
PATIENCE_S = 30.0
CLOSING_S = 10.0

Message = dict[str, Any]


def find_chromium() -> str | None:
    """Return the browser's program, None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Page:
    """One open page: what it asked for and what it complained of so far."""

    browser: "Chromium"
    session: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    is_loaded: bool = False

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def move_mouse(self, x: float, y: float) -> None:
        """Move the cursor to a place of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        """Save the whole page as a picture; one that lies behind another may never be painted."""
        self.call("Page.bringToFront")
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: object) -> Message:
        """Give an order to this page and return the answer."""
        return self.browser.call(method, session=self.session, **parameters)


class Chromium:
    """A browser that runs as long as the context; it has a profile of its own."""

    def __init__(self, program: str, profile: Path) -> None:
        orders, self._orders = (_out_of_the_way(end) for end in os.pipe())
        self._answers, answers = (_out_of_the_way(end) for end in os.pipe())
        launch = [sys.executable, "-c", LAUNCHER, str(orders), str(answers)]
        self._process = subprocess.Popen(
            [*launch, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(orders, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(orders)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._replies: dict[int, Message] = {}
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, AssertionError, subprocess.TimeoutExpired):  # a browser that hangs is ended anyhow
            self.call("Browser.close")
            self._process.wait(timeout=CLOSING_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session: its helpers end with it
        self._process.wait()
        os.close(self._orders)
        os.close(self._answers)

    def open(self, path: Path, *, scheme: str = "light", width: int = 1280, has_script: bool = True) -> Page:
        """Open a file in a new page, and return when it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Network", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        page.call("Emulation.setScriptExecutionDisabled", value=not has_script)
        page.call("Page.navigate", url=path.resolve().as_uri())
        end_s = time.monotonic() + PATIENCE_S
        while not page.is_loaded:
            self._receive(end_s)
        return page

    def call(self, method: str, *, session: str | None = None, **parameters: object) -> Message:
        """Give an order and return the answer."""
        self._number += 1
        number = self._number
        order = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        end_s = time.monotonic() + PATIENCE_S
        while number not in self._replies:
            self._receive(end_s)
        reply = self._replies.pop(number)
        assert "error" not in reply, (method, reply["error"])
        result: Message = reply["result"]
        return result

    def _receive(self, end_s: float) -> None:
        """Take in what the browser says next."""
        ready, _, _ = select.select([self._answers], [], [], max(0.0, end_s - time.monotonic()))
        assert ready, f"Chromium was silent for {PATIENCE_S:g} s"
        data = os.read(self._answers, 1 << 16)
        assert data, "Chromium ended"
        *whole, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self._replies[message["id"]] = message
            elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                _note(page, message["method"], message["params"])


def _note(page: Page, method: str, facts: Message) -> None:
    if method == "Network.requestWillBeSent":
        page.requests.append(facts["request"]["url"])
    elif method == "Runtime.exceptionThrown":
        page.complaints.append(json.dumps(facts["exceptionDetails"]))
    elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
        page.complaints.append(json.dumps(facts["args"]))
    elif method == "Log.entryAdded":
        page.complaints.append(facts["entry"]["text"])
    elif method == "Page.loadEventFired":
        page.is_loaded = True


def _out_of_the_way(descriptor: int) -> int:
    """Move a descriptor away from 3 and 4, which the browser needs."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR)
    os.close(descriptor)
    return moved
