"""For every test: our own logging, threads that leave each other's cores alone, quick routes, and
properties that do not depend on how quick the machine is."""

from typing import Any

from hypothesis import HealthCheck, settings
from quart.routing import QuartRule

from trioserve.device.threads import prepare_threads
from trioserve.logs import configure_logging

configure_logging("warning")
# As the server does, and before anything imports torch: OpenMP's own choice is to spin.
prepare_threads()

# On top of hypothesis' own choice, which draws the same examples every time where CI is set.
settings.register_profile(
    "any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_compile_builder = QuartRule._compile_builder


def _compile_builder_when_asked(_rule: QuartRule, append_unknown: bool = True) -> Any:
    def build(rule: QuartRule, **values: Any) -> Any:
        return _compile_builder(rule, append_unknown)(rule, **values)

    return build


# Every route compiles two functions that build its address. Nobody here asks for one, tests make
# thousands of apps, and that was a quarter of their time.
QuartRule._compile_builder = _compile_builder_when_asked
