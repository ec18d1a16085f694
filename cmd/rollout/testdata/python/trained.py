"""Compare the rows of a run with the log of the scripted engine, id by id.

Usage: trained.py RUN LOG... [--failed SEED...]

RUN is a run folder. LOG is a file with the engine's log, one JSON object per call (see package
enginesim). SEED is the seed of a script whose sample failed, so that none of its calls is trained.
Of our code, only the names in the commit log and of the columns are used.

Prints one JSON object:

    calls, sampled       the logged calls with an output, and their tokens
    rows, samples        the number of rows and of samples in RUN
    parents              the number of rows with a parent
    expected             the number of calls, and of their tokens that were sent, by what the log says
                         of them (see Calls.expect), without the calls of a preflight

    differences          calls that are not trained as the log says: the log says trained, and not
                         exactly one row trains all tokens that were sent; or the log says something
                         else, and a row trains some of them
    wrong_context        spans with mask 1 whose ids are the output of a call, but not after its prompt
    unknown              other spans with mask 1 that are not the output of a call after its prompt
    wrong_logprobs       trained calls whose log-probabilities differ from the log
    wrong_chain          trained calls in a row with another kind of conversation than the log says, in
                         a chain with another conversation, out of order, or with chain 0 for another
                         conversation than the task's
    wrong_sample         trained calls in a sample with calls of another session
    wrong_parent         the first trained call of each row whose parent is not the first answer of the
                         task's conversation, which starts the subagents of a script

The exit status is 1 if one of the last seven lists is not empty.
"""

import hashlib
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ["sample_key", "segment_index", "chain", "chain_kind", "parent_chain", "parent_step", "step_ids", "input_ids", "loss_mask", "logprobs"]
FOUND = ("differences", "wrong_context", "unknown", "wrong_logprobs", "wrong_chain", "wrong_sample", "wrong_parent")


def digest(ids):
    return hashlib.blake2b(np.asarray(ids, np.int32).tobytes(), digest_size=16).digest()


class Calls:
    """The logged calls that sampled tokens."""

    def __init__(self, files, failed=()):
        self.calls, self.by_prompt, self.by_output, self.failed = [], {}, {}, failed
        for path in files:
            with open(path, encoding="utf-8") as f:
                for line in f:
                    call = json.loads(line)
                    if call.get("output_ids"):
                        self.add(call)
        # The task's conversation has the tools of its first request with tools.
        self.tools = {}
        for call in sorted(self.calls, key=lambda c: c["began"]):
            if call["tools"] and call["seed"] == session(call):
                self.tools.setdefault(call["seed"], set(call["tools"]))

    def add(self, call):
        for name in ("began", "ended"):
            call[name] = np.datetime64(call[name].removesuffix("Z"), "ns")  # texts of other lengths have another order
        call["prompt"] = np.asarray(call["prompt_ids"], np.int32)
        call["ids"] = np.asarray(call["output_ids"], np.int32)
        call["sent"] = len(call["ids"]) if call["complete"] else call["listed"]
        call["trained"], call["rows"] = 0, []
        self.calls.append(call)
        self.by_prompt.setdefault(digest(call["prompt"]), []).append(call)
        self.by_output.setdefault(digest(call["ids"]), []).append(call)

    def later(self, call, *parts):
        """Report whether the prompt of a later call begins with the parts and has more tokens."""
        start = np.concatenate(parts)
        return any(c["began"] > call["ended"] and len(c["prompt"]) > len(start) and np.array_equal(c["prompt"][: len(start)], start) for c in self.calls)

    def expect(self, call):
        """Return what the log says of a call.

        preflight   a question that the program itself asks
        failed      its sample failed
        auxiliary   the call has no tool of the task's conversation: a title, a summary
        cut         the answer was cut off, and no later prompt contains what was sent of it. Or it
                    stopped at the token limit, and a later prompt continues without it.
        trained     any other call
        """
        if not call["script"] and not call["tools"] and call["messages"] == 1 and len(call["ids"]) <= 8:
            return "preflight"
        if call["script"] and session(call) in self.failed:
            return "failed"
        if not set(call["tools"] or ()) & self.tools.get(session(call), set()):
            return "auxiliary"
        prompt = call["prompt"]
        if not call["complete"]:
            sent = call["ids"][: call["sent"]]
            again = any(c["complete"] for c in self.by_prompt[digest(prompt)])
            if again or not len(sent) or not self.later(call, prompt, sent):
                return "cut"
        elif call["finish_reason"] == "length":
            # A prompt ends with the tokens that begin an answer. They are other tokens if the prompt
            # continues with another message. Some harnesses strip an answer. Here, its last token is a space.
            if not self.later(call, prompt, call["ids"][:-1]) and self.later(call, prompt[:-32]):
                return "cut"
        return "trained"

    def trained_at(self, ids, logprobs, at, end):
        """Return the call that the trained tokens from at on belong to, and how many of them are its output."""
        best, most = None, (0,)
        for call in self.by_prompt.get(digest(ids[:at]), []):
            n = min(len(call["ids"]), end - at)
            if not np.array_equal(call["ids"][:n], ids[at : at + n]):
                continue
            # Equal calls differ in nothing else, so prefer one that is not yet trained, and then one
            # that the client received as a whole.
            rank = (n, same_logprobs(logprobs[at : at + n], call), not call["rows"], call["complete"])
            if rank > most:
                best, most = call, rank
        return best, most[0]


def session(call):
    """Return the seed of the task to which a call belongs. A subagent's seed has a letter at the end."""
    return call["seed"].rstrip("st")


