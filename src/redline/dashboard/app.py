"""What the dashboard answers: pages, and JSON about runs. Everything that a file says is sent as text or numbers."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from redline import __version__
from redline.dashboard.access import LOGIN, SESSION_S, Guard
from redline.dashboard.assets import ASSETS, Asset, shell
from redline.dashboard.compare import MAX_COMPARED, compare
from redline.dashboard.encoding import encode, mark_of
from redline.dashboard.index import Index, Shown
from redline.dashboard.run_rows import BOOT, Window, new_rows
from redline.dashboard.run_view import RunView
from redline.dashboard.videos import Video, Videos
from redline.errors import UserError
from redline.report.growing_run import KINDS, Kind, Place
from redline.runs.directory import ask_to_stop

MAX_VIEWS = 16  # runs whose rows are kept
MAX_CELLS = 5_000_000  # numbers kept of all of them: 20 MB
READ_S = 0.02  # at once, before others get their turn
WAIT_S = 0.4  # for a run that is being read, before its progress is told
IN_USE_S = 5.0
FORGET_S = 30.0  # a run is read to its end as long as somebody asks for it
PLACES: Mapping[str, Place] = {"steps": "steps", "minutes": "minutes", "cpu_s": "cpu_s"}
ROW_KINDS: tuple[Kind, ...] = ("metrics", "episodes", "hardware")
WITHOUT_HARDWARE: tuple[Kind, ...] = ("metrics", "events", "episodes")
MIN_PIXELS, MAX_PIXELS = 50, 1_000  # two points each
ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
EPISODE = re.compile(r"last|best|p?[0-9]{1,12}", re.ASCII)
NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?(e-?[0-9]{1,3})?", re.ASCII)

Answer = Callable[[Request], Awaitable[Response]]


class Dashboard:
    """The state behind all pages."""

    def __init__(self, folders: Sequence[Path], guard: Guard, *, allow_stop: bool, address: str) -> None:
        self.index = Index(folders)
        self.videos = Videos()
        self._guard = guard
        self._allow_stop = allow_stop
        self._address = address  # without a path
        self._views: OrderedDict[str, RunView] = OrderedDict()
        self._reading: dict[object, asyncio.Task[None]] = {}
        self.app = Starlette(
            routes=[
                *(Route(path, self.page) for path in ("/", "/run/{id}", "/compare", "/fleet/{id}")),
                Route("/static/{name}", self.asset),
                Route("/api/runs", self.runs),
                Route("/api/runs/{id}/rows", self.rows),
                Route("/api/runs/{id}/stop", self.stop, methods=["POST"]),
                Route("/api/runs/{id}/videos/{episode}", self.video, methods=["GET", "POST"]),
                Route("/api/runs/{id}/videos/{episode}/file", self.video_file),
                Route("/api/compare", self.compare),
                Route("/api/fleets/{id}", self.fleet),
                Route("/api/links", self.link, methods=["POST"]),
                Route(LOGIN, self.login),
            ],
            exception_handlers={HTTPException: _refused, UserError: _refused},
        )

    def close(self) -> None:
        """Remove what was made for the pages."""
        self.videos.close()

    # Pages

    async def page(self, _: Request) -> Response:
        """Answer with the page: its script reads the address."""
        return HTMLResponse(shell())

    async def asset(self, request: Request) -> Response:
        """Answer with one of our own files."""
        found: Asset | None = ASSETS.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404, "there is no such file")
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.kind, headers=headers)

    # The overview

    async def runs(self, request: Request) -> Response:
        """Answer with the runs that changed since a mark."""
        self.index.refresh()
        boot, _, told = request.query_params.get("mark", "").partition("-")
        version = int(told) if boot == BOOT and told.isascii() and told.isdigit() and len(told) < 18 else 0
        mark = f"{BOOT}-{self.index.version}"
        if version == self.index.version and boot == BOOT:
            return Response(status_code=304)
        changed, gone = self.index.changed_since(version)
        return as_json(
            {
                "mark": mark,
                "whole": version == 0,
                "runs": changed,
                "gone": gone,
                "fleets": self.index.fleet_facts,
                "now_unix_s": time.time(),
                "version": __version__,
                "needs_token": self._guard.needs_token,
            }
        )

    # One run

    async def rows(self, request: Request) -> Response:
        """Answer with what a page lacks of a run; 304 if nothing."""
        shown = self._shown(request)
        asked = request.query_params
        place = PLACES.get(asked.get("axis", "minutes"))
        if place is None:
            raise HTTPException(400, "axis is steps, minutes or cpu_s")
        pixels = int(min(max(_number(asked.get("pixels", "500")), MIN_PIXELS), MAX_PIXELS))
        window = _window(asked.get("from"), asked.get("to"))
        view = self._view(shown)
        if not await self._read(view):
            return as_json({"progress": view.growing.progress()})
        found: dict[str, Any] = {}
        for name, content in (("live", view.live), ("about", view.about)):
            mark, told = view.marked(name, content)
            if asked.get(name) != mark:
                found[name] = told | {"allow_stop": self._allow_stop}
        for kind in ROW_KINDS:
            new = new_rows(view.growing, kind, place, mark=asked.get(kind, ""), pixels=pixels, window=window)
            if new is not None:
                found[kind] = new
        return as_json(found) if found else Response(status_code=304)

    async def stop(self, request: Request) -> Response:
        """Ask a run to save itself and end."""
        if not self._allow_stop:
            raise HTTPException(403, "this dashboard only reads: start it with --allow-stop")
        shown = self._shown(request)
        if not ask_to_stop(shown.path):
            raise HTTPException(409, "no process on this machine writes this run")
        return as_json({"asked": True})

    # Videos

    async def video(self, request: Request) -> Response:
        """Answer how the making of a video goes; a POST lets it be made."""
        shown, episode = self._shown(request), self._episode(request)
        if request.method == "POST" and self.videos.ask(shown.path, shown.id, episode) is None:
            raise HTTPException(429, "other videos are being made: try again when one is ready")
        found = self.videos.get(shown.id, episode)
        return as_json({"state": "none"} if found is None else _told(found))

    async def video_file(self, request: Request) -> Response:
        """Answer with a video that was made."""
        found = self.videos.get(self._shown(request).id, self._episode(request))
        if found is None or found.state != "made" or not found.path.is_file():
            raise HTTPException(404, "this video is not made yet")
        kind = "video/mp4" if found.path.suffix == ".mp4" else "image/gif"
        return FileResponse(found.path, media_type=kind)

    # Several runs

    async def compare(self, request: Request) -> Response:
        """Answer with the learning curves of several runs."""
        place = PLACES.get(request.query_params.get("axis", "steps"))
        ids = request.query_params.get("ids", "").split(",")
        if place is None or not all(ID.fullmatch(identity) for identity in ids) or len(ids) > MAX_COMPARED:
            raise HTTPException(400, f"ids are those of at most {MAX_COMPARED} runs")
        views = [self._view(shown) for identity in dict.fromkeys(ids) if (shown := self.index.get(identity))]
        if not views:
            raise HTTPException(404, "none of these runs is there")
        kinds = KINDS if place == "cpu_s" else WITHOUT_HARDWARE
        done = [await self._read(view, kinds) for view in views]
        if not all(done):
            return as_json({"progress": sum(view.growing.progress(kinds) for view in views) / len(views)})
        return as_json(compare(views, place))

    async def fleet(self, request: Request) -> Response:
        """Answer with a fleet; 304 if it is as the page has it."""
        self.index.refresh()
        fleet = self.index.fleets.get(request.path_params["id"])
        if fleet is None:
            raise HTTPException(404, "there is no such fleet, or it was removed")
        fleet.look()
        ids = self.index.ids()
        found = fleet.to_json(ids, {identity: shown.spark for identity, shown in self.index.runs.items()})
        told = {name: value for name, value in found.items() if name != "bill"}  # the hours grow by themselves
        mark = mark_of(told)
        if request.query_params.get("mark") == mark:
            return Response(status_code=304)
        return as_json(found | {"mark": mark, "now_unix_s": time.time()})

    # Tokens

    async def link(self, _: Request) -> Response:
        """Answer with a link for another device."""
        if not self._guard.needs_token:
            raise HTTPException(404, "this dashboard needs no link")
        return as_json({"link": f"{self._address}{LOGIN}?once={self._guard.new_link()}"})

    async def login(self, request: Request) -> Response:
        """Exchange the word of a link for a cookie."""
        session = self._guard.redeem(request.query_params.get("once", "")[:100])
        if session is None:
            raise HTTPException(403, "this link was used or is too old: ask for a new one")
        # a redirect would still count as coming from where the link was, and go without the cookie
        answer = HTMLResponse('<!doctype html><meta http-equiv="refresh" content="0;url=/"><a href="/">Redline</a>')
        answer.set_cookie(self._guard.cookie, session, max_age=int(SESSION_S), httponly=True, samesite="strict")
        return answer

    # Helpers

    def _shown(self, request: Request) -> Shown:
        identity = request.path_params["id"]
        shown = self.index.get(identity) if ID.fullmatch(identity) else None
        if shown is None:
            raise HTTPException(404, "there is no such run, or it was removed")
        return shown

    def _episode(self, request: Request) -> str:
        episode: str = request.path_params["episode"]
        if not EPISODE.fullmatch(episode):
            raise HTTPException(400, "an episode is a number, best or last")
        return episode

    def _view(self, shown: Shown) -> RunView:
        view = self._views.get(shown.id)
        if view is None:
            view = self._views[shown.id] = RunView(shown)
        self._views.move_to_end(shown.id)
        view.used_s = time.monotonic()
        self._make_room()
        return view

    def _make_room(self) -> None:
        """Forget the runs that nobody looks at any more."""
        while len(self._views) > 1 and (
            len(self._views) > MAX_VIEWS or sum(view.growing.cells for view in self._views.values()) > MAX_CELLS
        ):
            identity, view = next(iter(self._views.items()))
            if time.monotonic() - view.used_s < IN_USE_S and len(self._views) <= MAX_COMPARED:
                break  # several are compared
            del self._views[identity]

    async def _read(self, view: RunView, kinds: tuple[Kind, ...] = KINDS) -> bool:
        """Read what is new of a run; return whether all of it was read."""
        if view.was_read(kinds):
            return True
        key = (view.shown.id, kinds)
        if key not in self._reading and view.read(budget_s=READ_S, kinds=kinds):
            return True
        task = self._reading.get(key)
        if task is None:
            task = self._reading[key] = asyncio.get_running_loop().create_task(self._read_on(view, kinds))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), WAIT_S)
        return task.done()

    async def _read_on(self, view: RunView, kinds: tuple[Kind, ...]) -> None:
        try:
            while not view.read(budget_s=READ_S, kinds=kinds) and time.monotonic() - view.used_s < FORGET_S:
                await asyncio.sleep(0)
        finally:
            self._reading.pop((view.shown.id, kinds), None)


def as_json(content: Mapping[str, Any]) -> Response:
    """Return JSON that nobody keeps."""
    return Response(encode(content), media_type="application/json", headers={"Cache-Control": "no-store"})


def _number(text: str) -> float:
    if len(text) > 40 or not NUMBER.fullmatch(text):
        raise HTTPException(400, "a number was expected")
    return float(text)


def _window(begin: str | None, end: str | None) -> Window | None:
    if begin is None or end is None:
        return None
    window = _number(begin), _number(end)
    if not all(map(math.isfinite, window)):
        raise HTTPException(400, "a number was expected")
    return window


def _told(video: Video) -> dict[str, Any]:
    return {
        "state": video.state,
        "why": video.why,
        "kind": video.path.suffix[1:],
        "about": video.about,
        "made": video.number,
    }


async def _refused(_: Request, error: Exception) -> Response:
    answer = as_json({"error": getattr(error, "detail", str(error))})
    answer.status_code = getattr(error, "status_code", 422)
    return answer
