"""One Redis server for all tests of this folder that do not stop it."""

from collections.abc import Iterator

import pytest

from .support import running_redis


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as (url, _):
        yield url
