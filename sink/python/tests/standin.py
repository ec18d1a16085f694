"""A stand-in for `rollout collect --stream`, for behavior that a real one only has when it is
broken: it ends as configured. test_collect.py uses it for supervision, and nothing else.

STANDIN is a JSON object. Its actions happen in the first `starts` starts (default: all).
        exit: [STATUS, TEXT]    write TEXT to standard error and end before anything else
        kill: N                 kill itself after N commits
        stuck: true             ignore SIGTERM and the end of its standard input
        noisy: N                write N events before the first request is answered
        late: OP                answer the first request of that name once RUN/answer exists
        drop: OP                handle the first request of that name, then hang up
    It records each start and each request in RUN/heard.jsonl.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from made import Run, Sample

wishes: dict[str, Any] = json.loads(os.environ.get("STANDIN", "{}"))


def flag(name: str) -> str | None:
    return next((a.partition("=")[2] for a in sys.argv if a.startswith(f"--{name}=")), None)


def say(event: str, **fields: Any) -> None:
    with printing:
        print(json.dumps({"event": event, **fields}), flush=True)


def note(**fields: Any) -> None:
    with printing, open(folder / "heard.jsonl", "a") as f:
        print(json.dumps(fields), file=f)


class Collector:
    """Commits a group for every task while fewer than max_ahead are unacknowledged."""

    def __init__(self) -> None:
        self.run = Run(folder, again=True)
        self.known: dict[str, Any] = {}
        if (folder / "tasks.jsonl").exists():
            self.known = {t["id"]: t for t in map(json.loads, (folder / "tasks.jsonl").read_text().splitlines())}
        self.acked, self.ended, self.paused, self.committed = self._acked(), False, False, 0
        self.left_out: set[int] = set()  # commits of one group each
        self.todo = list(self.known.values())[self.run.seq :]
        self.changed = threading.Condition()

    def _acked(self) -> int:
        path = folder / "ack.json"
        return int(json.loads(path.read_text())["seq"]) if path.exists() else 0

    def answer(self, r: dict[str, Any]) -> dict[str, Any]:
        with self.changed:
            self.changed.notify_all()
            if r["op"] == "task":
                task = r["task"]
                if "prompt" not in task:
                    return {"ok": False, "error": "the task has no prompt", "hint": "give it one", "code": 2}
                if self.ended:
                    return {"ok": False, "error": "no more tasks are accepted (reason: drain)", "code": 2}
                again = task["id"] in self.known
                if again and self.known[task["id"]] != task:
                    return {"ok": False, "error": f"task {task['id']} was accepted before with another content", "code": 2}
                if not again:
                    self.known[task["id"]] = task
                    with open(folder / "tasks.jsonl", "a") as f:
                        print(json.dumps(task), file=f)
                    self.todo.append(task)
                return {"ok": True, "task": task["id"], "group": f"g{task['id']}", "samples": 2, "again": again}
            if r.get("only"):
                self.left_out.add(r["seq"])
            elif r["op"] == "ack":
                (folder / "ack.part").write_text(json.dumps({"run_id": "r", "seq": r["seq"], "groups": r["groups"]}))
                (folder / "ack.part").rename(folder / "ack.json")
                self.acked = max(self.acked, r["seq"])
            elif r["op"] == "drain":
                self.ended = True
            elif r["op"] == "set-version" and r["version"] < 0:
                return {"ok": False, "error": "the version is negative", "code": 2}
            elif r["op"] == "set-version":
                say("version", version=r["version"])
            elif r["op"] in ("pause", "resume"):
                self.paused = r["op"] == "pause"
            elif r["op"] == "status":
                return {"ok": True, "run_id": "r", "groups": {"ahead": self.ahead()}, "end_of_tasks": self.ended, "secret": os.environ.get("COLLECT_SECRET_PASSWORD")}
            return {"ok": True}

    def ahead(self) -> int:
        return sum(seq not in self.left_out for seq in range(self.acked + 1, self.run.seq + 1))

    def work(self) -> None:
        most = int(flag("max-ahead") or 1000)

        def ready() -> bool:
            return not self.paused and self.ahead() < most if self.todo else self.ended

        while True:
            with self.changed:
                self.changed.wait_for(ready)
                if not self.todo:
                    return
                task = self.todo.pop(0)
            group = f"g{task['id']}"
            say("begun", task=task["id"], group=group)
            facts = {"keep": False, "keep_reason": "x"} if task.get("answer") == "left out" else {}
            self.run.commit([Sample(group, i, [3], 2, facts=facts) for i in range(2)])
            say("commit", seq=self.run.seq)
            say("group", group=group, task=task["id"], seq=self.run.seq, n=1)
            self.committed += 1
            if wished("kill") == self.committed:
                os.kill(os.getpid(), signal.SIGKILL)


def wished(name: str) -> Any:
    return wishes.get(name) if starts <= wishes.get("starts", 1000) else None


def once(name: str, op: str) -> bool:
    with printing:
        return wished(name) == op and bool(wishes.pop(name))


def serve(c: Collector, listener: socket.socket) -> None:
    def client(conn: socket.socket) -> None:
        with conn, conn.makefile("rwb") as f:
            for line in f:
                request = json.loads(line)
                note(**request)
                if once("drop", request["op"]):
                    return
                late = once("late", request["op"])
                answer = c.answer(request)
                while late and not (folder / "answer").exists():
                    time.sleep(0.01)
                f.write(json.dumps(answer).encode() + b"\n")
                f.flush()

    while True:
        conn, _ = listener.accept()
        threading.Thread(target=client, args=(conn,), daemon=True).start()


def end_with_parent() -> None:
    while sys.stdin.read(1):
        pass
    with contextlib.suppress(OSError):  # the reader can be gone
        say("warning", text="exiting now; continue with: rollout collect --resume")
    if not wished("stuck"):
        os._exit(130)


if __name__ == "__main__":
    printing = threading.Lock()
    folder = Path(flag("out") or "")
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "a") as lock:
        note(op="start", pid=os.getpid(), args=sys.argv[1:])
        starts = sum('"op": "start"' in line for line in (folder / "heard.jsonl").read_text().splitlines())
        if wished("stuck"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if wished("exit"):
            status, text = wished("exit")
            print(text, file=sys.stderr, flush=True)
            sys.exit(status)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("rollout: the folder is locked by another process", file=sys.stderr)
            sys.exit(8)
        collector = Collector()
        path = folder / "ctl.sock"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=end_with_parent, daemon=True).start()
        say("launch", socket=str(path))
        for i in range(wished("noisy") or 0):
            say("group", group=f"of an earlier process {i}", why="nobody has acknowledged it")
        threading.Thread(target=serve, args=(collector, listener), daemon=True).start()
        collector.work()
        say("drained", why="end of tasks")
        say("done")
        os._exit(0)
