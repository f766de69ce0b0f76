"""Structured output as the documentation has it, and `.parse()` with classes of pydantic.

`python structured.py sync|async BASE_URL MODEL` prints what came of each.
"""

from typing import Any, Literal

import pydantic
from client import done, main

USER_INFO = {
    "type": "json_schema",
    "json_schema": {
        "name": "user_info",
        "schema": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "age": {"type": "integer"},
                "email": {"type": "string"},
            },
            "required": ["name", "age"],
        },
    },
}


class Engine(pydantic.BaseModel):
    kind: Literal["steam", "diesel", "electric"]
    power_kw: int = pydantic.Field(ge=1, le=9999)


class Train(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=24)
    wheels: Literal[4, 6, 8]
    engine: Engine | None
    is_fast: bool


def keyword_error(client: Any, model: str) -> str:
    """`response_format` is no keyword of completions: the client itself refuses it."""
    try:
        client.completions.create(
            model=model, prompt="Return JSON:", response_format={"type": "json_object"}
        )
    except TypeError as error:
        return type(error).__name__
    return "none"


async def scenario(client: Any, model: str) -> Any:
    json_object = await done(
        client.completions.create(
            model=model,
            prompt="Generate a JSON object with name and age:",
            max_tokens=128,
            extra_body={"response_format": {"type": "json_object"}},
        )
    )
    user_info = await done(
        client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Extract: John is 30 years old."}],
            response_format=USER_INFO,
            seed=1,
        )
    )
    phone = await done(
        client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Generate a phone number"}],
            extra_body={"regex": r"\d{3}-\d{3}-\d{4}"},
        )
    )
    parse = getattr(client, "beta", client).chat.completions.parse
    parsed = await done(
        parse(
            model=model,
            messages=[{"role": "user", "content": "Describe a train."}],
            response_format=Train,
            n=2,
            seed=2,
        )
    )
    return {
        "keyword": keyword_error(client, model),
        "json_object": json_object.choices[0].model_dump(),
        "user_info": user_info.choices[0].model_dump(),
        "phone": phone.choices[0].model_dump(),
        "trains": [choice.message.parsed.model_dump() for choice in parsed.choices],
    }


main(scenario)
