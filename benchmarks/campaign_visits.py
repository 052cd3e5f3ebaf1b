"""A dashboard as a browser asks it: every view of every run and fleet."""

import json
import signal
import urllib.request
from urllib.error import HTTPError

from campaign_oracles import Fault
from campaign_process import Running, wait_for

DASHBOARD = ("dashboard", "run", "--port", "0", "--json")
OF_RUN = (
    *("/run/{}", "/api/runs/{}/rows?axis=steps", "/api/runs/{}/rows?axis=cpu_s", "/api/compare?ids={}"),
    "/api/runs/{}/videos/last",
)
BEGIN_WITHIN_S, ANSWER_WITHIN_S = 60.0, 20.0
MAX_ANSWER_BYTES = 20_000_000
SERVER_ERROR = 500


def visit(running: Running) -> list[Fault]:
    """Ask for all that a dashboard shows, and then ask it to end; an answer is no server error and comes in time."""
    wait_for(lambda: "\n" in running.heard(), running, BEGIN_WITHIN_S)
    if running.has_ended():
        return []
    address = json.loads(running.heard())["address"]
    code, content = ask(address + "/api/runs")
    found = json.loads(content) if code == 200 else {"runs": [], "fleets": []}
    paths = [path.format(run["id"]) for run in found["runs"] for path in OF_RUN]
    paths += [f"/api/fleets/{fleet['id']}" for fleet in found["fleets"]]
    codes = {"/api/runs": code} | {path: ask(address + path)[0] for path in paths}
    running.send(signal.SIGTERM)
    wrong = sorted({path.split("?")[0] for path, code in codes.items() if code >= SERVER_ERROR})
    return [Fault("server error", _general(path)) for path in wrong]


def ask(address: str) -> tuple[int, bytes]:
    """Return the code and content of an answer; no answer in time counts as a server error."""
    try:
        with urllib.request.urlopen(address, timeout=ANSWER_WITHIN_S) as answer:  # noqa: S310  our own
            return answer.status, answer.read(MAX_ANSWER_BYTES)
    except HTTPError as error:
        return error.code, b""
    except (OSError, ValueError):
        return SERVER_ERROR, b""


def _general(path: str) -> str:
    """Return an address without the id, so that like faults look alike."""
    return "/".join("ID" if len(word) > len("compare") else word for word in path.split("/"))
