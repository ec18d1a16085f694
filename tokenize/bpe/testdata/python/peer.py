"""The reference engine behind a pipe, for the tests of package bpe.

usage: peer.py ask     tokenizer.json
       peer.py cases   anything

ask reads one JSON list per line. ["plain", text] is answered with a line of ids, ["post", text]
with those of the post-processor, and ["none", text] with the ids of the file without added
tokens. ["decode", ids] is answered with two JSON strings: special tokens skipped, and printed.
cases reads one object {"file", "texts", "ids"} per line: a whole tokenizer.json in base64, texts to
encode and ids to decode. It answers {"error"}, or {"ids", "back", "post", "none", "texts"} with null
for anything that the engine cannot answer. back are the decoded ids, post the ids with the
post-processor, none the ids of the file without added tokens.
"""
import base64
import json
import os
import signal
import sys

what, path = sys.argv[1], sys.argv[2]
if what == "cases":
    os.environ["RUST_BACKTRACE"] = "0"  # a panic is an answer like any other

import tokenizers  # noqa: E402: reads the environment

want = "0.23.2"
if tokenizers.__version__ != want:
    sys.exit("tokenizers %s is installed, the vectors are of %s" % (tokenizers.__version__, want))
if what != "cases":
    tok = tokenizers.Tokenizer.from_file(path)
    tok.no_truncation()
    tok.no_padding()


def without_added(tok):
    """The same pipeline without added tokens. It shares the parts, which take long to compile."""
    bare = tokenizers.Tokenizer(tok.model)
    for name in ("normalizer", "pre_tokenizer"):
        if getattr(tok, name) is not None:
            setattr(bare, name, getattr(tok, name))
    return bare


def batches(lines, size=2000):
    kind, batch = None, []
    for line in lines:
        now, value = json.loads(line)
        if now != kind or len(batch) == size:
            if batch:
                yield kind, batch
            kind, batch = now, []
        batch.append(value)
    if batch:
        yield kind, batch


out = sys.stdout
if what == "ask":
    bare = without_added(tok)
    for kind, batch in batches(sys.stdin.buffer):
        if kind == "decode":
            skipped = tok.decode_batch(batch, skip_special_tokens=True)
            printed = tok.decode_batch(batch, skip_special_tokens=False)
            answers = zip(skipped, printed)
        else:
            engine = bare if kind == "none" else tok
            answers = [e.ids for e in engine.encode_batch(batch, add_special_tokens=kind == "post")]
        for answer in answers:
            out.write(json.dumps(answer, separators=(",", ":")) + "\n")
elif what == "cases":

    def attempt(f):
        try:
            return f()
        except BaseException as e:  # a panic of the engine is not an Exception
            if isinstance(e, KeyboardInterrupt):
                raise
            return None

    for line in sys.stdin.buffer:
        out.flush()
        signal.alarm(60)  # the engine can loop: then it ends here, and the case is known
        case = json.loads(line)
        try:
            tok = tokenizers.Tokenizer.from_str(base64.b64decode(case["file"]).decode())
        except BaseException as e:
            out.write(json.dumps({"error": str(e) or "?"}) + "\n")
            continue
        bare = without_added(tok)
        answer = {"texts": []}
        for key in ("ids", "post", "none"):
            engine = bare if key == "none" else tok
            answer[key] = [attempt(lambda: engine.encode(text, add_special_tokens=key == "post").ids) for text in case["texts"]]
        answer["back"] = [attempt(lambda: tok.decode(ids, skip_special_tokens=False)) for ids in answer["ids"]]
        for ids in case["ids"]:
            answer["texts"].append(attempt(lambda: [tok.decode(ids, skip_special_tokens=s) for s in (True, False)]))
        out.write(json.dumps(answer) + "\n")
else:
    sys.exit("unknown command " + what)
