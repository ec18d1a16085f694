"""Times the reference engine, for the tests of package bpe.

usage: speed.py tokenizer.json texts.json

texts.json is a JSON list of texts. A line "INDEX CALLS cold|warm" on standard input is answered
with the CPU time, in seconds, of the fastest of CALLS calls, each of one text, on one thread.
Before a cold call the cache of words is cleared.
"""
import json
import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402: reads the environment

want = "0.23.2"
if tokenizers.__version__ != want:
    sys.exit("tokenizers %s is installed, want %s" % (tokenizers.__version__, want))
tok = tokenizers.Tokenizer.from_file(sys.argv[1])
tok.no_truncation()
tok.no_padding()
texts = json.load(open(sys.argv[2], encoding="utf-8"))

for line in sys.stdin:
    index, calls, cache = line.split()
    text, best = texts[int(index)], 1e9
    if cache == "warm":
        tok.encode(text, add_special_tokens=False)
    for _ in range(int(calls)):
        if cache == "cold":
            tok.model._clear_cache()
        start = time.thread_time()
        tok.encode(text, add_special_tokens=False)
        best = min(best, time.thread_time() - start)
    print(best, flush=True)
