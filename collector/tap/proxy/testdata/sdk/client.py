"""Make the calls of a JSON file with the official SDKs, and print what the SDKs return.

Usage: client.py BASE_URL KEY CALLS

CALLS is a list of objects:
    name      printed with the result
    api       "responses" or "messages"; chat completions by default
    base, key instead of the arguments BASE_URL and KEY
    body      the arguments of create, without the input or messages of a conversation
    turns     a list with the input or messages of the user for each turn of a conversation. Before the
              next turn, the client adds the answer as the SDK has it, and a result for each tool call
    result    the text of these results
    helper    if true, use the SDK's streaming helper: it assembles the events itself
    retries   the number of retries of the SDK (default 0)

Prints one line of canonical JSON for each call: its name, the received objects in order, and the
error that ended the call. A conversation has only the whole answers, one for each turn. client.mjs
prints the same kind of lines. Prints the names of the models last.
"""

import functools
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
    if hasattr(e, "status_code"):
        wait = e.response.headers.get("retry-after")
        return {"class": type(e).__name__, "status": e.status_code, "body": e.body, "retry_after": wait}
    return {"class": type(e).__name__, "message": str(e), "body": getattr(e, "body", None)}


@functools.cache
def client_of(api, base, key, retries):
    if api == "messages":
        import anthropic

        return anthropic.Anthropic(base_url=base.removesuffix("/v1"), api_key=key, timeout=30, max_retries=retries)
    return openai.OpenAI(base_url=base, api_key=key, timeout=30, max_retries=retries)


def make(client, call, objects):
    """Append what the call returns to objects."""
    api = call.get("api")
    resource = {"responses": lambda: client.responses, "messages": lambda: client.messages}.get(api, lambda: client.chat.completions)()
    if "turns" in call:
        converse(resource, call, objects)
        return
    body = call["body"]
    if call.get("helper"):
        known = {k: v for k, v in body.items() if k != "stream"}
        with resource.stream(**known) as events:
            for event in events:
                objects.append(event.type)
            objects.append(plain(events.get_final_completion()))
    elif body.get("stream"):
        with resource.create(**body) as chunks:
            for chunk in chunks:
                objects.append(plain(chunk))
    else:
        objects.append(plain(resource.create(**body)))


def converse(resource, call, objects):
    history = []
    for turn in call["turns"]:
        history += turn
        body = {**call["body"], "messages" if call["api"] == "messages" else "input": history}
        if not call.get("helper"):
            answer = resource.create(**body)
        elif call["api"] == "messages":
            with resource.stream(**body) as events:
                answer = events.get_final_message()
        else:
            with resource.stream(**body) as events:
                last = list(events)[-1]
            answer = last.response  # get_final_response refuses an incomplete response
        objects.append(plain(answer))
        history += following(call, answer)


def following(call, answer):
    """Return what the client adds to the conversation after an answer."""
    if call["api"] == "messages":
        added = [{"role": "assistant", "content": answer.content}]
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": call["result"]} for b in answer.content if b.type == "tool_use"]
        return added + ([{"role": "user", "content": results}] if results else [])
    outputs = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
    return answer.output + [{"type": outputs[o.type], "call_id": o.call_id, "output": call["result"]} for o in answer.output if o.type in outputs]


def main():
    base, key, calls = sys.argv[1:]
    with open(calls, encoding="utf-8") as f:
        calls = json.load(f)
    for call in calls:
        objects, error = [], None
        try:
            client = client_of(call.get("api"), call.get("base", base), call.get("key", key), call.get("retries", 0))
            make(client, call, objects)
        except Exception as e:  # the test compares every error
            error = described(e)
        emit(call["name"], objects, error)
    emit("models", [m.id for m in client_of(None, base, key, 0).models.list()], None)


main()
