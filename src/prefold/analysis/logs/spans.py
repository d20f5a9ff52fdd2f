"""OpenTelemetry's GenAI spans: OTLP as JSON, and spans as JSON Lines.

Attributes are those of the semantic conventions for generative AI, none of which is stable (pages seen on 2026-11-30;
earlier versions, and OpenLLMetry before them, from memory and examples). The prompt is in `gen_ai.input.messages`, on
the span or on one of its events; or in an event for each message; or in `gen_ai.prompt.N.content`. By these conventions
input tokens hold what was read from cache; where they are fewer than that, they are taken to be counted beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prefold.analysis.logs.contents import body_of, value_of
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.values import count, dumped, first, loaded, moment, name, seconds
from prefold.analysis.record import Place, Record
from prefold.errors import InvalidRequest
from prefold.providers.usage import Usage

_OPERATIONS = ("chat", "text_completion", "generate_content", "completion")
_MESSAGE_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_INDEXED = re.compile(r"gen_ai\.prompt\.(\d{1,6})\.(role|content)")
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_READ = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
_WRITE = (
    *("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
    "gen_ai.usage.cache_creation_input_tokens",
)
_BEGIN = ("startTimeUnixNano", "start_time", "startTime", "start_time_unix_nano")
_END = ("endTimeUnixNano", "end_time", "endTime", "end_time_unix_nano")
_TTFT = ("gen_ai.server.time_to_first_token", "gen_ai.response.time_to_first_chunk")
_SCALARS = ("stringValue", "doubleValue", "boolValue")
_INTEGER = re.compile(r"-?\d{1,20}")
_DEEPEST = 40


class Spans:
    """Reads the GenAI spans of OTLP JSON, and of spans as they are."""

    name = "otel"

    def recognises(self, head: Head, /) -> bool:
        """Whether the first objects are spans with attributes of GenAI, or hold spans."""
        if b"gen_ai." not in head.start:
            return False
        first_value = head.first if isinstance(head.first, dict) else {}
        if "resourceSpans" in first_value or b'"resourceSpans"' in head.start[:1000]:
            return True
        return any("attributes" in item or "resourceSpans" in item for item in (*head.objects, first_value))

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file, in each line in order of time."""
        for number, content in source.values():
            place = source.place(number)
            try:
                spans = sorted(_spans(loaded(content)), key=lambda span: moment(first(span, _BEGIN)) or 0.0)
            except InvalidRequest as error:
                yield BadLine(place, error.message)
                continue
            for span in spans:
                try:
                    attributes = _attributes(span.get("attributes"))
                    if _is_request(attributes):
                        yield _record(span, attributes, place, source)
                except InvalidRequest as error:
                    yield BadLine(place, error.message)


def _spans(value: object) -> list[Mapping[str, Any]]:
    """The spans in a JSON value: it, or those of all its resources and scopes.

    Raises:
        InvalidRequest: if there are none.
    """
    if not isinstance(value, dict) or not ("attributes" in value or "resourceSpans" in value):
        raise InvalidRequest("There is no span.", hint="A span is a JSON object with attributes.")
    if "resourceSpans" not in value:
        return [value]
    return [
        span
        for resource in _objects(value["resourceSpans"])
        for scope in _objects(first(resource, ("scopeSpans", "instrumentationLibrarySpans")))
        for span in _objects(scope.get("spans"))
    ]


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _attributes(value: object) -> dict[str, Any]:
    """Attributes by name, whether OTLP lists them or an object holds them."""
    if isinstance(value, dict):
        return value
    return {str(item.get("key")): _any_value(item.get("value"), 0) for item in _objects(value)}


def _any_value(value: object, depth: int) -> Any:
    """What an AnyValue of OTLP holds."""
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    if "intValue" in value:  # a text: JSON's numbers do not hold 64 bits
        text = str(value["intValue"])
        return int(text) if _INTEGER.fullmatch(text) else None
    for field in _SCALARS:
        if field in value:
            return value[field]
    if isinstance(array := value.get("arrayValue"), dict):
        return [_any_value(item, depth + 1) for item in _objects(array.get("values"))]
    if isinstance(pairs := value.get("kvlistValue"), dict):
        return {
            str(item.get("key")): _any_value(item.get("value"), depth + 1) for item in _objects(pairs.get("values"))
        }
    return None


def _is_request(attributes: Mapping[str, Any]) -> bool:
    operation = attributes.get("gen_ai.operation.name") or attributes.get("llm.request.type")
    if operation is not None:
        return operation in _OPERATIONS
    return "gen_ai.request.model" in attributes


