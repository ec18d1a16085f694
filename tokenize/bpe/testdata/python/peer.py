"""The reference engine behind a pipe, for the tests of package bpe.

usage: peer.py encode  tokenizer.json [post-process] [no-added]
       peer.py decode  tokenizer.json
       peer.py bench   tokenizer.json documents.json
       peer.py cases   anything

encode reads one JSON string per line and answers each with a line of ids; no-added removes the
added tokens from the file first. decode reads one JSON list of ids per line and answers with
two JSON strings: special tokens skipped, and printed. bench prints the CPU seconds for one pass
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
    if "no-added" in sys.argv:
        tok = tokenizers.Tokenizer.from_str(json.dumps(dict(json.load(open(path, encoding="utf-8")), added_tokens=[])))
    tok.no_truncation()
    tok.no_padding()


def batches(lines, size=2000):
    batch = []
    for line in lines:
        batch.append(json.loads(line))
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


out = sys.stdout
if what == "encode":
    post = "post-process" in sys.argv
    for batch in batches(sys.stdin.buffer):
        for e in tok.encode_batch(batch, add_special_tokens=post):
            out.write(json.dumps(e.ids, separators=(",", ":")) + "\n")
elif what == "decode":
    for batch in batches(sys.stdin.buffer):
        skipped = tok.decode_batch(batch, skip_special_tokens=True)
        printed = tok.decode_batch(batch, skip_special_tokens=False)
        for pair in zip(skipped, printed):
            out.write(json.dumps(pair) + "\n")
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
