"""Sessions at a real tap, and at servers that do not answer as a tap does."""

from __future__ import annotations

import json
import pickle
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import PATIENCE, wait_for

import rollout
from rollout.collecting import session as client

TOKEN = "a-token-of-the-tap"
PROMPT = "Write two notes. [script:harness seed=1]"


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLLOUT_TOKENS_TAP_TOKEN", raising=False)


def ask(session: rollout.Session, prompt: str = PROMPT) -> str:
    """Make a model call, as an OpenAI client does, and return the answer or the status of the error."""
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": prompt}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {session.key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{session.base_url}/chat/completions", body, headers), timeout=PATIENCE) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as e:
        with e:
            return f"status {e.code}"


def test_sessions_become_rows(tap: Callable[..., str], run_program: Callable[..., str], tmp_path: Path) -> None:
    url = tap()
    for n, written in enumerate((url, f"{url}/", f"{url}/v1", f"{url}/v1/")):  # all are the same tap
        with rollout.session(written, task_id=f"t{n}", prompt=PROMPT, answer="42", metadata={"a": 1}) as scored:
            assert scored.base_url == f"{url}/r/{scored.key}/v1"
            assert "Notes about" in ask(scored)
            scored.end(reward=n == 1, metadata={"b": [2]}, final_text="I say 42.")
        scored.end(np.float32(n == 1), metadata={"b": [2]}, final_text="I say 42.")  # the same end
        with pytest.raises(rollout.SessionError, match="already been ended with a different reward.*status 409") as different:
            scored.end(0.5)
        assert different.value.status == 409 and scored.id in str(different.value) and scored.key not in str(different.value)
        assert ask(scored) == "status 410"
    with rollout.session(url, task_id="unscored") as unscored:
        ask(unscored)
    with pytest.raises(ZeroDivisionError), rollout.session(url, task_id="broken") as broken:
        ask(broken)
        _ = 1 / 0
    assert "Notes about" in ask(broken)  # it is open
    assert scored.key not in repr(scored) + str(vars(rollout.Session)) and scored.id in repr(scored)

    run_program("collect", "--quiet", "--from-sessions", url, "--out", tmp_path / "run")
    rows = {row["task_id"]: row for group in rollout.Dataset(tmp_path / "run") for row in group.rows}
    assert set(rows) == {"t0", "t1", "t2", "t3", "unscored"}
    assert [rows[f"t{n}"]["reward"] for n in range(4)] == [0.0, 1.0, 0.0, 0.0] and rows["unscored"]["reward"] is None
    assert json.loads(rows["t3"]["metadata"]) == {"a": 1, "b": [2]}
    assert rows["t3"]["agent_id"] == scored.id and rows["unscored"]["agent_id"] == unscored.id


class Gate(BaseHTTPRequestHandler):
    """Forwards requests to an engine. A request with the word hold waits until the gate opens."""

    engine: str
    held: threading.Semaphore
    opened: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)) or None
        if body and b"hold" in body:
            self.held.release()
            self.opened.wait(PATIENCE)
        headers = {name: value for name, value in self.headers.items() if name in ("Authorization", "Content-Type")}
        try:
            answer = urllib.request.urlopen(urllib.request.Request(self.engine + self.path, body, headers), timeout=PATIENCE)
        except urllib.error.HTTPError as e:
            answer = e
        with answer:
            text = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("wait", [True, False])
