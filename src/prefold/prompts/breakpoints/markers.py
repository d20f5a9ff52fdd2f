"""Cache markers in a request body: where one may stand, what it looks like, and how a body gets or loses it.

There are three forms. `cache_control` is a field of the marked block (Anthropic, Qwen), `prompt_cache_breakpoint` is
one too (OpenAI from GPT-5.6 on; read in the types of the `openai` package 3.57), and `cachePoint` is an entry of its
own behind the marked block (Bedrock Converse).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from prefold.prompts.dialects import unmarked
from prefold.prompts.edits import text_block
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect, Prompt, Section, Segment
from prefold.providers.rules import CacheRules, Control

_Default = TypeVar("_Default")


class Form(StrEnum):
    """How a marker is written: the name of its field."""

    CACHE_CONTROL = "cache_control"
    CACHE_POINT = "cachePoint"
    BREAKPOINT = "prompt_cache_breakpoint"


_LABELS = {300: "5m", 1800: "30m", 3600: "1h", 43200: "12h", 86400: "24h"}
_VALUES = {
    Form.CACHE_CONTROL: {"type": "ephemeral"},
    Form.CACHE_POINT: {"type": "default"},
    Form.BREAKPOINT: {"mode": "explicit"},
}
_UNMARKABLE = ("thinking", "redacted_thinking")
_BREAKPOINT_TYPES = {
    Dialect.OPENAI: ("text", "image_url", "input_audio", "file"),
    Dialect.RESPONSES: ("input_text", "input_image", "input_file"),
}


def form_for(dialect: Dialect, rules: CacheRules) -> Form | None:
    """The form of markers in a dialect under some rules; None where requests carry none."""
    if rules.control is Control.BREAKPOINT:
        return Form.BREAKPOINT if dialect in _BREAKPOINT_TYPES else None
    if rules.control is not Control.EXPLICIT:
        return None
    if dialect is Dialect.BEDROCK:
        return Form.CACHE_POINT
    return Form.CACHE_CONTROL if dialect in (Dialect.ANTHROPIC, Dialect.OPENAI) else None


def label_of(ttl: int) -> str:
    """A lifetime in seconds as the providers write it, such as `5m`."""
    return _LABELS.get(ttl, f"{ttl}s")


def lifetime_of(marker: Any, default: _Default) -> int | _Default:
    """Seconds that a marker asks for; `default` where it does not say, or says it in an unknown way."""
    label = marker.get("ttl") if isinstance(marker, Mapping) else None
    return next((ttl for ttl, known in _LABELS.items() if known == label), default)


def entries_asked(
    markers: Iterable[tuple[int, Any]],
    segments: int,
    parameters: Mapping[str, Any],
    default: _Default,
    *,
    is_implicit: bool,
) -> Iterator[tuple[int, int | _Default]]:
    """Cache entries that a request asks for: by the segment that each ends with, and the seconds that it is to live.

    Args:
        markers: those on its segments, by position, ascending.
        segments: how many it has.
        parameters: fields at the top of its body: `cache_control` and `prompt_cache_options` are read.
        default: stands for a lifetime that nothing names.
        is_implicit: whether the cache ends an entry with the request unless `prompt_cache_options` say otherwise.
    """
    automatic = parameters.get("cache_control")
    options: Any = parameters.get("prompt_cache_options")
    options = options if isinstance(options, dict) else {}
    last = segments - 1
    has_last = False
    for index, marker in markers:
        yield index, lifetime_of(marker, lifetime_of(options, default))
        has_last = index == last
    if segments and not has_last and (automatic or (is_implicit and options.get("mode") != "explicit")):
        yield last, lifetime_of(automatic or options, default)


def can_carry(segment: Segment, form: Form, dialect: Dialect, rules: CacheRules) -> bool:
    """Whether a marker may stand at the end of a segment."""
    if segment.section.value not in rules.marker_sections or not segment.text.strip():
        return False
    if form is Form.CACHE_POINT:  # an entry of a list
        return isinstance(segment.path.steps[-1], int) and segment.text_path != segment.path / "content"
    if segment.section is Section.TOOLS:
        tool = segment.content
        return dialect is Dialect.ANTHROPIC and isinstance(tool, dict) and not tool.get("defer_loading")
    if dialect is Dialect.RESPONSES and (segment.path.steps[0] == "instructions" or segment.role == "assistant"):
        return False  # instructions are no block, and answers are blocks that take no marker
    return segment.text_path is not None or _is_markable_block(segment, form, dialect)


def _is_markable_block(segment: Segment, form: Form, dialect: Dialect) -> bool:
    steps, block = segment.path.steps, segment.content
    if not isinstance(block, dict) or len(steps) < 2 or steps[-2] not in ("content", "system"):
        return False
    kind = block.get("type")
    return kind in _BREAKPOINT_TYPES[dialect] if form is Form.BREAKPOINT else kind not in _UNMARKABLE


def with_markers(prompt: Prompt, form: Form, wanted: Mapping[Path, int], default_ttl: int) -> Prompt:
    """The same prompt with markers at exactly these segments.

    Args:
        prompt: the request.
        form: how markers are written in it.
        wanted: lifetimes in seconds by the path of the segment that the marker ends.
        default_ttl: lifetime of a marker that names none.

    Returns:
        The request with a changed body, or as it was if its markers are those already. Texts stay as they are; one that
        is not in a block is put into one where it has to carry a marker.

    Raises:
        LookupError: if there is no segment of such a path.
    """
    segments = {segment.path: segment for segment in prompt.segments}
    wrong = {}
    for path in segments.keys() | wanted.keys():
        marker = segments[path].marker
        has = None if marker is None else lifetime_of(marker, default_ttl)
        if has != (ttl := wanted.get(path)):
            wrong[path] = None if ttl is None else _marker(form, ttl, default_ttl)
    if not wrong:
        return prompt
    value = prompt.value
    if form is Form.CACHE_POINT:
        for items in {path.parent for path in wrong}:
            value = items.set(value, _with_points(items.get(value), items, wrong))
    else:
        for path, marker in wrong.items():
            value = _unmarked(value, path)
            if marker is not None:
                value = _marked(value, segments[path], {form.value: marker}, prompt.dialect)
    return prompt.with_value(value)


def _marker(form: Form, ttl: int, default_ttl: int) -> dict[str, str]:
    return _VALUES[form] if ttl == default_ttl else {**_VALUES[form], "ttl": label_of(ttl)}


def _unmarked(value: Any, path: Path) -> Any:
    block = path.get(value)
    left = unmarked(block)
    return value if left is block else path.set(value, left)


def _marked(value: Any, segment: Segment, marker: dict[str, Any], dialect: Dialect) -> Any:
    text_path = segment.text_path
    if text_path is None or text_path.steps[-1] == "text":
        return segment.path.set(value, {**segment.path.get(value), **marker})
    block = {**text_block(segment.text, dialect), **marker}
    if isinstance(text_path.steps[-1], int):
        return text_path.set(value, block)
    if text_path.steps == ("input",):
        return text_path.set(value, [{"role": "user", "content": [block]}])
    return text_path.set(value, [block])


def _with_points(items: list[Any], path: Path, wrong: Mapping[Path, dict[str, str] | None]) -> list[Any]:
    """A list of blocks in which some have another marker behind them."""
    written: list[Any] = []
    skipping = False
    for index, item in enumerate(items):
        is_point = isinstance(item, dict) and item.keys() == {Form.CACHE_POINT.value}
        if not (is_point and skipping):
            written.append(item)
        if not is_point:
            skipping = path / index in wrong
            if (marker := wrong.get(path / index)) is not None:
                written.append({Form.CACHE_POINT.value: marker})
    return written
