"""Settings of the whole suite.

Property tests draw the same examples on every run, so that a failure is a fault and never bad luck. To look for new
ones, run them with `--hypothesis-profile explore`.
"""

import platformdirs
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile(
    "explore", deadline=None, max_examples=1_000, stateful_step_count=80, suppress_health_check=list(HealthCheck)
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def default_checkpoint():
    """The default model in the user's own cache folder: fetched and converted on first use, like a user's."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from prefold.engine.checkpoint import resolve  # noqa: PLC0415 - core is tested without the engine's packages

    return resolve(None, cache_dir=platformdirs.user_cache_path("prefold"), progress=lambda *_: None)
