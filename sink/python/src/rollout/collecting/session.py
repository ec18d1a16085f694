"""A client for the sessions of ``rollout tap --sessions``.

A session is one rollout of a program that uses a model through a URL. The tap records every model
call under that URL.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollout._args import flag, instance, real, shown
from rollout.errors import SessionError

if TYPE_CHECKING:
    from types import TracebackType

TOKEN = "ROLLOUT_TOKENS_TAP_TOKEN"
"""The environment variable that contains the tap's token if none is passed."""

PAUSES = (0.2, 0.8, 3.2)
"""Seconds before each retry of a request that the tap did not answer. Ending a session twice is
harmless, and so is a session that no program uses."""


class Session:
    """One rollout.

    At the end of a ``with`` block, the session ends without a reward if it has not been ended. If
    the block raises an exception, the session stays open: it never becomes rows, and the tap
    removes it later. So to train on a rollout that failed, catch the exception and call ``end``.
    """

    def __init__(self, tap: str, key: str, id: str, timeout: float) -> None:
        self.base_url = f"{tap}/r/{key}/v1"
        """The base URL for an OpenAI client."""
        self.key = key
        """The API key for an OpenAI client. It is a secret: it opens this session."""
        self.id = id
        """The id of the session in rows (column ``agent_id``) and logs. It is not a secret."""
        self._url = f"{tap}/r/{key}"
        self._timeout = timeout
        self._ended = False

    def __repr__(self) -> str:
        return f"Session(id={self.id!r})"

    def end(
        self,
        reward: float | None = None,
        *,
        final_text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = False,
    ) -> None:
        """Seal the session, so that it can become rows. Later model calls get status 410.

        The reward must be finite. It replaces the reward of the collection's scorer. The scorer
        scores ``final_text`` (default: the text of the last answer). The metadata must be JSON and
        is added to the task's metadata. Calls in flight are canceled. With ``wait``, the tap first
        waits for them. They must then end within the session's timeout.

        ``end`` can be repeated. If the session has been ended in the same way before, nothing
        happens. If it has been ended differently, ``SessionError`` is raised with status 409.
        """
        if isinstance(reward, (bool, np.bool_)):
            reward = float(reward)
        real("reward", reward, none=True)
        instance("final_text", final_text, str, "a string", none=True)
        flag("wait", wait)
        given = {"reward": None if reward is None else float(reward), "final_text": final_text, "metadata": _metadata(metadata)}
        _post(self._url + ("/end?wait=true" if wait else "/end"), given, "", self._timeout, f"end session {self.id}")
        self._ended = True

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and not self._ended:
            self.end()


def session(
    tap: str,
    *,
    task_id: str | None = None,
    prompt: str | None = None,
    answer: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    token: str | None = None,
    timeout: float = 60,
) -> Session:
    """Begin a session at the tap with this URL, such as ``http://127.0.0.1:30001``.

    The rows get ``task_id`` (default: the session's id) and ``metadata``. The main conversation is
    the one whose first message contains ``prompt``. Without a prompt, it is the first
    conversation. ``answer`` is the reference answer for a scorer. ``token`` is the tap's token, or
    a reference to it: ``${file:PATH}`` or ``${env:NAME}``. The default is the value of
    ``ROLLOUT_TOKENS_TAP_TOKEN``. ``timeout`` limits each request, with its retries, in seconds.

    ``session`` and ``Session.end`` block until the tap has answered. In asyncio code, call them with
    ``asyncio.to_thread``. If the tap cannot be reached or refuses a request, they raise
    ``SessionError``.
    """
    tap = _base(tap)
    for name, value in (("task_id", task_id), ("prompt", prompt), ("answer", answer), ("token", token)):
        instance(name, value, str, "a string", none=True)
    real("timeout", timeout, 0)
    task = {"id": task_id, "prompt": prompt, "answer": answer, "metadata": _metadata(metadata)}
    given = {"task": {name: value for name, value in task.items() if value is not None}}
    try:
        found = _post(f"{tap}/r", given, _token(token), timeout, f"begin a session at {tap}")
    except SessionError as e:
        if e.status == HTTPStatus.UNAUTHORIZED:
            raise SessionError(f"{e}; pass it as token= or set {TOKEN}", status=e.status) from None
        raise
    try:
        return Session(tap, found["key"], found["id"], timeout)
    except (KeyError, TypeError):
        raise SessionError(f"cannot begin a session: {tap} is not a rollout tap with --sessions") from None


def _base(tap: str) -> str:
    """Return the URL of a tap without /v1 and without a slash at the end."""
    instance("tap", tap, str, "the URL of a tap")
    try:
        url = urllib.parse.urlsplit(tap)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and not (url.query or url.fragment)
    except ValueError:
        good = False
    if "@" in tap:  # do not show a password
        raise ValueError("tap: the URL must not contain a user name or a password; pass the tap's token as token=")
    if not good or re.search(r"\s", tap):
        raise ValueError(f"tap={shown(tap)}: must be a URL such as http://127.0.0.1:30001")
    return tap.rstrip("/").removesuffix("/v1").rstrip("/")


def _metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    instance("metadata", metadata, Mapping, "a dict", none=True)
    if metadata is None:
        return None
    try:
        json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise TypeError(f"metadata: {e}; want only strings, finite numbers, booleans, None, lists and dicts") from None
    return dict(metadata)


def _token(given: str | None) -> str:
    """Return the tap's token, or "" if there is none."""
    name, text = ("token", given) if given is not None else (TOKEN, os.environ.get(TOKEN, ""))
    reference = re.fullmatch(r"\$\{(env|file):(.+)\}", text, re.DOTALL)
    if reference:
        kind, where = reference.groups()
        try:
            text = os.environ[where] if kind == "env" else Path(where).read_text(encoding="utf-8")
        except KeyError:
            raise SessionError(f"{name}: the environment variable {where} is not set") from None
        except (OSError, ValueError) as e:
            raise SessionError(f"{name}: cannot read {where}: {getattr(e, 'strerror', None) or 'the file is not text'}") from None
        name = where
    text = text.strip()
    if not re.fullmatch("[!-~]*", text) or reference and not text:
        raise SessionError(f"{name}: the token must be one word of printable ASCII characters")
    return text


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A tap does not redirect. Another server must not get the token."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(url: str, body: dict[str, Any], token: str, timeout: float, what: str) -> Any:
    """Send the fields of the body that are not None, and return the answer. A request without an
    answer is repeated."""
    data = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    opener = urllib.request.build_opener(_NoRedirect)
    end = time.monotonic() + timeout
    for pause in (*PAUSES, None):
        try:
            with opener.open(urllib.request.Request(url, data, headers), timeout=max(end - time.monotonic(), 0.001)) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            error = SessionError(f"cannot {what}: {_message(e)} (status {e.code})", status=e.code)
            if e.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise error from None
        except (OSError, http.client.HTTPException) as e:
            reason = getattr(e, "reason", e)
            if isinstance(reason, TimeoutError):
                raise SessionError(f"cannot {what}: the tap did not answer within {timeout:g} s") from None
            error = SessionError(f"cannot {what}: the tap does not answer: {reason}")
        except ValueError:
            raise SessionError(f"cannot {what}: the answer is not JSON; is this the URL of a tap with --sessions?") from None
        if pause is None or time.monotonic() + pause >= end:
            raise error
        time.sleep(pause)
    raise AssertionError


def _message(answer: urllib.error.HTTPError) -> str:
    """Return the message in an error of the tap."""
    try:
        with answer:
            text = answer.read(4096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return str(answer.reason)
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text or str(answer.reason)
