"""Where the parts of a request that canonicalising works on lie, in the forms of all dialects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prefold.prompts.canonical.documents import is_document
from prefold.prompts.canonical.sorting import DATA, NAME_MAPS
from prefold.prompts.dialects import PROMPT_FIELDS
from prefold.prompts.paths import Path, Step
from prefold.prompts.prompt import Prompt, Section, Segment


def tool_lists(prompt: Prompt) -> list[Path]:
    """Where the lists of tools are."""
    if prompt.document is None:
        return []
    value, fields = prompt.value, PROMPT_FIELDS[prompt.dialect]
    places = [Path.of(name) for name in ("tools", "functions") if name in fields and isinstance(value.get(name), list)]
    config = value.get("toolConfig") if "toolConfig" in fields else None
    if isinstance(config, dict) and isinstance(config.get("tools"), list):
        places.append(Path.of("toolConfig", "tools"))
    return places


_ANSWER_SCHEMAS = (
    Path.of("response_format"),  # OpenAI's chat completions, and who speaks as they do
    Path.of("text", "format"),  # OpenAI's responses
    Path.of("output_format"),  # Anthropic
    Path.of("output_config", "format"),
    *(
        Path.of(config, name)
        for config in ("generationConfig", "generation_config", "config")
        for name in ("responseSchema", "response_schema", "responseJsonSchema", "response_json_schema")
    ),
)


def answer_schemas(prompt: Prompt) -> list[Path]:
    """Where the schema of a structured answer is, which a provider puts before what the model reads."""
    return [path for path in _ANSWER_SCHEMAS if prompt.document is not None and _is_object(path, prompt.value)]


def _is_object(path: Path, value: Any) -> bool:
    try:
        return isinstance(path.get(value), dict)
    except LookupError:
        return False


def descriptions(tools: Any, path: Path) -> list[Path]:
    """Where the words for the model lie in tools and schemas. Names, patterns and examples are no words to change."""
    found: list[Path] = []

    def look_at(value: Any, steps: tuple[Step, ...], *, is_name_map: bool) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                if isinstance(item, str):
                    if key == "description":
                        found.append(Path((*steps, key)))
                elif isinstance(item, dict | list) and (is_name_map or key not in DATA):
                    look_at(item, (*steps, key), is_name_map=not is_name_map and key in NAME_MAPS)
        else:
            for index, item in enumerate(value):
                if isinstance(item, dict | list):
                    look_at(item, (*steps, index), is_name_map=False)

    look_at(tools, path.steps, is_name_map=False)
    return found


def result_content(segment: Segment) -> Path | None:
    """Where a segment holds what a tool gave, a text or a list of blocks."""
    match segment.content:
        case {"type": "tool_result", "content": _}:
            return segment.path / "content"
        case {"toolResult": {"content": _}}:
            return segment.path / "toolResult" / "content"
        case {"type": "function_call_output", "output": _}:
            return segment.path / "output"
        case _:
            return None


def result_texts(prompt: Prompt, segment: Segment) -> Iterator[Path]:
    """Where a segment holds texts that a tool gave."""
    if (place := result_content(segment)) is None:
        return
    content = place.get(prompt.value)
    if isinstance(content, str):
        yield place
    elif isinstance(content, list):
        for index, block in enumerate(content):
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                yield place / index / "text"


def argument_texts(segment: Segment) -> Iterator[Path]:
    """Where a segment holds the arguments of a call as the JSON text that the model wrote."""
    match segment.content:
        case {"function": {"arguments": str()}}:
            yield segment.path / "function" / "arguments"
        case {"name": str(), "arguments": str()}:
            yield segment.path / "arguments"


def document_lists(prompt: Prompt) -> list[Path]:
    """Lists in which documents stand, inner ones before those around them."""
    places: dict[Path, None] = {}
    for segment in prompt.segments:
        if segment.section is Section.TOOLS:
            continue
        if is_document(segment.content):
            places[segment.path.parent] = None
        elif (place := result_content(segment)) is not None:
            content = place.get(prompt.value)
            if isinstance(content, list) and any(is_document(block) for block in content):
                places[place] = None
    return sorted(places, key=lambda path: -len(path.steps))