def test_calls_in_flight(tap: Callable[..., str], engine: str, wait: bool) -> None:
    """The end waits for calls in flight, or cancels them. No new call is admitted meanwhile."""
    Gate.engine, Gate.held, Gate.opened = engine, threading.Semaphore(0), threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Gate) as gate, ThreadPoolExecutor() as pool:
        threading.Thread(target=gate.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            session = rollout.session(tap("--engine", f"http://127.0.0.1:{gate.server_address[1]}"), timeout=PATIENCE)
            call = pool.submit(ask, session, "Write. [script:harness seed=2] hold")
            assert Gate.held.acquire(timeout=PATIENCE)
            end = pool.submit(session.end, 1.0, wait=wait)
            if wait:
                wait_for(lambda: ask(session) == "status 410")
                assert not end.done() and not call.done()
                Gate.opened.set()
                assert "Notes about" in call.result(PATIENCE)
            else:
                assert call.result(PATIENCE) == "status 410"
            end.result(PATIENCE)
        finally:
            Gate.opened.set()
            gate.shutdown()


def test_tokens(tap: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    url = tap("--token-file", file)
    with pytest.raises(rollout.SessionError, match=r"needs the tap's token.*\(status 401\); pass it as token= or set ROLLOUT_TOKENS_TAP_TOKEN"):
        rollout.session(url)
    with pytest.raises(rollout.SessionError, match="status 401") as wrong:
        rollout.session(url, token="hunter2-hunter2-hunter2")
    assert "hunter2" not in str(wrong.value)
    monkeypatch.setenv("THE_TOKEN", TOKEN)
    for token in (TOKEN, f"{TOKEN}\n", f"${{file:{file}}}", "${env:THE_TOKEN}"):
        rollout.session(url, token=token).end()
        monkeypatch.setenv("ROLLOUT_TOKENS_TAP_TOKEN", token)
        rollout.session(url).end()
        monkeypatch.delenv("ROLLOUT_TOKENS_TAP_TOKEN")
    for token, message in (
        (f"${{file:{tmp_path}/none}}", f"token: cannot read {tmp_path}/none: No such file"),
        ("${env:NO_TOKEN}", "token: the environment variable NO_TOKEN is not set"),
        ("hunter2\nhunter2", "token: the token must be one word"),
        ("hünter2", "token: the token must be one word"),
    ):
        with pytest.raises(rollout.SessionError, match=message) as bad:
            rollout.session(url, token=token)
        assert "hunter2" not in str(bad.value)


class Server(ThreadingHTTPServer):
    """A server that gives the answers in a list, and then a tap's answer. An answer is a status and a
    body, None to close the connection, an event to wait for, or an error without its end."""

    daemon_threads = True

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.requests = answers, []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, json.loads(body), self.headers["Authorization"]))
        begun = self.path == "/r"
        answer = self.server.answers.pop(0) if self.server.answers else (201 if begun else 200, {"key": "the-key", "id": "the-id"})
        if isinstance(answer, threading.Event):
            answer.wait(PATIENCE)
            answer = None
        if answer == "breaks off":
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n")
            answer = None
        if answer is None:
            self.close_connection = True
            return
        status, text = answer
        text = text.encode() if isinstance(text, str) else json.dumps(text).encode()
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """serve(answer, …) starts a Server. Retries do not pause."""
    monkeypatch.setattr(client, "PAUSES", (0, 0, 0))
    servers: list[Server] = []

    def begin(*answers: Any) -> Server:
        servers.append(Server(list(answers)))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return servers[-1]

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def test_requests_without_an_answer_are_repeated(serve: Callable[..., Server]) -> None:
    server = serve(None, (503, {"error": {"message": "rollout tap: the tap is draining"}}), None)
    session = rollout.session(server.url, task_id="t", token=TOKEN)
    assert server.requests == [("/r", {"task": {"id": "t"}}, f"Bearer {TOKEN}")] * 4
    server.answers, server.requests = [None, None, None], []
    session.end(1, final_text="x", wait=True)
    assert server.requests == [("/r/the-key/end?wait=true", {"reward": 1.0, "final_text": "x"}, None)] * 4
    server.answers = [None] * 4
    with pytest.raises(rollout.SessionError, match="cannot end session the-id: the tap does not answer: ") as gone:
        session.end(1)
    assert gone.value.status is None and "the-key" not in str(gone.value)


@pytest.mark.parametrize(("answer", "message"), [
    ((400, {"error": {"message": "rollout tap: the body is not valid"}}), r"cannot begin a session at {}: rollout tap: the body is not valid \(status 400\)"),
    ((404, "404 page not found\n"), r"cannot begin a session at {}: 404 page not found \(status 404\)"),
    ("breaks off", r"cannot begin a session at {}: Bad Request \(status 400\)"),
    ((404, ""), r"Not Found \(status 404\)"),
    ((307, ""), r"Temporary Redirect \(status 307\)"),
    ((302, ""), r"Found \(status 302\)"),
    ((200, "<html>"), "the answer is not JSON; is this the URL of a tap with --sessions?"),
    ((200, [1]), "{} is not a rollout tap with --sessions"),
    ((200, {"key": "k"}), "{} is not a rollout tap with --sessions"),
])  # fmt: skip
def test_other_answers(serve: Callable[..., Server], answer: Any, message: str) -> None:
    server = serve(answer)
    with pytest.raises(rollout.SessionError, match=message.format(server.url)) as error:
        rollout.session(server.url, token=TOKEN)
    assert len(server.requests) == 1 and TOKEN not in str(error.value)  # neither repeated nor redirected
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), again.status) == (str(error.value), error.value.status)


def test_the_timeout_includes_retries(serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    server = serve(never, never)
    try:
        with pytest.raises(rollout.SessionError, match=r"the tap did not answer within 0\.2 s"):
            rollout.session(server.url, timeout=0.2)
        monkeypatch.setattr(client, "PAUSES", (1000,))
        server.answers = [None]
        with pytest.raises(rollout.SessionError, match="the tap does not answer"):  # without the pause
            rollout.session(server.url, timeout=20)
    finally:
        never.set()


def test_bad_urls_are_refused() -> None:
    for url in ("127.0.0.1:30001", "localhost:30001", "ftp://host", "http://", "http://host:port", "http://[::1", "http://host/?a=b", "http://a b", "", "/spool"):
        with pytest.raises(ValueError, match="^tap=.*must be a URL such as http://127.0.0.1:30001"):
            rollout.session(url)
    with pytest.raises(ValueError, match="^tap: the URL must not contain a user name or a password") as error:
        rollout.session("http://user:hunter2@host")
    assert "hunter2" not in str(error.value)
