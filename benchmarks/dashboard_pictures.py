"""Draws the pictures of docs/dashboard.md: every view of a dashboard of some runs, light and dark, wide and narrow."""

import argparse
import io
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from dashboard import CHROMIUM, PROGRAM

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIZES = {1280: 1_040, 390: 1_040}  # width → height
SCHEMES = ("light", "dark")
COLOURS = 256
SETTLED_MS = 3_000


def draw(browser: Browser, address: str, name: str) -> None:
    """Take a picture of a page for each width and scheme."""
    for width, height in SIZES.items():
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]
            )
            page = context.new_page()
            page.goto(address)
            page.wait_for_timeout(SETTLED_MS)
            with Image.open(io.BytesIO(page.screenshot())) as picture:
                small = picture.convert("RGB").quantize(COLOURS, kmeans=3, dither=Image.Dither.NONE)
                small.save(PICTURES / f"dashboard-{name}-{width}-{scheme}.png", optimize=True)
            context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="runs and fleets")
    parser.add_argument("--run", required=True, help="part of the name of the run to show")
    parser.add_argument("--compare", required=True, help="part of the names of the runs to compare")
    args = parser.parse_args()
    command = [*PROGRAM, "dashboard", *map(str, args.folders), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None  # noqa: S101 - a pipe was asked for
        address = json.loads(server.stdout.readline())["address"]
        with urllib.request.urlopen(f"{address}/api/runs", timeout=60) as answer:  # noqa: S310 - our own
            found = json.loads(answer.read())
        ids = {run["name"]: run["id"] for run in found["runs"]}
        compared = [identity for name, identity in ids.items() if args.compare in name]
        views = {
            "overview": "/",
            "run": f"/run/{next(identity for name, identity in ids.items() if args.run in name)}",
            "compare": f"/compare?ids={','.join(compared)}",
            **({"fleet": f"/fleet/{found['fleets'][0]['id']}"} if found["fleets"] else {}),
        }
        program = next(path for one in CHROMIUM if (path := shutil.which(one)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            for name, path in views.items():
                draw(browser, address + path, name)
            browser.close()
    finally:
        server.terminate()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
