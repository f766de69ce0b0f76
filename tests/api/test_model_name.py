"""The model that a request names."""

import pytest

from tests.api.answers import check_error
from tests.api.kit import ENDPOINTS, StartApi


@pytest.mark.row("S-C-001", "S-C-045", "S-H-001")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_the_reply_repeats_the_model_as_sent(start: StartApi, path: str) -> None:
    bench = await start("a", served_model_name=("small", "org/large"))
    for model in ("small", "org/large", "org/fake", "  small "):
        answer = await bench.post(path, model=model)
        assert answer.json()["model"] == model


@pytest.mark.row("S-E-003")
@pytest.mark.case(52)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "model",
    ["no-such", "SMALL", "small:", "small:adapter", "/etc/passwd", "small\x00", "a" * 2**20],
)
async def test_an_unknown_model_is_404_whatever_it_is(
    start: StartApi, path: str, model: str
) -> None:
    """Case 52: any model name accepted."""
    bench = await start("a", served_model_name=("small",))
    answer = await bench.post(path, model=model)
    shown = {"small\x00": "small\\x00"}.get(model, model)
    shown = shown if len(shown) <= 64 else shown[:64] + "…"
    message = f"The model '{shown}' does not exist"
    check_error(answer, 404, message, code="model_not_found", param="model")


@pytest.mark.row("S-C-001", "S-H-001")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("model", [None, "", "  "])
async def test_a_model_is_required(start: StartApi, path: str, model: str | None) -> None:
    bench = await start("a")
    answer = await bench.post(path, model=model)
    code = "missing_required_parameter"
    check_error(answer, 400, "Invalid request: model is required", code=code, param="model")
