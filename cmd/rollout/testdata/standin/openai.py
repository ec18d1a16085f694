"""A stand-in for the package openai, for machines without it: chat completions that are not streamed."""

import json
import os
import urllib.request
from types import SimpleNamespace


class OpenAI:
    def __init__(self, base_url=None, api_key=None):
        self._url = (base_url or os.environ["OPENAI_BASE_URL"]).rstrip("/")
        self._key = api_key or os.environ["OPENAI_API_KEY"]
        self.chat = SimpleNamespace(completions=self)

    def create(self, **body):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        request = urllib.request.Request(f"{self._url}/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer, object_hook=lambda members: SimpleNamespace(**members))
