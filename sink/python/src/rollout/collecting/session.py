"""A client for the sessions of ``rollout tap --sessions``.

A session is one rollout of a program that uses a model through a URL. The tap records every model
call under that URL.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from rollout.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

TOKEN = "ROLLOUT_TOKENS_TAP_TOKEN"
"""The environment variable that contains the tap's token if none is passed."""


class Session:
    """One rollout.

    At the end of a ``with`` block, the session ends without a reward if it has not been ended. If
    the block raises an exception, the session stays open and never becomes rows.
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
    ) -> None:
        """Seal the session, so that it can become rows. Later model calls get status 410.

        The reward must be finite. It replaces the reward of the collection's scorer. The scorer
        scores ``final_text`` (default: the text of the last answer). The metadata must be
        JSON and is added to the task's metadata. If the session has been ended in the same way
        before, nothing happens. If it has been ended differently, ``SessionError`` is raised.
        """
        body: dict[str, Any] = {}
        if reward is not None:
            body["reward"] = float(reward)
        if final_text is not None:
            body["final_text"] = final_text
        if metadata is not None:
            body["metadata"] = dict(metadata)
        _post(f"{self._url}/end", body, None, self._timeout, "end the session")
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

    The rows get ``task_id`` (default: the session's id) and ``metadata``. The main
    conversation is the one whose first message contains ``prompt``. Without a prompt, it is the
    first conversation. ``answer`` is the reference answer for a scorer. ``token`` is the tap's
    token, by default the value of ``ROLLOUT_TOKENS_TAP_TOKEN``. ``timeout`` is in seconds. Any failure
    raises ``SessionError``.
    """
    tap = tap.rstrip("/").removesuffix("/v1")
    task = {"id": task_id, "prompt": prompt, "answer": answer, "metadata": dict(metadata) if metadata is not None else None}
    body = {"task": {name: value for name, value in task.items() if value is not None}}
    found = _post(f"{tap}/r", body, token if token is not None else os.environ.get(TOKEN), timeout, "begin a session")
    try:
        return Session(tap, found["key"], found["id"], timeout)
    except (KeyError, TypeError):
        raise SessionError(f"cannot begin a session: {tap} is not a rollout tap with --sessions") from None


def _message(answer: urllib.error.HTTPError) -> str:
    text = answer.read(4096).decode(errors="replace").strip()
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text or str(answer.reason)


TRIES = 4
"""How often a request is sent if the tap does not answer. Ending a session twice is harmless, and so
is a session that nobody uses."""


def _post(url: str, body: dict[str, Any], token: str | None, timeout: float, what: str) -> Any:
    try:
        data = json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as e:
        raise SessionError(f"cannot {what}: {e}") from None
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    for left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=timeout) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            if e.code < HTTPStatus.INTERNAL_SERVER_ERROR or not left:
                raise SessionError(f"cannot {what}: {_message(e)} (status {e.code})", status=e.code) from None
        except (OSError, http.client.HTTPException) as e:
            if not left:
                raise SessionError(f"cannot {what}: the tap does not answer: {getattr(e, 'reason', e)}") from None
        except ValueError:
            raise SessionError(f"cannot {what}: the answer is not JSON; is this the URL of a tap with --sessions?") from None
        time.sleep(0.2 * 4 ** (TRIES - 1 - left))
    raise AssertionError
