"""One streamed chat through LangChain: `python langchain_chat.py BASE_URL MODEL` prints it."""

import json
import sys

from langchain_openai import ChatOpenAI

base_url, model = sys.argv[1:]
chat = ChatOpenAI(base_url=base_url, api_key="EMPTY", model=model, temperature=0, max_tokens=32)
chunks = list(chat.stream([("human", "What is the capital of France?")]))
whole = chunks[0]
for chunk in chunks[1:]:
    whole += chunk
json.dump(
    {
        "pieces": [chunk.content for chunk in chunks],
        "whole": whole.content,
        "finish_reason": whole.response_metadata["finish_reason"],
    },
    sys.stdout,
)
