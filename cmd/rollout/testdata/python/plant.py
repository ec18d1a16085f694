"""Plant errors in the rows of a run, and print which of them trained.py finds.

Usage: plant.py RUN LOG

RUN and LOG are as in trained.py. The run is not changed. Prints one JSON object: for each error, the
names of the lists in which trained.py reports something.
"""

import copy
import json
import sys

import trained


def first(values):
    return next(iter(values))


def row_of(rows, call):
    """Return the row that trains a call."""
    return first(r for r in rows if r["sample_key"] == call["rows"][0]["sample"] and r["segment_index"] == call["rows"][0]["segment"])


def add(rows, calls, call, n):
    """Train the first n tokens of a call in a row of its own, in the main chain of its sample."""
    beside = row_of(rows, first(c for c in calls.calls if c["rows"] and c["seed"] == call["seed"]))
    prompt = call["prompt_ids"]
    new = {
        "segment_index": 1 + max(r["segment_index"] for r in rows),
        "input_ids": prompt + call["output_ids"][:n],
        "loss_mask": [0] * len(prompt) + [1] * n,
        "logprobs": [0.0] * len(prompt) + call["logprobs"][:n],
    }
    rows.append(beside | new)


def superseded(rows, calls):
    call = first(c for c in calls.calls if c["fault"] == "cut" and c["sent"] and calls.expect(c) == "cut")
    add(rows, calls, call, 1)


def auxiliary(rows, calls):
    call = first(c for c in calls.calls if c["script"] and calls.expect(c) == "auxiliary")
    add(rows, calls, call, len(call["ids"]))


def context(rows, calls):
    rows[0]["input_ids"][rows[0]["loss_mask"].index(1) - 1] += 1


def chain(rows, calls):
    sub = first(r for r in rows if r["chain_kind"] == "subagent")
    main = first(r for r in rows if r["sample_key"] == sub["sample_key"] and r["chain"] == 0)
    sub["chain"], main["chain"] = main["chain"], sub["chain"]


def kind(rows, calls):
    first(r for r in rows if r["chain_kind"] == "subagent")["chain_kind"] = "main"


def parent(rows, calls):
    sub = first(r for r in rows if r["parent_step"] is not None)
    main = [r for r in rows if r["sample_key"] == sub["sample_key"] and r["chain"] == 0]
    sub["parent_step"] = max(int(step) for r in main for step in r["step_ids"])


def order(rows, calls):
    for r in rows:
        r["segment_index"] = 1000 - r["segment_index"]


def missing(rows, calls):
    del rows[0]


def twice(rows, calls):
    rows.append(dict(rows[0]))


def part(rows, calls):
    at, end = list(trained.spans(rows[0]["loss_mask"]))[-1]
    rows[0]["loss_mask"][end - 1] = 0


def sample(rows, calls):
    main = first(r for r in rows if r["chain_kind"] == "main")
    main["sample_key"] = first(r for r in rows if r["sample_key"] != main["sample_key"])["sample_key"]


def logprob(rows, calls):
    rows[0]["logprobs"][rows[0]["loss_mask"].index(1)] -= 0.25


def right(rows, calls):
    pass


def main():
    rows, report = trained.read(sys.argv[1]), {}
    for plant in (right, superseded, auxiliary, context, chain, kind, parent, order, missing, twice, part, sample, logprob):
        calls, wrong = trained.Calls([sys.argv[2]]), copy.deepcopy(rows)
        trained.compare(rows, calls)  # finds the row of each call
        plant(wrong, calls)
        found = trained.compare(wrong, trained.Calls([sys.argv[2]]))
        report[plant.__name__] = [k for k in trained.FOUND if found[k]]
    json.dump(report, sys.stdout)
    print()


main()
