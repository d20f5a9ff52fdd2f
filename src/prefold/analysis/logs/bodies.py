"""Logs of request bodies: OpenAI, Anthropic, Gemini, Bedrock and all who speak their languages.

A line is a body, or a record that holds one beside its time, its response and whatever else was logged. Bodies are
cut out of their line without being read: at 19 KB a line that is what decides how fast a log is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from prefold.analysis.logs.answers import NO_ANSWER, Answer, read_answer
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.values import count, first, loaded, moment, name, seconds, usage_of
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.core.tokens import count as tokens_in
from prefold.core.tokens import pack
from prefold.errors import InvalidRequest, InvalidTokens
from prefold.prompts.dialects import PROMPT_FIELDS, SYSTEM_ROLES, recognise
from prefold.prompts.prompt import Dialect
from prefold.providers.usage import Usage

BODY_FIELDS = ("request", "body", "request_body", "kwargs", "params", "input", "requestBody")
"""Where a record holds its body, or another record that does."""
_BEDROCK_FIELDS = frozenset({"modelId", "inferenceConfig", "toolConfig", "additionalModelRequestFields"})
_ANTHROPIC_FIELDS = frozenset({"system", "anthropic_version"})
_OPENAI_ROLES = (*SYSTEM_ROLES, "tool", "function")
_PROMPT_FIELDS = frozenset().union(*PROMPT_FIELDS.values()) | {"prompt_token_ids"}
_HOLDING_FIELDS = _PROMPT_FIELDS | frozenset(BODY_FIELDS)
_RESPONSE_FIELDS = ("response", "response_body", "output", "completion", "result", "responseBody")
TIME_FIELDS = (
    *("timestamp", "time", "ts", "start_time", "startTime", "request_time", "created", "created_at", "createdAt"),
    *("@timestamp", "date"),
)
END_FIELDS = ("end_time", "endTime", "response_time", "completed_at")
SESSION_FIELDS = ("session", "session_id", "sessionId", "conversation_id", "conversation", "thread_id", "chat_id")
TENANT_FIELDS = (
    *("tenant", "tenant_id", "customer", "customer_id", "organization", "organization_id", "org_id", "team", "team_id"),
    *("user", "user_id", "end_user", "account_id", "safety_identifier"),
)
_ID_FIELDS = ("request_id", "requestId", "x_request_id", "x-request-id")
_REPLICA_FIELDS = ("replica", "server", "backend", "worker", "upstream", "pod", "host")
_PROVIDER_FIELDS = ("provider", "custom_llm_provider", "gen_ai.provider.name")
TTFT_FIELDS = (("ttft", 1.0), ("ttft_s", 1.0), ("time_to_first_token", 1.0), ("ttft_ms", 1e-3))
DURATION_FIELDS = (
    *(("duration", 1.0), ("duration_s", 1.0), ("latency", 1.0), ("latency_s", 1.0), ("elapsed", 1.0)),
    *(("duration_ms", 1e-3), ("latency_ms", 1e-3), ("durationMs", 1e-3), ("elapsed_ms", 1e-3)),
)
SMALL_FIELDS = frozenset(
    (
        *TIME_FIELDS,
        *END_FIELDS,
        *SESSION_FIELDS,
        *TENANT_FIELDS,
        *_ID_FIELDS,
        *_REPLICA_FIELDS,
        *_PROVIDER_FIELDS,
        *(field for field, _ in (*TTFT_FIELDS, *DURATION_FIELDS)),
        *("metadata", "model", "modelId", "usage", "usageMetadata", "output_tokens", "stop_reason", "finish_reason"),
        *("answer", "cache_miss_reason", "output_token_ids", "token_ids"),
    )
)
_CLAUDE_CODE_USER = re.compile(r"^(?P<user>.+?)_session_(?P<session>[0-9a-f-]{8,})$")
_ANTHROPIC_BLOCKS = re.compile(rb'"(?:tool_use|tool_result|thinking|redacted_thinking)"')
_LINE_START = re.compile(rb'\s*\{[^\n]*?"(?:messages|prompt|contents|input|request|body|prompt_token_ids)"\s*:')
_NUMBERS = re.compile(rb"\[\s*\d")
_LIST = ord("[")
_DEEPEST = 4
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Fields = Mapping[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Bodies:
    """Reads bodies, one in each line; or a JSON list of them; or a single one.

    Attributes:
        dialect: the form of the bodies; None to recognise it by content.
    """

    dialect: Dialect | None = None

    @property
    def name(self) -> str:
        """The dialect, or `bodies`, in which case records count under the dialect of their body."""
        return str(self.dialect or "bodies")

    def recognises(self, head: Head, /) -> bool:
        """Whether one of the first objects is a body or holds one."""
        if any(holds_body(item) for item in head.objects):
            return True
        if not head.objects and isinstance(head.first, dict):
            return holds_body(head.first)
        return not head.objects and _LINE_START.match(head.start) is not None

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file."""
        for number, content in source.values():
            place = source.place(number)
            try:
                yield self._record(content, place, source)
            except InvalidRequest as error:
                yield BadLine(place, error.message)

    def _record(self, content: bytes, place: Place, source: Source) -> Record:
        _check_text(content)
        layers, body = _layers(content)
        values = _small_values(layers)
        answer = _answer_of(layers, source)
        usage = usage_of(first(values, ("usage", "usageMetadata")), source) or answer.usage
        ids = _token_ids(layers)
        tenant, session = _tenant_and_session(values)
        sent = _first_moment(values, TIME_FIELDS)
        time = answer.created if sent is None else sent
        answer_ids = _answer_ids(values)
        fields = layers[-1]
        return Record(
            content=Body(body, self.dialect or dialect_of(fields), fields) if ids is None else token_blocks(ids),
            place=place,
            time=time,
            model=name(values.get("model"), values.get("modelId"), answer.model),
            provider=name(first(values, _PROVIDER_FIELDS)),
            tenant=tenant,
            session=session,
            replica=name(first(values, _REPLICA_FIELDS)),
            usage=usage,
            answer=answer.text if answer_ids is None else answer_ids,
            output_tokens=_output_tokens(values, answer_ids, usage, source),
            stop=name(first(values, ("stop_reason", "finish_reason")), answer.stop),
            duration=_duration(values, sent),
            ttft=_seconds_of(values, TTFT_FIELDS),
            request_id=name(first(values, _ID_FIELDS), answer.response_id),
            miss_reason=answer.miss_reason or name(values.get("cache_miss_reason")),
        )


