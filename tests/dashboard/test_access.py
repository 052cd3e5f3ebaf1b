"""Who may ask: this machine under its own names, the dashboard's own pages, and devices that were let in."""

from collections.abc import Callable

import pytest
from asking import HOST, Client

from redline.dashboard.access import Guard, is_loopback, names_of

Dashboards = Callable[..., Client]


@pytest.mark.parametrize("host", [HOST, "localhost:8090", "LOCALHOST:9", "127.0.0.1", "[::1]:8090"])
def test_the_names_of_this_machine_are_answered_on_any_port(dashboard: Dashboards, host: str) -> None:
    assert dashboard().get("/", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example:8090",
        "localhost.evil.example",
        "127.0.0.1@evil",
        "a b",
        "[::1",
        ":8090",
    ],
)
@pytest.mark.parametrize("target", ["/", "/api/runs", "/static/app.js", "/nothing"])
def test_a_rebound_name_is_refused_for_every_address(dashboard: Dashboards, host: str, target: str) -> None:
    assert dashboard().get(target, host=host).status == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8090", "http://127.0.0.1:8091", "x"]
)
def test_another_origin_is_refused_for_reading_too(dashboard: Dashboards, origin: str) -> None:
    client = dashboard()
    assert client.get("/api/runs", origin=origin).status == 403
    assert client.get("/api/runs", origin=f"http://{HOST}").status == 200


def test_a_link_elsewhere_may_open_a_page_and_nothing_else(dashboard: Dashboards) -> None:
    client = dashboard()
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert client.get("/", **link).status == 200
    assert client.get("/", **link | {"sec_fetch_dest": "iframe"}).status == 403
    assert client.get("/api/runs", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status == 403
    assert client.get("/api/runs", sec_fetch_site="same-site", sec_fetch_mode="cors").status == 403
    assert client.get("/api/runs", sec_fetch_site="same-origin", sec_fetch_mode="cors").status == 200


def test_a_change_needs_an_origin(dashboard: Dashboards) -> None:
    client = dashboard(allow_stop=True)
    assert client.ask("POST", "/api/runs/0123456789abcdef/stop").status == 403
    assert client.ask("POST", "/api/runs/0123456789abcdef/stop", origin=f"http://{HOST}").status == 404


def test_every_answer_has_the_security_headers(dashboard: Dashboards) -> None:
    client = dashboard()
    for answer in (
        client.get("/"),
        client.get("/nothing"),
        client.get("/", host="evil.example"),
        client.get("/static/app.js"),
    ):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_with_a_token_a_link_lets_one_device_in_once(dashboard: Dashboards) -> None:
    client = dashboard(secret=b"a secret of thirty characters!")
    for target in ("/", "/api/runs", "/static/app.js"):
        assert client.get(target).status == 401
    link = f"/login?once={client.guard.new_link()}"
    answer = client.get(link)
    cookie = answer.headers["set-cookie"]
    assert answer.status == 200
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    session = cookie.partition(";")[0]
    assert client.get("/api/runs", cookie=f"other=1; {session}").status == 200
    assert client.get(link).status == 403  # used up
    assert client.get("/api/runs", cookie=session[:-1] + ("0" if session[-1] != "0" else "1")).status == 401
    assert client.get("/api/runs", cookie="redline_8090=99999999999.x.y").status == 401


def test_a_signed_in_device_can_let_another_one_in(dashboard: Dashboards) -> None:
    client = dashboard(secret=b"a secret of thirty characters!")
    session = f"redline_8090={client.guard.new_session()}"
    answer = client.ask("POST", "/api/links", origin=f"http://{HOST}", cookie=session)
    link = answer.json()["link"]
    assert client.get(link.removeprefix(f"http://{HOST}")).status == 200
    assert client.ask("POST", "/api/links", origin=f"http://{HOST}").status == 401


def test_a_script_may_send_the_token_itself(dashboard: Dashboards) -> None:
    client = dashboard(secret=b"a secret of thirty characters!")
    assert client.get("/api/runs", authorization="Bearer a secret of thirty characters!").status == 200
    assert client.get("/api/runs", authorization="Bearer a secret of thirty characters").status == 401


def test_sessions_survive_a_restart_with_the_same_secret_only() -> None:
    guards = [Guard(names=names_of("127.0.0.1"), secret=secret, cookie="c") for secret in (b"one", b"one", b"two")]
    headers = [(b"host", b"localhost"), (b"cookie", f"c={guards[0].new_session()}".encode())]
    assert [guard.check("GET", "/", headers) is None for guard in guards] == [True, True, False]


def test_what_listens_on_all_addresses_answers_to_none_but_its_own() -> None:
    guard = Guard(names=names_of("0.0.0.0"), secret=b"s", cookie="c")  # noqa: S104
    assert guard.check("GET", "/", [(b"host", b"evil.example")]).status == 403  # type: ignore[union-attr]
    assert guard.check("GET", "/", [(b"host", b"0.0.0.0:8090")]).status == 403  # type: ignore[union-attr]
    assert guard.check("GET", "/", [(b"host", b"127.0.0.1:8090")]).status == 401  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("192.168.1.2", False),
        ("evil", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected
