"""An extraction through `instructor`: `python instructor_extract.py BASE_URL MODEL` prints it."""

import json
import sys
from typing import Literal

import instructor
import openai
import pydantic

base_url, model = sys.argv[1:]


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=130)
    job: Literal["doctor", "teacher", "other"]


client = instructor.from_openai(
    openai.OpenAI(base_url=base_url, api_key="EMPTY"), mode=instructor.Mode.JSON_SCHEMA
)
person, raw = client.chat.completions.create_with_completion(
    model=model,
    messages=[{"role": "user", "content": "Ann is a doctor of 41 years."}],
    response_model=Person,
    max_retries=0,
    seed=1,
)
json.dump({"person": person.model_dump(), "raw": raw.choices[0].message.content}, sys.stdout)
