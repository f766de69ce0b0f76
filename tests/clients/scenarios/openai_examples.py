"""The documented examples, as they stand there but for the served name and the base URL.

The answers are printed whole; an example that raised gives {"raised": name, …} in its place.
"""

import asyncio
import traceback
from typing import Any

import openai
from client import done, items, main

EMBEDDING_MODEL = "embedding/name"


async def completion(client: Any, model: str) -> Any:
    return await done(
        client.completions.create(
            model=model, prompt="Once upon a time", max_tokens=128, temperature=0.8
        )
    )


async def shorter_completion(client: Any, model: str) -> Any:
    return await done(
        client.completions.create(
            model=model, prompt="Once upon a time", max_tokens=100, temperature=0.8
        )
    )


async def fibonacci(client: Any, model: str) -> Any:
    return await done(
        client.completions.create(
            model=model,
            prompt="Write a function to compute fibonacci numbers",
            max_tokens=256,
            temperature=0.7,
        )
    )


async def streamed_completion(client: Any, model: str) -> Any:
    return await items(
        client.completions.create(
            model=model, prompt="Tell me a story about", max_tokens=512, stream=True
        )
    )


async def batch(client: Any, model: str) -> Any:
    return await done(
        client.completions.create(
            model=model,
            prompt=[
                "Translate to French: Hello",
                "Translate to Spanish: Hello",
                "Translate to German: Hello",
            ],
            max_tokens=10,
        )
    )


async def chat_with_a_dummy_key(client: Any, model: str) -> Any:
    client = client.with_options(api_key="dummy")
    return await done(
        client.chat.completions.create(
            model=model,
            messages=[
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": "Explain quantum computing in simple terms."},
            ],
            max_tokens=150,
            temperature=0.7,
        )
    )


async def chat(client: Any, model: str) -> Any:
    return await done(
        client.chat.completions.create(
            model=model,
            messages=[
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": "What is the capital of France?"},
            ],
            temperature=0.8,
            max_tokens=128,
        )
    )


async def streamed_chat(client: Any, model: str) -> Any:
    return await items(
        client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Count to 10."}],
            max_tokens=50,
            stream=True,
        )
    )


async def streamed_chat_without_a_limit(client: Any, model: str) -> Any:
    return await items(
        client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Tell me a story"}],
            stream=True,
            temperature=0.8,
        )
    )


async def top_k_in_the_extra_body(client: Any, model: str) -> Any:
    return await done(
        client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Generate creative text."}],
            max_tokens=200,
            temperature=0.9,
            top_p=0.95,
            extra_body={"top_k": 50},
        )
    )


async def top_k_as_a_keyword(client: Any, model: str) -> Any:
    return await done(
        client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Generate creative text."}],
            max_tokens=200,
            temperature=0.9,
            top_p=0.95,
            top_k=50,
        )
    )


async def cached_tokens_in_the_extra_body(client: Any, model: str) -> Any:
    """Sent twice; the question is longer than three cache pages."""
    question = "Which of these rivers flows through most countries, and through which of them? "
    rivers = "Danube, Rhine, Elbe, Vistula, Loire, Rhone, Seine, Tagus, Douro, Po, Oder, Dnieper."
    return [
        await done(
            client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": question + rivers}],
                max_tokens=8,
                extra_body={"return_cached_tokens_details": True},
            )
        )
        for _ in range(2)
    ]


async def embeddings(client: Any, _model: str) -> Any:
    return await done(
        client.embeddings.create(model=EMBEDDING_MODEL, input=["Hello, world!", "SGLang is fast"])
    )


async def models(client: Any, _model: str) -> Any:
    return (await done(client.models.list())).data


async def max_model_len(client: Any, model: str) -> Any:
    model_card = await done(client.models.retrieve(model))
    return model_card.max_model_len


async def negative_temperature(client: Any, model: str) -> Any:
    return await done(client.completions.create(model=model, prompt="Hello", temperature=-1))


async def unknown_model(client: Any, model: str) -> Any:
    return await done(client.completions.create(model=model + "x", prompt="Hello"))


EXAMPLES = [
    completion,
    shorter_completion,
    fibonacci,
    streamed_completion,
    batch,
    chat_with_a_dummy_key,
    chat,
    streamed_chat,
    streamed_chat_without_a_limit,
    top_k_in_the_extra_body,
    top_k_as_a_keyword,
    cached_tokens_in_the_extra_body,
    embeddings,
    models,
    max_model_len,
    negative_temperature,
    unknown_model,
]


def plain(answer: Any) -> Any:
    if isinstance(answer, list):
        return [plain(item) for item in answer]
    # What was not set stays away, so that an extra member would show.
    return answer.model_dump(exclude_unset=True) if hasattr(answer, "model_dump") else answer


async def attempt(example: Any, client: Any, model: str) -> Any:
    try:
        return plain(await example(client, model))
    except Exception as error:
        return {
            "raised": type(error).__name__,
            "code": getattr(error, "code", None),
            "param": getattr(error, "param", None),
            "traceback": traceback.format_exc(),
        }


async def run_all(client: Any, model: str) -> dict[str, Any]:
    """All at once, as one batch of the server: the sync client is used from threads."""
    attempts = [attempt(example, client, model) for example in EXAMPLES]
    if isinstance(client, openai.OpenAI):
        attempts = [asyncio.to_thread(asyncio.run, attempt) for attempt in attempts]
    answers = await asyncio.gather(*attempts)
    return {example.__name__: answer for example, answer in zip(EXAMPLES, answers, strict=True)}


if __name__ == "__main__":
    main(run_all)
