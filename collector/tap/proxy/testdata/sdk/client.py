"""Make the calls of a JSON file with the official OpenAI SDK, and print what the SDK returns.

Usage: client.py BASE_URL KEY CALLS

CALLS is a list of objects:
    name      printed with the result
    body      the arguments of chat.completions.create
    helper    if true, use the SDK's streaming helper: it assembles the chunks itself
    retries   the number of retries of the SDK (default 0)

Prints one line of canonical JSON for each call: its name, the received objects in order, and the
error that ended the call. client.mjs prints the same kind of lines. Prints the names of the models last.
"""

import json
import sys

import openai


def emit(name, objects, error):
    line = {"name": name, "objects": objects, "error": error}
    print(json.dumps(line, sort_keys=True, ensure_ascii=True, separators=(",", ":")), flush=True)


def plain(model):
    # Only the members that the server sent, including members that the SDK does not know.
    return model.to_dict(mode="json", exclude_unset=True)


def described(e):
    if isinstance(e, openai.APIStatusError):
        wait = e.response.headers.get("retry-after")
        return {"class": type(e).__name__, "status": e.status_code, "body": e.body, "retry_after": wait}
    return {"class": type(e).__name__, "message": str(e)}


def make(client, call, objects):
    """Append what the call returns to objects."""
    client = client.with_options(max_retries=call.get("retries", 0))
    body = call["body"]
    if call.get("helper"):
        known = {k: v for k, v in body.items() if k != "stream"}
        with client.chat.completions.stream(**known) as events:
            for event in events:
                objects.append(event.type)
            objects.append(plain(events.get_final_completion()))
    elif body.get("stream"):
        with client.chat.completions.create(**body) as chunks:
            for chunk in chunks:
                objects.append(plain(chunk))
    else:
        objects.append(plain(client.chat.completions.create(**body)))


def main():
    base, key, calls = sys.argv[1:]
    client = openai.OpenAI(base_url=base, api_key=key, timeout=30)
    with open(calls, encoding="utf-8") as f:
        calls = json.load(f)
    for call in calls:
        objects, error = [], None
        try:
            make(client, call, objects)
        except Exception as e:  # the test compares every error
            error = described(e)
        emit(call["name"], objects, error)
    emit("models", [m.id for m in client.models.list()], None)


main()
