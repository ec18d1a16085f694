"""Compare the rows of a run with the log of the scripted engine, id by id.

Usage: trained.py RUN LOG... [--failed SEED...]

RUN is a run folder. LOG is a file with the engine's log, one JSON object per call (see package
enginesim). SEED is the seed of a script whose sample failed, so that none of its calls is trained.
Of our code, only the names in the commit log and of the columns are used.

A call is trained if a row contains its prompt, then its output with mask 1 and the engine's
log-probabilities. Prints one JSON object:

    calls, sampled       the logged calls with an output, and their tokens
    trained              the tokens that are trained once, in the context of their call
    twice                calls that more rows train than the log has
    wrong_context        spans whose ids are the output of a call, but not after its prompt
    wrong_logprobs       trained calls whose log-probabilities differ from the log
    partial              calls of which only the first tokens are trained
    unknown              spans with mask 1 that are no output of any call
    missing              calls that no row trains, with the reasons that the log knows
    rows, samples        the number of rows and of samples in RUN
    expected             the calls, and their tokens that were sent, by what the log says of them
                         (see expect), without the calls of a preflight
    differences          calls of the script harness, and calls without a script, that are trained
                         although the log says that they must not be, or the other way around

The exit status is 1 if twice, wrong_context, wrong_logprobs or unknown is not empty. The caller
decides which calls are allowed to be missing or partial, or that differences must be empty.
"""

import hashlib
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def digest(ids):
    return hashlib.blake2b(np.asarray(ids, np.int32).tobytes(), digest_size=16).digest()


class Calls:
    """The logged calls that sampled tokens."""

    def __init__(self, files):
        self.calls, self.by_prompt, self.by_output = [], {}, {}
        for path in files:
            with open(path, encoding="utf-8") as f:
                for line in f:
                    call = json.loads(line)
                    if call.get("output_ids"):
                        self.add(call, path)

    def add(self, call, path):
        call["log"] = os.path.basename(path)
        call["ids"] = np.asarray(call["output_ids"], np.int32)
        call["trained"], call["rows"] = 0, []
        self.calls.append(call)
        self.by_prompt.setdefault(digest(call["prompt_ids"]), []).append(call)
        self.by_output.setdefault(digest(call["ids"]), []).append(call)


def said(call, **more):
    names = ("log", "n", "script", "seed", "step", "marker", "fault", "finish_reason", "complete", "tools")
    tokens = {"prompt": len(call["prompt_ids"]), "output": len(call["ids"])}
    return {k: call[k] for k in names if k in call} | tokens | more


def same_logprobs(got, call):
    want = [np.nan if x is None else x for x in (call["logprobs"] or [])][: len(got)]
    return len(want) == len(got) and np.array_equal(np.asarray(want, np.float32), np.asarray(got, np.float32), equal_nan=True)


def rows(run):
    commits = os.path.join(run, "_commits")
    for name in sorted(os.listdir(commits)):
        with open(os.path.join(commits, name), encoding="utf-8") as f:
            entry = json.load(f)
        for shard in entry["shards"]:
            if shard["kind"] != "data":
                continue
            path = os.path.join(run, shard["path"])
            if shard["format"] == "arrow":
                with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
                    table = reader.read_all()
            else:
                table = pq.read_table(path)
            columns = ["sample_key", "segment_index", "input_ids", "loss_mask", "logprobs"]
            yield from zip(*(table.column(c).to_pylist() for c in columns))


