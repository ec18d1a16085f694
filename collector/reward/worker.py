"""Runs a scoring function for rollout: one JSON object per line in, one JSON object per line out.

The arguments are the path of the user's file, the name of the function, the word "sample" or "group", and
the number of bytes of the file's content. This program comes first on the standard input, which is then a
buffered reader in sys.stdin. The content of the file follows, so that every worker of a run has the same
function, even if the file changes.
"""

import contextlib
import inspect
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
import types

LONGEST = 1000  # characters of an error


def main():
    path, name, scope, size = sys.argv[1:5]
    # The user's code must not read the requests or write into the answers.
    requests, sys.stdin = sys.stdin, open(0, closefd=False)
    answers = os.fdopen(os.dup(1), "wb", 1 << 20)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()
    this = os.getpid()
    source = requests.read(int(size))
    if len(source) < int(size):
        return  # rollout is dead
    sys.argv, sys.path[0] = [path], os.path.dirname(os.path.abspath(path))
    broken = None
    try:
        call = load(path, name, source)
    except BaseException as err:  # the requests get the error, so that a person sees it
        broken = reason(err, path)
    for line in requests:
        request = json.loads(line)
        number = request.pop("id")
        try:
            if broken:
                answer = {"error": broken}
            elif scope == "group":
                answer = {"rewards": verdicts(call(request["samples"]), len(request["samples"]))}
            else:
                answer = verdict(call(request))
            with contextlib.suppress(Exception):
                sys.stdout.flush()  # what the function printed belongs to this sample
            text = json.dumps({"id": number, **answer}, allow_nan=False, default=plain, separators=(",", ":"))
        except BaseException as err:  # also SystemExit: it concerns this sample only
            text = json.dumps({"id": number, "error": reason(err, path)})
        if os.getpid() != this:
            os._exit(0)  # the function forked, and returned in the child, too
        answers.write(text.encode() + b"\n")
        answers.flush()


def watch(parent):
    """Kills this process and its children if rollout was killed. A function that runs would not notice it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(0, signal.SIGKILL)  # rollout starts every worker in a process group of its own


def load(path, name, source):
    stem = os.path.splitext(os.path.basename(path))[0]
    module = types.ModuleType(stem)
    module.__file__ = path
    sys.modules.setdefault(stem, module)
    exec(compile(source, path, "exec"), module.__dict__)  # no cached bytecode: it can be older than the file
    function = getattr(module, name, None)
    if not callable(function):
        raise AttributeError(f"there is no function {name}")
    loop = None

    def call(argument):
        nonlocal loop
        value = function(argument)
        if inspect.isawaitable(value):
            if loop is None:
                import asyncio

                loop = asyncio.new_event_loop()
            value = loop.run_until_complete(value)
        return value

    return call


def verdict(value):
    details = None
    if isinstance(value, dict):
        if "reward" not in value:
            raise TypeError('the function returned a dict without the key "reward"')
        details = {key: of for key, of in value.items() if key != "reward"} or None
        value = value["reward"]
    if value is None:
        return {"reward": None, "details": details}
    try:
        reward = None if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError):
        reward = None
    if reward is None:
        raise TypeError(f"the function returned {type(value).__name__}, want a number, a dict or None")
    if not math.isfinite(reward):
        raise ValueError(f"the function returned {reward}, want a finite number")
    return {"reward": reward, "details": details}


def verdicts(values, count):
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
        raise TypeError(f"the function returned {type(values).__name__}, want a list")
    values = list(values)
    if len(values) != count:
        raise ValueError(f"the function returned {len(values)} rewards for {count} samples")
    return [verdict(value) for value in values]


def plain(value):
    """Converts an array or a scalar of NumPy or PyTorch."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"details contain {type(value).__name__}, which JSON cannot represent")


def reason(err, path):
    try:
        text = f"{type(err).__name__}: {err}" if str(err) else type(err).__name__
    except Exception:
        text = type(err).__name__
    lines = [frame.lineno for frame in traceback.extract_tb(err.__traceback__) if frame.filename == path]
    if lines:
        text = f"{text[:LONGEST]} (line {lines[-1]})"
    return text[: LONGEST + 20].encode("utf-8", "replace").decode()


main()
