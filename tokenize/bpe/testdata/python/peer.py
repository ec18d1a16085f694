"""The reference engine behind a pipe, for the tests of package bpe.

usage: peer.py ask     tokenizer.json
       peer.py bench   tokenizer.json documents.json
       peer.py cases   anything

ask reads one JSON list per line. ["plain", text] is answered with a line of ids, ["post", text]
with those of the post-processor, and ["none", text] with the ids of the file without added
tokens. ["decode", ids] is answered with two JSON strings: special tokens skipped, and printed.
bench prints the CPU seconds for one pass
over a JSON list of documents, the best of three, in batches on one thread. cases reads one
object {"file", "texts", "ids"} per line: a whole tokenizer.json, texts to encode and ids to
decode. It answers {"error"}, or {"ids", "post", "none", "texts"} with null for
anything that the engine cannot answer. post are the ids with the post-processor, none the ids
of the file without added tokens.
"""
import json
import os
import signal
import sys
import time

what, path = sys.argv[1], sys.argv[2]
if what == "cases":
    os.environ["RUST_BACKTRACE"] = "0"  # a panic is an answer like any other
if what == "bench":
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402: reads the environment

want = "0.23.2"
if tokenizers.__version__ != want:
    sys.exit("tokenizers %s is installed, the vectors are of %s" % (tokenizers.__version__, want))
if what != "cases":
    tok = tokenizers.Tokenizer.from_file(path)
    tok.no_truncation()
    tok.no_padding()


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
    bare = None  # the tokenizer without added tokens
    for kind, batch in batches(sys.stdin.buffer):
        if kind == "decode":
            skipped = tok.decode_batch(batch, skip_special_tokens=True)
            printed = tok.decode_batch(batch, skip_special_tokens=False)
            answers = zip(skipped, printed)
        else:
            if kind == "none" and bare is None:
                bare = tokenizers.Tokenizer.from_str(json.dumps(dict(json.load(open(path, encoding="utf-8")), added_tokens=[])))
                bare.no_truncation()
                bare.no_padding()
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
            tok = tokenizers.Tokenizer.from_str(json.dumps(case["file"]))
        except BaseException as e:
            out.write(json.dumps({"error": str(e) or "?"}) + "\n")
            continue
        bare = tokenizers.Tokenizer.from_str(json.dumps(dict(case["file"], added_tokens=[])))
        answer = {"texts": []}
        for key in ("ids", "post", "none"):
            engine = bare if key == "none" else tok
            answer[key] = [attempt(lambda: engine.encode(text, add_special_tokens=key == "post").ids) for text in case["texts"]]
        for ids in case["ids"]:
            answer["texts"].append(attempt(lambda: [tok.decode(ids, skip_special_tokens=s) for s in (True, False)]))
        out.write(json.dumps(answer) + "\n")
elif what == "bench":
    docs = json.load(open(sys.argv[3], encoding="utf-8"))
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        tok.encode_batch(docs, add_special_tokens=False)
        best = min(best, time.process_time() - start)
    print(best)
else:
    sys.exit("unknown command " + what)
