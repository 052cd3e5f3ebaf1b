"""Who may ask the dashboard for anything: every request is checked before it is understood.

A page of another site can send requests to a server on this machine. So the Host must be a name of ours, which no
rebound DNS name is; the Origin, where a browser tells it, must be the same; and where the server listens beyond this
machine, a cookie or a token must say who asks.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import platform
import re
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil

HOST = re.compile(
    r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)(?::(?P<port>[0-9]{1,5}))?", re.I
)
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - recognised, not bound to
LOGIN = "/login"
LINK_S = 600.0  # a link is good for so long, and once
SESSION_S = 30 * 86_400.0
MAX_LINKS = 20
MAX_HEADER = 4_096  # characters of a header that we read
OURS = ("same-origin", "none")  # sites that a browser may say a request comes from

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    why: str


def is_loopback(host: str) -> bool:
    """Tell whether an address or a name is this machine's own, seen from itself."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def names_of(host: str) -> frozenset[str]:
    """Return the names by which a server that listens on `host` may be asked, as they stand in Host."""
    names = {host.lower()}
    if is_loopback(host) or host in WILDCARDS:
        names |= {"localhost", "127.0.0.1", "::1"}
    if host in WILDCARDS:
        node = platform.node().lower()
        names |= {node, f"{node}.local"} - {"", ".local"}
        names |= _addresses()
    return frozenset(f"[{name}]" if ":" in name else name for name in names - set(WILDCARDS))


def _addresses() -> set[str]:
    """Return the addresses of this machine's network cards."""
    found = [address for card in psutil.net_if_addrs().values() for address in card]
    known = [address.address for address in found if address.family in (socket.AF_INET, socket.AF_INET6)]
    return {address.partition("%")[0].lower() for address in known}  # without the card's name


class Guard:
    """Decides over requests. Without a secret, everybody on this machine may ask."""

    def __init__(self, *, names: frozenset[str], secret: bytes | None, cookie: str) -> None:
        self._names = names
        self._secret = secret
        self.cookie = cookie  # its name; browsers share cookies between the ports of a host
        self._links: dict[bytes, float] = {}  # digest of a link's word → when it ends

    @property
    def needs_token(self) -> bool:
        """Whether a request must prove who sends it."""
        return self._secret is not None

    def check(self, method: str, path: str, headers: Headers) -> Refusal | None:
        """Return why a request is refused; None if it is welcome."""
        told: dict[str, list[str]] = {}
        for name, value in headers:
            told.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1")[:MAX_HEADER])
        refusal = self._check_source(method, told)
        if refusal is None and self.needs_token and path != LOGIN and not self._is_known(told):
            return Refusal(401, "this dashboard needs a link with a token: the terminal that started it shows one")
        return refusal

    def _check_source(self, method: str, told: Mapping[str, list[str]]) -> Refusal | None:
        hosts, origins = told.get("host", []), told.get("origin", [])
        found = HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        # any port: a tunnel has its own, and only the name tells a rebound page from us
        if found is None or found["name"].lower() not in self._names:
            return Refusal(403, "the Host is none of this server's names: open the address that it printed")
        if len(origins) > 1 or any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return Refusal(403, "another site asked for this: only the dashboard's own pages may")
        if method not in ("GET", "HEAD") and not origins:
            return Refusal(403, "a change needs an Origin: only the dashboard's own pages may ask for it")
        sites = told.get("sec-fetch-site", [])
        # a link on another page may lead here: it shows a page to the user and nothing to that page
        is_link = method == "GET" and told.get("sec-fetch-mode") == ["navigate"]
        if any(site not in OURS for site in sites) and not (is_link and told.get("sec-fetch-dest") == ["document"]):
            return Refusal(403, "another site asked for this: only the dashboard's own pages may")
        return None

    # Tokens: a link is exchanged for a cookie

    def new_link(self) -> str:
        """Return a word that is exchanged for a session, once."""
        now_s = time.monotonic()
        alive = {digest: end_s for digest, end_s in self._links.items() if end_s > now_s}
        self._links = dict(list(alive.items())[-MAX_LINKS + 1 :])
        word = secrets.token_urlsafe(32)
        self._links[_digest(word)] = now_s + LINK_S
        return word

    def redeem(self, word: str) -> str | None:
        """Return a cookie's value for the word of a link, which is used up; None if it is not good."""
        end_s = self._links.pop(_digest(word), 0.0)
        return self.new_session() if end_s > time.monotonic() else None

    def new_session(self) -> str:
        """Return the value of a cookie."""
        told = f"{int(time.time() + SESSION_S)}.{secrets.token_urlsafe(16)}"
        return f"{told}.{self._sign(told)}"

    def _is_known(self, told: Mapping[str, list[str]]) -> bool:
        for header in told.get("authorization", []):
            kind, _, word = header.partition(" ")
            if kind.lower() == "bearer" and hmac.compare_digest(word.strip().encode("latin-1"), self._secret or b""):
                return True
        cookies = (cookie.strip().partition("=") for header in told.get("cookie", []) for cookie in header.split(";"))
        return any(self._is_session(value) for name, _, value in cookies if name == self.cookie)

    def _is_session(self, value: str) -> bool:
        told, _, signature = value.rpartition(".")
        end = told.partition(".")[0]
        is_ours = hmac.compare_digest(signature.encode("latin-1"), self._sign(told).encode())
        return is_ours and end.isdigit() and int(end) > time.time()

    def _sign(self, told: str) -> str:
        key = hashlib.sha256(b"redline dashboard session " + (self._secret or b"")).digest()
        return hmac.new(key, told.encode("latin-1"), "sha256").hexdigest()


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