def _output_tokens(values: Mapping[str, Any], ids: Blocks | None, usage: Usage | None, source: Source) -> int | None:
    if ids is not None:
        return ids.tokens
    given = count(values.get("output_tokens"), source)
    return usage.output if given is None and usage else given


def holds_prompt(value: Mapping[str, Any]) -> bool:
    """Whether a JSON object has one of the fields that bodies have prompts in."""
    return not _PROMPT_FIELDS.isdisjoint(value)


def holds_body(value: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a body, or a record that holds one."""
    held = [value[field] for field in BODY_FIELDS if field in value]
    return holds_prompt(value) or any(
        holds_body(inner) if isinstance(inner, dict) else isinstance(inner, str) and inner.lstrip()[:1] == "{"
        for inner in held
    )


def dialect_of(body: Fields) -> Dialect:
    """The dialect of a body, as `prefold.prompts.dialects.recognise` tells it, but without reading what is long.

    Raises:
        InvalidRequest: if it is none that is known.
    """
    if "contents" in body:
        return Dialect.GEMINI
    messages = body.get("messages")
    if messages is None:
        if "input" in body or "instructions" in body:
            return Dialect.RESPONSES
        if "prompt" in body:
            return Dialect.COMPLETION
    if messages is not None and _BEDROCK_FIELDS & body.keys():
        return Dialect.BEDROCK
    known = _by_fields(body, messages) if messages is not None else None
    return known or recognise({field: loaded(value) for field, value in body.items()})


class _Message(msgspec.Struct):
    role: Any = None
    content: msgspec.Raw = msgspec.Raw(b"null")
    tool_calls: msgspec.Raw = msgspec.Raw(b"null")


_messages_of = msgspec.json.Decoder(list[_Message]).decode
_parts_of = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


def _by_fields(body: Fields, raw: msgspec.Raw) -> Dialect | None:
    """The dialect of a body with messages; None where only a full look can tell."""
    try:
        messages = _messages_of(raw)
        if any(_looks_like_bedrock(message.content) for message in messages[:4]):
            return None
        if any(message.role in _OPENAI_ROLES or _is_list(message.tool_calls) for message in messages):
            return Dialect.OPENAI
        tools = {field for tool in _parts_of(body["tools"]) for field in tool} if "tools" in body else set()
    except (msgspec.DecodeError, RecursionError):
        return None
    if "function" in tools:
        return Dialect.OPENAI
    is_anthropic = "input_schema" in tools or not _ANTHROPIC_FIELDS.isdisjoint(body)
    if not is_anthropic and _ANTHROPIC_BLOCKS.search(raw):
        return None
    return Dialect.ANTHROPIC if is_anthropic or b"claude" in bytes(body.get("model", b"")) else Dialect.OPENAI


def _looks_like_bedrock(content: msgspec.Raw) -> bool:
    if not _is_list(content):
        return False
    parts = _parts_of(content)
    return bool(parts) and "type" not in parts[0]


def _is_list(value: msgspec.Raw) -> bool:
    return memoryview(value)[0] == _LIST


def _check_text(content: bytes) -> None:
    if not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"The line is not UTF-8 text: byte {error.start + 1} is 0x{content[error.start]:02X}.",
                hint="Unpack compressed logs, and convert others, first.",
            ) from None


def _split(content: bytes | msgspec.Raw) -> Fields:
    """The fields of a JSON object, unread.

    Raises:
        InvalidRequest: if it is no JSON object.
    """
    try:
        return _fields_of(content)
    except (msgspec.DecodeError, RecursionError):
        value = loaded(bytes(content).removeprefix(b"\xef\xbb\xbf"))
    if not isinstance(value, dict):
        raise InvalidRequest("There is no JSON object.", hint="Each line is a body or a record that holds one.")
    return {str(field): msgspec.Raw(json.dumps(part).encode()) for field, part in value.items()}


def _layers(content: bytes) -> tuple[list[Fields], bytes]:
    """The fields of a record, of the record in it, and so on; and the body that is the innermost of them."""
    layers, body = [_split(content)], content
    while len(layers) < _DEEPEST and (held := _held(layers[-1])) is not None:
        body, fields = held
        layers.append(fields)
    return layers, body


def _held(record: Fields) -> tuple[bytes, Fields] | None:
    """The body, or the record, that a record holds, and its fields; None for a body."""
    for field in BODY_FIELDS:
        raw = record.get(field)
        if raw is None:
            continue
        start = bytes(memoryview(raw)[:2])
        inner: bytes | None = None
        if start[:1] == b"{":
            inner = bytes(raw)
        # What a body for the Responses API has as `input` is the user's words.
        elif start[:1] == b'"' and not (field == "input" and "model" in record):
            text = loaded(raw)
            inner = text.encode(errors="surrogatepass") if text.lstrip()[:1] == "{" else None
        if inner is None:
            continue
        try:
            fields = _split(inner)
        except InvalidRequest:
            continue  # a text that only looks like JSON
        if not _HOLDING_FIELDS.isdisjoint(fields):
            return inner, fields
    return None


def _small_values(layers: list[Fields]) -> dict[str, Any]:
    """What a record and its body say beside the prompt; the outer one's word counts, metadata's last."""
    values: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for layer in layers:
        for field in layer.keys() & SMALL_FIELDS:
            value = loaded(layer[field])
            if field == "metadata" and isinstance(value, dict):
                metadata = {**value, **metadata}
            elif value is not None:
                values.setdefault(field, value)
    return {**metadata, **values}


def _answer_of(layers: list[Fields], source: Source) -> Answer:
    for layer in layers:
        for field in _RESPONSE_FIELDS:
            if field in layer:
                answer = read_answer(loaded(layer[field]), source)
                if answer != NO_ANSWER:
                    return answer
    return NO_ANSWER


def _token_ids(layers: list[Fields]) -> bytes | None:
    """The prompt as packed token ids, where the log has them; else None."""
    for layer in layers:
        raw = layer.get("prompt_token_ids")
        if raw is not None and _is_list(raw):
            return packed_ids(loaded(raw))
    prompt = layers[-1].get("prompt")
    if prompt is not None and _NUMBERS.match(prompt):
        return packed_ids(loaded(prompt))
    return None


def packed_ids(ids: object) -> bytes:
    """Token ids as a run.

    Raises:
        InvalidRequest: if they are none.
    """
    if not isinstance(ids, list) or any(type(token) is not int for token in ids):
        raise InvalidRequest("The token ids are not a list of whole numbers.", hint="Token ids are numbers from 0 on.")
    try:
        return pack(ids)
    except InvalidTokens as error:
        raise InvalidRequest(error.message, hint=error.hint) from None


def token_blocks(run: bytes) -> Blocks:
    """A prompt, or an answer, that is known by its token ids."""
    return Blocks(run, block_tokens=1, tokens=tokens_in(run))


def _answer_ids(values: Mapping[str, Any]) -> Blocks | None:
    ids = first(values, ("output_token_ids", "token_ids"))
    return token_blocks(packed_ids(ids)) if isinstance(ids, list) else None


def _tenant_and_session(values: Mapping[str, Any]) -> tuple[str, str]:
    """Whom a request belongs to, and to which conversation, as the fields of a record and its metadata say.

    Claude Code puts both into `metadata.user_id`: as `user_..._session_...`, or as the text of a JSON object.
    """
    tenant, session = name(*_given(values, TENANT_FIELDS)), name(*_given(values, SESSION_FIELDS))
    if tenant[:1] == "{":
        try:
            inner = loaded(tenant)
        except InvalidRequest:
            inner = None
        if isinstance(inner, dict):
            user = name(inner.get("account_uuid"), inner.get("device_id"))
            return user, session or name(inner.get("session_id"))
    if match := _CLAUDE_CODE_USER.match(tenant):
        return match["user"], session or match["session"]
    return tenant, session


def _first_moment(values: Mapping[str, Any], fields: tuple[str, ...]) -> float | None:
    """The first time that some fields of a record tell."""
    for value in _given(values, fields):
        time = moment(value)
        if time is not None:
            return time
    return None


def _duration(values: Mapping[str, Any], sent: float | None) -> float | None:
    """Seconds from a request to the end of its answer, as the fields of a record say."""
    given = _seconds_of(values, DURATION_FIELDS)
    if given is not None or sent is None:
        return given
    ended = _first_moment(values, END_FIELDS)
    return ended - sent if ended is not None and ended >= sent else None


def _seconds_of(values: Mapping[str, Any], fields: tuple[tuple[str, float], ...]) -> float | None:
    found = [seconds(values[field], unit=unit) for field, unit in fields if field in values]
    return next((number for number in found if number is not None), None) if found else None


def _given(values: Mapping[str, Any], fields: tuple[str, ...]) -> list[Any]:
    """What some fields hold, those that are there."""
    return [values[field] for field in fields if field in values]
