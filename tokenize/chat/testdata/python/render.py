"""Renders chat templates with Jinja2 as Hugging Face sets it up.

Reads JSON lines. The first is an object of templates by name. Each further line is {"name": of
a template, or "src": a template itself, "vars": {...}}. The answer is a line {"out": text},
{"err": what was raised}, or {"skip": why} if the template hit a limit: time, memory or Python's
own stack.

Usage: python render.py < requests > answers
"""

import datetime
import json
import resource
import signal
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

if jinja2.__version__ != "3.1.6":
    sys.exit("render.py: jinja2 3.1.6 is needed, this is " + jinja2.__version__)

SECONDS = 3  # CPU time per template
BYTES = 2 << 30  # memory for all templates
NOW = datetime.datetime(2026, 7, 4, 12, 30, 0)


class Generation(Extension):
    """The generation tag: its body is called as a macro, and printed."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_call")
        return nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    def _call(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


class OutOfTime(BaseException):
    pass


def out_of_time(*_):
    raise OutOfTime()


def main():
    env = environment()
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGVTALRM, out_of_time)
    sys.stdin.reconfigure(encoding="utf-8", newline="\n")
    lines = iter(sys.stdin)
    sources = json.loads(next(lines))
    compiled = {}
    source = None
    for line in lines:
        try:
            request = json.loads(line)
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            name = request.get("name")
            if name is None:
                if request["src"] != source:
                    source, template = None, env.from_string(request["src"])
                    source = request["src"]
            else:
                if name not in compiled:
                    compiled[name] = env.from_string(sources[name])
                template = compiled[name]
            variables = {
                "bos_token": "<s_bos>",
                "eos_token": "<s_eos>",
                "unk_token": "<unk>",
                "pad_token": "<pad>",
                "tools": None,
                "documents": None,
            }
            variables.update(request["vars"])
            answer = {"out": template.render(**variables)}
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except (OutOfTime, MemoryError, RecursionError) as e:
            answer = {"skip": type(e).__name__}
        except Exception as e:  # whatever it is, an engine must refuse too
            answer = {"err": (type(e).__name__ + ": " + str(e))[:300]}
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
