"""The comparison is of like with like, and says so."""

import json

import pytest
from click.testing import CliRunner

from bench.tree_overhead import Work, main, play
from trioserve.core import SHARED

WORK = Work(clients=3, requests=7, prompt_tokens=40, output_tokens=20, pool_tokens=1024)


def test_both_ways_play_the_same_steps() -> None:
    # A tree that found something in prompts that share nothing would save steps.
    assert play(WORK, None)[1] == play(WORK, SHARED)[1] > 7 * 20 / 3


def test_one_line_tells_both_and_what_was_played() -> None:
    options = "--clients 2 --requests 3 --prompt-tokens 20 --output-tokens 9 --rounds 1".split()
    result = CliRunner().invoke(main, options)
    assert result.exit_code == 0, result.output
    line = json.loads(result.output)
    assert line["shape"]["requests"] == 3
    extra_us = line["with_us"] - line["without_us"]
    assert line["extra_us"] == pytest.approx(extra_us, abs=0.11), "rounded, each by itself"