def spans(mask):
    """Yield the start and the end of each run of ones."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], np.asarray(mask, np.int8), [0]))))
    yield from zip(edges[::2], edges[1::2])


def take(calls, ids, logprobs, at, end):
    """Return the call that the trained tokens from at on belong to, and how many of them are its output."""
    best, most = None, 0
    for call in calls.by_prompt.get(digest(ids[:at]), []):
        n = min(len(call["ids"]), end - at)
        if not np.array_equal(call["ids"][:n], ids[at : at + n]):
            continue
        # Equal calls differ in nothing else, so prefer one that is not yet trained, and then one
        # that the client received as a whole.
        rank = (n, same_logprobs(logprobs[at : at + n], call), not call["rows"], call["complete"])
        if best is None or rank > most:
            best, most = call, rank
    return best, most[0] if best else 0


def begins(prompt, *parts):
    """Report whether a prompt begins with the parts and has more tokens."""
    at = 0
    for part in parts:
        if not np.array_equal(prompt[at : at + len(part)], part):
            return False
        at += len(part)
    return len(prompt) > at


def expect(call, calls, failed):
    """Return what the log says of a call.

    preflight   a question that the program itself asks
    failed      its sample failed
    auxiliary   the call has no tools: a title, a summary. It must not be trained.
    cut         the answer was cut off, and no later prompt contains what was sent of it. Or it
                stopped at the token limit, and a later prompt goes on without it.
    trained     any other call
    """
    if not call["script"] and not call["tools"] and call["messages"] == 1 and len(call["ids"]) <= 8:
        return "preflight"
    if call["seed"].rstrip("s") in failed and call["script"]:
        return "failed"
    if not call["tools"]:
        return "auxiliary"
    later = [np.asarray(c["prompt_ids"], np.int32) for c in calls if c["began"] > call["ended"]]
    prompt = np.asarray(call["prompt_ids"], np.int32)
    if not call["complete"]:
        again = [c for c in calls if c["complete"] and c["prompt_ids"] == call["prompt_ids"]]
        sent = call["ids"][: call["listed"]]
        if again or not len(sent) or not any(begins(p, prompt, sent) for p in later):
            return "cut"
    elif call["finish_reason"] == "length":
        read = any(begins(p, prompt, call["ids"]) for p in later)
        # A prompt ends with the tokens that begin an answer. They are other tokens if the prompt goes
        # on with another message.
        if not read and any(begins(p, prompt[:-32]) for p in later):
            return "cut"
    return "trained"


def compare(calls, failed):
    """Count the calls by what is expected of them, and return those that differ from it."""
    expected, differences = {}, []
    for call in calls:
        want = expect(call, calls, failed)
        if want == "preflight":
            continue
        count = expected.setdefault(want, {"calls": 0, "tokens": 0})
        count["calls"] += 1
        count["tokens"] += len(call["ids"]) if call["complete"] else call["listed"]
        sent = len(call["ids"]) if call["complete"] else call["listed"]
        if (call["trained"], len(call["rows"])) != ((sent, 1) if want == "trained" else (0, 0)):
            differences.append(said(call, expected=want, trained=call["trained"]))
    return {"expected": expected, "differences": differences}


def main():
    files, failed = sys.argv[2:], []
    if "--failed" in files:
        at = files.index("--failed")
        files, failed = files[:at], files[at + 1 :]
    calls = Calls(files)
    report = {"calls": len(calls.calls), "sampled": sum(len(c["ids"]) for c in calls.calls), "trained": 0}
    found = {k: [] for k in ("twice", "wrong_context", "wrong_logprobs", "partial", "unknown", "missing")}
    samples, n = set(), 0
    for key, segment, ids, mask, logprobs in rows(sys.argv[1]):
        samples.add(key)
        n += 1
        ids, where = np.asarray(ids, np.int32), {"sample": key, "segment": segment}
        for at, end in spans(mask):
            at, end = int(at), int(end)
            while at < end:
                call, length = take(calls, ids, logprobs, at, end)
                if call is None:
                    others = calls.by_output.get(digest(ids[at:end]), [])
                    span = where | {"at": at, "tokens": end - at}
                    if others:
                        found["wrong_context"].append(said(others[0], **span))
                    else:
                        found["unknown"].append(span)
                    break
                call["rows"].append(where | {"at": at})
                call["trained"] = max(call["trained"], length)
                if not same_logprobs(logprobs[at : at + length], call):
                    found["wrong_logprobs"].append(said(call, **where))
                at += length
    for call in calls.calls:
        if len(call["rows"]) > 1:
            found["twice"].append(said(call, rows=call["rows"]))
        elif not call["rows"]:
            found["missing"].append(said(call))
        elif call["trained"] < len(call["ids"]):
            found["partial"].append(said(call, trained=call["trained"]))
        report["trained"] += call["trained"] if len(call["rows"]) == 1 else 0
    report |= compare(calls.calls, failed)
    json.dump(report | found | {"rows": n, "samples": len(samples)}, sys.stdout)
    print()
    return any(found[k] for k in ("twice", "wrong_context", "wrong_logprobs", "unknown"))


sys.exit(main())