def _record(span: Mapping[str, Any], attributes: dict[str, Any], place: Place, source: Source) -> Record:
    events = [
        (str(event.get("name", "")), _attributes(event.get("attributes"))) for event in _objects(span.get("events"))
    ]
    for event_name, found in events:
        if event_name == "gen_ai.client.inference.operation.details":
            attributes = {**attributes, **found}
    model = name(attributes.get("gen_ai.request.model"), attributes.get("gen_ai.response.model"))
    messages = [*_instructions(attributes), *(_messages(attributes) or _from_events(events) or _indexed(attributes))]
    prompt: object = {"messages": messages} if messages else value_of(first(attributes, ("gen_ai.prompt",)))
    if prompt is None:
        raise InvalidRequest("The span holds no prompt.", hint="Have the instrumentation capture message content.")
    begun, ended = moment(first(span, _BEGIN)), moment(first(span, _END))
    usage = _usage(attributes, source)
    reasons = value_of(attributes.get("gen_ai.response.finish_reasons"))
    context = span.get("context") if isinstance(span.get("context"), dict) else {}
    return Record(
        content=body_of(prompt, model, tools=_tools(attributes)),
        place=place,
        time=begun,
        model=model,
        provider=name(attributes.get("gen_ai.provider.name"), attributes.get("gen_ai.system")),
        tenant=name(*(attributes.get(field) for field in ("user.id", "enduser.id", "gen_ai.user.id", "tenant.id"))),
        session=name(attributes.get("gen_ai.conversation.id"), attributes.get("session.id")),
        replica=name(attributes.get("server.address")),
        usage=usage,
        answer=_answer(attributes),
        output_tokens=usage.output if usage else None,
        stop=name(*reasons) if isinstance(reasons, list) else name(reasons),
        duration=ended - begun if begun is not None and ended is not None and ended >= begun else None,
        ttft=seconds(first(attributes, _TTFT)),
        request_id=name(
            attributes.get("gen_ai.response.id"),
            span.get("spanId"),
            span.get("span_id"),
            (context or {}).get("span_id"),
        ),
    )


def _usage(attributes: Mapping[str, Any], source: Source) -> Usage | None:
    total = count(first(attributes, _INPUT), source)
    if total is None:
        return None
    given = count(first(attributes, _READ), source)
    read, write = given or 0, count(first(attributes, _WRITE), source) or 0
    uncached = total - read - write if total >= read + write else total
    return Usage(
        uncached, read, write, output=count(first(attributes, _OUTPUT), source) or 0, is_reported=given is not None
    )


def _instructions(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = value_of(attributes.get("gen_ai.system_instructions"))
    if isinstance(given, str) and given:
        return [{"role": "system", "content": given}]
    parts = [_part(part) for part in _objects(given)]
    return [{"role": "system", "content": _content(parts)}] if parts else []


def _messages(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of `gen_ai.input.messages`, as OpenAI's chat has them."""
    found: list[dict[str, Any]] = []
    for message in _objects(value_of(attributes.get("gen_ai.input.messages"))):
        parts = _objects(message.get("parts"))
        role = name(message.get("role")) or "user"
        if not parts and "content" in message:
            found.append(message)
            continue
        results = [part for part in parts if part.get("type") == "tool_call_response"]
        calls = [part for part in parts if part.get("type") == "tool_call"]
        rest = [_part(part) for part in parts if part not in results and part not in calls]
        if rest or calls:
            asked = {"tool_calls": [_call(call) for call in calls]} if calls else {}
            found.append({"role": role, "content": _content(rest) if rest else None, **asked})
        found.extend(
            {
                "role": "tool",
                "tool_call_id": name(part.get("id")),
                "content": _text(first(part, ("response", "result"))),
            }
            for part in results
        )
    return found


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text" and isinstance(part.get("content"), str):
        return {"type": "text", "text": part["content"]}
    return dict(part)


def _content(parts: list[dict[str, Any]]) -> Any:
    """A single text as a text."""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name(call.get("name")), "arguments": _text(call.get("arguments"))}
    return {"id": name(call.get("id")), "type": "function", "function": function}


def _text(value: object) -> str:
    return value if isinstance(value, str) else dumped(value).decode()


def _from_events(events: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Messages that are each an event, as the conventions had it before 1.37."""
    found: list[dict[str, Any]] = []
    for event_name, attributes in events:
        if match := _MESSAGE_EVENT.fullmatch(event_name):
            content = value_of(first(attributes, ("content", "gen_ai.event.content", "message")))
            if isinstance(content, dict):
                found.append({"role": match[1], **content})
            elif content is not None:
                found.append({"role": name(attributes.get("role")) or match[1], "content": content})
        elif event_name == "gen_ai.content.prompt":
            prompt = value_of(attributes.get("gen_ai.prompt"))
            found.extend(_objects(prompt) if isinstance(prompt, list) else [{"role": "user", "content": _text(prompt)}])
    return found


def _indexed(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of `gen_ai.prompt.0.role`, `gen_ai.prompt.0.content` and so on."""
    found: dict[int, dict[str, Any]] = {}
    for field, value in attributes.items():
        if match := _INDEXED.fullmatch(field):
            found.setdefault(int(match[1]), {"role": "user", "content": ""})[match[2]] = value
    return [found[index] for index in sorted(found)]


def _tools(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    tools = _objects(value_of(attributes.get("gen_ai.tool.definitions")))
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]


def _answer(attributes: Mapping[str, Any]) -> str | None:
    texts = [
        part["content"]
        for message in _objects(value_of(attributes.get("gen_ai.output.messages")))
        for part in _objects(message.get("parts"))
        if part.get("type") == "text" and isinstance(part.get("content"), str)
    ]
    if texts:
        return "".join(texts)
    text = first(attributes, ("gen_ai.completion.0.content", "gen_ai.completion"))
    return text if isinstance(text, str) else None
