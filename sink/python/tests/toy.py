"""A policy of one small recurrent net, and an engine that samples from it over HTTP, in the
dialect of SGLang's /generate.

The task: "say b" must be answered with "b". Ids are bytes, and a newline ends an answer. Before
it learns, the policy has read such lines with any letter as the answer: it knows the form of an
answer, and not which one is right.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

torch = pytest.importorskip("torch")

LETTERS = "abcd"
VOCABULARY, STOP, MOST = 128, ord("\n"), 4


class Policy(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
    """Logits [b, T, V] of the token after each token of ids [b, T]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, 24)
        self.memory = torch.nn.GRU(24, 32, batch_first=True)
        self.head = torch.nn.Linear(32, VOCABULARY)

    def forward(self, ids: Any) -> Any:
        return self.head(self.memory(self.embedding(ids))[0])

    def logprobs_of(self, ids: Any, temperature: float = 1.0) -> Any:
        """Log-probabilities [b, T] of each token after the tokens before it; 0 for the first."""
        found = (self(ids)[:, :-1] / temperature).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        return torch.nn.functional.pad(found, (1, 0))


def read_before(seed: int) -> Policy:
    """Return a policy that has read lines."""
    torch.manual_seed(seed)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), 0.02)
    for _ in range(150):
        asked, said = torch.randint(len(LETTERS), (2, 64)).tolist()
        lines = [list(f"say {LETTERS[a]}\n{LETTERS[b]}\n".encode()) for a, b in zip(asked, said)]
        loss = -policy.logprobs_of(torch.tensor(lines))[:, 1:].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


class Engine:
    """Samples from its policy, and reports the version of it.

    The n-th request for a prompt from one version has its own seed, so that the answers do not
    depend on the order in which requests of several prompts arrive.
    """

    def __init__(self, policy: Policy):
        self.policy, self.version = policy, 0
        self.update: tuple[int, Policy, int] | None = None
        """After that many more calls, the next weights and their version."""
        self.asked: Counter[tuple[int, bytes]] = Counter()
        self._lock = threading.Lock()

    def generate(self, prompt: list[int], temperature: float) -> dict[str, Any]:
        with self._lock, torch.no_grad():
            if self.update:
                left, policy, version = self.update
                self.update = (left - 1, policy, version) if left else None
                if not left:
                    self.policy, self.version = policy, version
            key = (self.version, bytes(prompt))
            self.asked[key] += 1
            draw = torch.Generator().manual_seed(hash((self.version, *prompt, self.asked[key])) % 2**60)
            ids = list(prompt)
            pairs: list[list[Any]] = []
            while len(pairs) < MOST and not (pairs and ids[-1] == STOP):
                logprobs = (self.policy(torch.tensor([ids]))[0, -1] / temperature).log_softmax(-1)
                ids.append(int(torch.multinomial(logprobs.exp(), 1, generator=draw)))
                pairs.append([float(logprobs[ids[-1]]), ids[-1], None])
        stopped = ids[-1] == STOP
        output = ids[len(prompt) :]
        return {
            "text": bytes(output[:-1] if stopped else output).decode(),
            "output_ids": output,
            "meta_info": {
                "output_token_logprobs": pairs,
                "finish_reason": {"type": "stop", "matched": STOP} if stopped else {"type": "length", "length": MOST},
                "prompt_tokens": len(prompt),
                "completion_tokens": len(output),
                "weight_version": str(key[0]),
            },
        }


    def model_info(self) -> dict[str, Any]:
        with self._lock:
            return {"weight_version": str(self.version)}


@contextmanager
def serve(engine: Engine) -> Iterator[str]:
    """Serve an engine within the block, and return its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(engine.generate(asked["input_ids"], asked["sampling_params"]["temperature"]))

        def do_GET(self) -> None:
            self.answer(engine.model_info())

        def answer(self, found: dict[str, Any]) -> None:
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
