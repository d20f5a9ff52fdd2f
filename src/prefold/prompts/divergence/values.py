"""How two JSON values, or two segments in the same place, differ at the first place where they do."""

from __future__ import annotations

import json
from typing import Any

from prefold.prompts.divergence.text_difference import is_number_format, text_cause
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Segment
from prefold.prompts.sequences import common_length

_STUB = 200  # characters of a placeholder that stands for content taken out
_FARTHEST_OPENING = 20_000  # characters before a difference in which the JSON value around it is looked for
_RESULT_ROLES = ("tool", "function")
_RESULT_IDS = ("tool_use_id", "call_id")
_ID_FIELDS = frozenset({"id", "tool_use_id", "toolUseId", "call_id", "tool_call_id", "item_id"})
_RESULT_FIELDS = ("functionResponse", "function_response", "toolResult")


def within_segment(before: Segment, after: Segment) -> tuple[str, Path]:
    """The cause of the difference of two segments in the same place, and the path to it."""
    if before.role != after.role or type(before.content) is not type(after.content) or before.text == after.text:
        return "text_edit", after.path  # the words of somebody else, or in another message
    if changed := within_block(before, after):
        return changed
    try:
        if after.path.steps[-1] in _ID_FIELDS:
            return "identifier", after.path
        if isinstance(before.content, str):
            return string_cause(before.content, after.content), after.path
        cause, path = value_cause(before.content, after.content, Path())
    except RecursionError:  # JSON nested so deep that it can be read but not walked
        return text_cause(before.text, after.text), after.path
    # Where keys come in another order, the object is named; a text that holds JSON is no object of the body.
    is_object = cause == "key_order" and not isinstance(path.get(after.content), str)
    return cause, Path((*after.path.steps, *path.steps)) if is_object else after.path


def within_block(before: Segment, after: Segment) -> tuple[str, Path] | None:
    """What happened to a block that is still there: a placeholder took its content, or citations were switched."""
    if before.role != after.role or before.begins_message != after.begins_message:
        return None
    if _is_taken_out(before, after):
        return "truncation", after.path
    old, new = before.content, after.content
    if isinstance(old, dict) and isinstance(new, dict) and not same_json(old.get("citations"), new.get("citations")):
        return "parameter", after.path / "citations"
    return None


def _is_taken_out(before: Segment, after: Segment) -> bool:
    """Whether a tool's result was replaced by a placeholder."""
    if len(after.text) > _STUB or len(before.text) <= 2 * len(after.text):
        return False
    if before.role in _RESULT_ROLES:
        return True
    old, new = before.content, after.content
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    return any(name in old and name in new for name in _RESULT_FIELDS) or any(
        old.get(name) is not None and old.get(name) == new.get(name) for name in _RESULT_IDS
    )


def value_cause(before: Any, after: Any, path: Path) -> tuple[str, Path]:
    """The cause of the first difference of two JSON values that differ, and the path of what differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        return _object_cause(before, after, path)
    if isinstance(before, list) and isinstance(after, list):
        return _list_cause(before, after, path)
    if isinstance(before, str) and isinstance(after, str):
        is_id = path.steps[-1:] and path.steps[-1] in _ID_FIELDS
        return "identifier" if is_id else string_cause(before, after), path
    if _is_number(before) and _is_number(after) and before == after:
        return "number_format", path
    return "text_edit", path


def _object_cause(before: dict[str, Any], after: dict[str, Any], path: Path) -> tuple[str, Path]:
    has_same_keys = before.keys() == after.keys()
    if has_same_keys and list(before) != list(after) and _same_value(before, after):
        return "key_order", path
    for key, value in before.items():
        if key in after and not same_json(value, after[key]):
            return value_cause(value, after[key], path / key)
    return ("key_order" if has_same_keys else "text_edit"), path


def _list_cause(before: list[Any], after: list[Any], path: Path) -> tuple[str, Path]:
    for index, (first, second) in enumerate(zip(before, after, strict=False)):
        if not same_json(first, second):
            if len(before) == len(after) and _sorted_json(before) == _sorted_json(after):
                return "block_order", path
            return value_cause(first, second, path / index)
    return "text_edit", path


def string_cause(before: str, after: str) -> str:
    """The cause of the first difference of two texts that differ; texts that hold JSON are compared as values too."""
    first, second = _embedded(before), _embedded(after)
    if first is not None and second is not None:
        return _written_otherwise(before, after) if same_json(first, second) else value_cause(first, second, Path())[0]
    return _embedded_key_order(before, after) or text_cause(before, after)


def _written_otherwise(before: str, after: str) -> str:
    """The cause of a difference between two texts of the same JSON value: a number, or spacing and escapes."""
    return "number_format" if is_number_format(before, after, common_length(before, after)) else "whitespace"


def _embedded(text: str) -> Any:
    """The object or list that a text is, as JSON; None for any other text."""
    if text[:1].strip() and text[0] not in "{[":
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _embedded_key_order(before: str, after: str) -> str | None:
    """Whether the texts first differ inside a JSON value that is written into both."""
    position = common_length(before, after)
    decoder = json.JSONDecoder()
    start = position
    for _ in range(8):  # the innermost value that holds the difference, then those around it
        start = max(before.rfind("{", 0, start), before.rfind("[", 0, start))
        if start < 0 or position - start > _FARTHEST_OPENING:
            return None
        try:
            first, end = decoder.raw_decode(before, start)
            second, _ = decoder.raw_decode(after, start)
        except (ValueError, RecursionError):
            continue
        if end <= position or not isinstance(first, dict | list):
            continue
        if same_json(first, second):
            return _written_otherwise(before, after)
        if _same_value(first, second):
            return value_cause(first, second, Path())[0]
    return None


def same_json(first: Any, second: Any) -> bool:
    """Whether two values are written alike: equal, with keys in the same order and numbers of the same kind."""
    return first is second or json.dumps(first) == json.dumps(second)


def _same_value(first: Any, second: Any) -> bool:
    """Whether two values are equal, whatever the order of keys and whether a number is 10 or 10.0."""
    return bool(first == second) and isinstance(first, bool) == isinstance(second, bool)


def _sorted_json(values: list[Any]) -> list[str]:
    return sorted(json.dumps(value, sort_keys=True) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