def kind(call):
    return "main" if call["seed"] == session(call) else "subagent"


def said(call, **more):
    names = ("n", "script", "seed", "step", "marker", "fault", "finish_reason", "complete", "tools")
    tokens = {"prompt": len(call["prompt"]), "output": len(call["ids"])}
    return {k: call[k] for k in names} | tokens | more


def same_logprobs(got, call):
    want = [np.nan if x is None else x for x in (call["logprobs"] or [])][: len(got)]
    return len(want) == len(got) and np.array_equal(np.asarray(want, np.float32), np.asarray(got, np.float32), equal_nan=True)


def read(run):
    """Return the rows of a run."""
    commits, tables = os.path.join(run, "_commits"), []
    for name in sorted(os.listdir(commits)):
        with open(os.path.join(commits, name), encoding="utf-8") as f:
            entry = json.load(f)
        for shard in entry["shards"]:
            path = os.path.join(run, shard["path"])
            if shard["kind"] != "data":
                continue
            if shard["format"] == "arrow":
                with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
                    tables.append(reader.read_all())
            else:
                tables.append(pq.read_table(path))
    return pa.concat_tables(tables).select(COLUMNS).to_pylist()


def spans(mask):
    """Yield the start and the end of each run of ones."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], np.asarray(mask, np.int8), [0]))))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist())


def compare_spans(row, calls, found):
    """Find the calls that a row trains, and return them."""
    ids, trained = np.asarray(row["input_ids"], np.int32), []
    for at, end in spans(row["loss_mask"]):
        while at < end:
            call, length = calls.trained_at(ids, row["logprobs"], at, end)
            where = {"sample": row["sample_key"], "segment": row["segment_index"], "at": at}
            if call is None:
                others = calls.by_output.get(digest(ids[at:end]), [])
                found["wrong_context" if others else "unknown"].append(said(others[0], **where) if others else where | {"tokens": end - at})
                break
            trained.append(call)
            call["rows"].append(where)
            call["trained"] = max(call["trained"], length)
            if not same_logprobs(row["logprobs"][at : at + length], call):
                found["wrong_logprobs"].append(said(call, **where))
            at += length
    return trained


def compare_chains(rows, found):
    """Check the chains and the samples of the trained calls. Each row is a pair of its columns and its calls."""
    last, tasks, samples = {}, {}, {}  # the last call of each chain, the session of each sample, and the reverse
    for row, trained in sorted(rows, key=lambda r: (r[0]["sample_key"], r[0]["segment_index"])):
        key, chain = row["sample_key"], row["chain"]
        for call in trained:
            where = {"sample": key, "segment": row["segment_index"], "chain": chain, "chain_kind": row["chain_kind"]}
            before = last.setdefault((key, chain), call)
            last[key, chain] = call
            if row["chain_kind"] != kind(call) or chain == 0 and kind(call) != "main" or before["seed"] != call["seed"] or before["began"] > call["began"]:
                found["wrong_chain"].append(said(call, **where))
            sample = samples.setdefault(session(call), key)
            task = tasks.setdefault(key, session(call))
            if sample != key or task != session(call):
                found["wrong_sample"].append(said(call, **where))


def compare_parents(rows, calls, found):
    """Check the parents of rows, and return their number."""
    steps = {(row["sample_key"], row["chain"], step): call for row, trained in rows for step, call in zip(row["step_ids"], trained)}
    parents = 0
    for row, trained in rows:
        if row["parent_step"] is None or not trained:
            continue
        parents += 1
        parent = steps.get((row["sample_key"], row["parent_chain"], str(row["parent_step"])))
        seed = session(trained[0])
        first = min((c["step"] for c in calls.calls if c["seed"] == seed), default=None)
        if parent is None or parent["seed"] != seed or parent["step"] != first or kind(trained[0]) != "subagent":
            found["wrong_parent"].append(said(trained[0], sample=row["sample_key"], parent=row["parent_step"]))
    return parents


def compare_calls(calls, found):
    """Count the calls by what is expected of them, and find those that differ from it."""
    expected = {}
    for call in calls.calls:
        want = calls.expect(call)
        if want == "preflight":
            continue
        count = expected.setdefault(want, {"calls": 0, "tokens": 0})
        count["calls"] += 1
        count["tokens"] += call["sent"]
        if (call["trained"], len(call["rows"])) != ((call["sent"], 1) if want == "trained" else (0, 0)):
            found["differences"].append(said(call, expected=want, trained=call["trained"], rows=call["rows"]))
    return expected


def compare(rows, calls):
    """Compare rows with the calls of a log, and return the report."""
    found = {k: [] for k in FOUND}
    trained = [(row, compare_spans(row, calls, found)) for row in rows]
    compare_chains(trained, found)
    report = {
        "calls": len(calls.calls),
        "sampled": sum(len(c["ids"]) for c in calls.calls),
        "rows": len(rows),
        "samples": len({row["sample_key"] for row in rows}),
        "parents": compare_parents(trained, calls, found),
        "expected": compare_calls(calls, found),
    }
    return report | found


def main():
    files, failed = sys.argv[2:], []
    if "--failed" in files:
        at = files.index("--failed")
        files, failed = files[:at], files[at + 1 :]
    report = compare(read(sys.argv[1]), Calls(files, failed))
    json.dump(report, sys.stdout)
    print()
    return any(report[k] for k in FOUND)


if __name__ == "__main__":
    sys.exit(main())
