"""Settings that take a cached prefix with them although its text stays the same, told by the ids.

Which part of a prefix a setting takes with it, the rules of the cache say. The first id of that part is combined with
what the settings say, so that two prompts with other settings part there, for every cache and at no other length; that
of a request that leaves them out stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from prefold.analysis.encoding.parts import Part
from prefold.core.tokens import WIDTH
from prefold.prompts.divergence.settings import meaning
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Section
from prefold.providers.rules import CacheRules, providers

_SCOPE = ("model", "modelId", "cache_salt")
"""Settings that keep requests apart as a whole."""


def invalidating(rules: CacheRules) -> dict[str, Section]:
    """The settings of a cache, dotted, with the first part of the prefix that each takes with it.

    Without those that lead a request to another place instead, or into another scope.
    """
    apart = (*_SCOPE, rules.routing_key)
    return {name: Section(section) for name, section in rules.invalidation.items() if name not in apart}


@functools.cache
def setting_fields() -> tuple[str, ...]:
    """The fields at the top of a body that may hold such settings, of any provider."""
    names = (name for each in providers() for rules in each.families for name in invalidating(rules))
    return tuple(dict.fromkeys(name.partition(".")[0] for name in names))


def with_settings(run: bytes, part: Part, parameters: Mapping[str, Any], rules: CacheRules) -> bytes:
    """The run of a prompt with what its settings say.

    Args:
        run: its packed ids.
        part: where its sections begin.
        parameters: the settings that it has.
        rules: of the cache that it goes to.
    """
    starts = {Section.TOOLS: 0, Section.SYSTEM: part.tool_units, Section.MESSAGES: part.system_units}
    for name, section in invalidating(rules).items():
        said = meaning(name, Path(tuple(name.split("."))).find(parameters))
        at = starts[section] * WIDTH
        if said and at < len(run):
            first = int.from_bytes(run[at : at + WIDTH], "little") ^ crc32(f"{name}={said}".encode())
            run = run[:at] + first.to_bytes(WIDTH, "little") + run[at + WIDTH :]
    return run
