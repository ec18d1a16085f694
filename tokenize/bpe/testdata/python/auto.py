"""AutoTokenizer behind a pipe, for the tests of package bpe.

Each input line is an object {"files": {name: text}, "texts": [text]}: the files of a model's folder
and the texts to encode. The answer has the version of transformers, and the ids and the class, or
an error if AutoTokenizer cannot load the folder.
"""

import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RUST_BACKTRACE"] = "0"

out = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # output of the libraries is not an answer

import transformers  # noqa: E402: reads the environment
from transformers import AutoTokenizer  # noqa: E402

TEMPLATE = "{{ messages[0]['content'] }}"
for line in sys.stdin:
    request = json.loads(line)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in request["files"].items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
            if not tokenizer.is_fast:
                raise TypeError("not a fast tokenizer: " + type(tokenizer).__name__)
            ids = []
            for text in request["texts"]:
                got = tokenizer.apply_chat_template(
                    [{"role": "user", "content": text}], chat_template=TEMPLATE, tokenize=True, add_generation_prompt=True, return_dict=False
                )
                ids.append(list(got))
            answer = {"ids": ids, "class": type(tokenizer).__name__}
        except BaseException as error:  # a panic of the engine too
            if isinstance(error, KeyboardInterrupt):
                raise
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(dict(answer, version=transformers.__version__)), file=out, flush=True)
