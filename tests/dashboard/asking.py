"""Asks the dashboard in this process, with no socket between."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from redline.dashboard.access import Guard, names_of
from redline.dashboard.app import Dashboard
from redline.dashboard.serving import guarded

HOST = "127.0.0.1:8090"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Client:
    """A dashboard, and what asks it."""

    def __init__(self, folders: Sequence[Path], *, secret: bytes | None = None, allow_stop: bool = False) -> None:
        self.guard = Guard(names=names_of("127.0.0.1"), secret=secret, cookie="redline_8090")
        self.notes: list[str] = []
        self._loop = asyncio.new_event_loop()
        self.dashboard = Dashboard(folders, self.guard, allow_stop=allow_stop, address=f"http://{HOST}")
        self._app = guarded(self.dashboard.app, self.guard, self.notes.append)

    def close(self) -> None:
        self.dashboard.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.run_until_complete(asyncio.sleep(0.05))  # the ends of processes
        self._loop.close()

    def wait(self, seconds: float) -> None:
        """Let the server work on."""
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def refresh(self) -> None:
        """Let the next look be one at everything."""
        found = self.dashboard.index
        found._searched_s = found._refreshed_s = -float("inf")
        for shown in found.runs.values():
            shown.looked_s = -float("inf")
        for fleet in found.fleets.values():
            fleet._looked_s = -float("inf")
        for view in self.dashboard._views.values():
            view._read_s.clear()

    def get(self, target: str, **headers: str) -> Answer:
        return self.ask("GET", target, **headers)

    def ask(self, method: str, target: str, **headers: str) -> Answer:
        """Send a request; a header's name has _ for -, and an empty value leaves a usual one out."""
        told = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in told.items() if value]
        return self._loop.run_until_complete(self._ask(method, target, raw))

    async def _ask(self, method: str, target: str, headers: list[tuple[bytes, bytes]]) -> Answer:
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path, safe="/").encode(),
            "root_path": "",
            "query_string": query.encode("utf-8", "surrogatepass"),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8090),
        }
        status, told, pieces = 0, {}, []

        asked = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if asked.is_set():
                await asyncio.Event().wait()  # the connection stays
            asked.set()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status, told
            if message["type"] == "http.response.start":
                status = message["status"]
                told = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
            else:
                pieces.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return Answer(status, told, b"".join(pieces))

    # What the tests ask for

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return the runs of the overview by their names."""
        self.refresh()
        answer = self.get("/api/runs")
        return {run["name"]: run for run in answer.json()["runs"]}

    def id_of(self, name: str = "") -> str:
        """Return the id of a run."""
        found = self.runs()
        return str(found[name]["id"] if name else next(iter(found.values()))["id"])

    def rows(self, run_id: str, **query: object) -> Answer:
        """Return the rows of a run, once they are read."""
        self.refresh()
        told = "&".join(f"{'from' if name == 'begin' else name}={value}" for name, value in query.items())
        for _ in range(500):
            answer = self.get(f"/api/runs/{run_id}/rows?{told}")
            if b'"progress":' not in answer.body[:14]:
                return answer
        raise AssertionError("the run is never read to its end")
