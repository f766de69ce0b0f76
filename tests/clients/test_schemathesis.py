"""`schemathesis` reads our own OpenAPI document and looks for requests that break its promises."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.environments import Environment
from tests.clients.kit import Client, quick_server, read_metric, wait_idle, wait_serving
from trioserve.testing.server_process import ServerProcess

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
]
MIN_REQUESTS = 2_000
MAX_EXAMPLES = 16
"""Random requests for each operation, beside one for each border that the document names."""
SEED = 20_26
MAX_S = 420
"""Several times what two free cores need."""


@pytest.fixture
def fake_server() -> Iterator[ServerProcess]:
    with quick_server(log_level="warning", max_prompts_per_request="8") as process:
        wait_serving(process)
        yield process


@pytest.mark.row("S-N-001", "S-N-002", "S-E-001", "S-E-004", "S-E-005", "S-E-007")
@pytest.mark.timeout(MAX_S + 30)
def test_thousands_of_generated_requests_keep_to_the_document(
    fake_server: ServerProcess, environment: Callable[[str], Environment], tmp_path: Path
) -> None:
    url = f"http://{fake_server.host}:{fake_server.port}/openapi.json"
    report = tmp_path / "report.json"
    tool = environment("schemathesis").python, "-m", "schemathesis.cli", "run", url
    flags = {
        "checks": ",".join(CHECKS),
        "phases": "examples,coverage,fuzzing",
        "mode": "all",
        "max-examples": str(MAX_EXAMPLES),
        "seed": str(SEED),
        "generation-database": "none",
        "request-timeout": "60",
        "report": "json",
        "report-json-path": str(report),
    }
    switches = "--continue-on-failure", "--no-color"
    with Client(*tool, *(f"--{k}={v}" for k, v in flags.items()), *switches, cwd=tmp_path) as run:
        # It ends with 1 for what it found, with the requests that show it in its output.
        run.output(timeout_s=MAX_S)
    got = json.loads(report.read_text())
    assert (got["stop_reason"], got["errors"], got["failures"]) == ("completed", [], [])
    assert got["operations"]["tested"] == got["operations"]["total"] >= 10
    assert got["phases"]["fuzzing"]["status"] == "success"
    # Counted by the server, which does not know what it was asked for.
    assert read_metric(fake_server, "requests_total") >= MIN_REQUESTS
    wait_idle(fake_server)
    assert fake_server.exit_code is None, fake_server.output
