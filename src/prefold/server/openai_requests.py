"""What clients ask for: bodies of OpenAI's API, checked and turned into tokens. Pure: no I/O, no state.

Fields that would change the answer and that prefold does not have are refused by name, never ignored; other unknown
fields mean nothing and are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from types import MappingProxyType
from typing import Any

from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import WIDTH, common_prefix, count, pack
from prefold.engine.pins import PinWish
from prefold.engine.request import SamplingOptions
from prefold.engine.tokenizer import Tokenizer
from prefold.errors import InvalidRequest, InvalidSalt, InvalidTokens, PromptTooLong
from prefold.server.asgi import HttpError
from prefold.server.chunks import (
    FIELD,
    Pieces,
    ranges_in_rendered,
    ranges_of_messages,
    ranges_of_prompt,
    tokens_of_text,
)
from prefold.server.fields import Fields, shown
from prefold.server.lasting import lasting_part

CHAT_TOKENS = 1024
"""Most new tokens of a chat answer whose request does not say how many."""

COMPLETION_TOKENS = 16
"""The same of a completion, as in OpenAI's API."""

MAX_PROMPTS = 1024
MAX_ANSWERS = 1024
"""Most prompts in one request."""

# Fields that are refused, with the values beside null that say nothing and are let through.
_UNSUPPORTED: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "logit_bias": ({},),
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "repetition_penalty": (1,),
        "min_p": (0,),
        "min_tokens": (0,),
        "bad_words": ([],),
        "stop_token_ids": ([],),
        "use_beam_search": (False,),
        "response_format": ({"type": "text"},),
        "structured_outputs": (),
        "guided_json": (),
        "guided_regex": (),
        "guided_choice": (),
        "guided_grammar": (),
        "grammar": ("",),
        "json_schema": (),
        "prompt_embeds": (),
    }
)
_UNSUPPORTED_IN_CHAT: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        **_UNSUPPORTED,
        "tool_choice": ("auto", "none"),
        "parallel_tool_calls": (True,),
        "functions": ([],),
        "function_call": ("none",),
        "audio": (),
        "modalities": (["text"],),
        "reasoning_effort": (),
        "verbosity": (),
        "web_search_options": (),
        "chat_template": (),
        "chat_template_kwargs": ({},),
        "continue_final_message": (False,),
    }
)
_UNSUPPORTED_IN_COMPLETIONS: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {**_UNSUPPORTED, "echo": (False,), "suffix": ("",), "best_of": (1,)}
)


@dataclass(frozen=True)
class ServedModel:
    """What a request can be checked against.

    Attributes:
        names: what clients may call the model; the first is the one that answers carry.
        tokenizer: of the model.
        vocab_size: token ids end before it.
        limit: most tokens of prompt and answer together: the context length, or the K/V memory where that is smaller.
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    vocab_size: int
    limit: int

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token."""
        return max(len(self.tokenizer.token_bytes(token)) for token in range(self.tokenizer.vocab_size))

    def encode(self, text: str, *, add_special: bool) -> bytes:
        """Packed tokens of a text; see `Tokenizer.encode`.

        Raises:
            InvalidRequest: if it is not valid Unicode.
            PromptTooLong: if it could not fit were it all of the longest token. To tokenise megabytes takes seconds and
                a hundred times their memory, so that is found out first.
        """
        self.check_length(text)
        return pack(self.tokenizer.encode(text, add_special=add_special))

    def check_length(self, text: str) -> None:
        """Refuse a text that could not fit; see `encode`.

        Raises:
            PromptTooLong: if so.
        """
        if len(text) > self.limit and len(text) > self.limit * self.longest_token:
            raise PromptTooLong(
                f"A prompt of {len(text)} characters exceeds the limit of {self.limit} tokens",
                hint="shorten it",
                param="prompt",
            )

    def check_name(self, name: str | None) -> None:
        """Accept one of the names, or none.

        Raises:
            HttpError: 404 for any other.
        """
        if name is not None and name not in self.names:
            raise HttpError(
                404,
                f"There is no model {shown(name)} here",
                hint=f"this server has {self.names[0]!r}",
                code="model_not_found",
                param="model",
            )


@dataclass(frozen=True)
class Prompt:
    """Tokens to continue, and who may share their K and V.

    Attributes:
        run: the tokens, packed.
        scope: salt and position.
        pin: what of them is to stay; None for nothing.
        chunks: which of them may stand elsewhere in the next prompt.
    """

    run: bytes
    scope: Scope
    pin: PinWish | None = None
    chunks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Call:
    """A completion or chat completion that is wanted.

    Attributes:
        prompts: one, or several that are answered independently.
        sampling: how each is answered.
        stream: send the answers as they grow.
        include_usage: end a stream with the usage.
    """

    prompts: tuple[Prompt, ...]
    sampling: SamplingOptions
    stream: bool
    include_usage: bool


def parse_chat(fields: Fields, model: ServedModel) -> Call:
    """A body of `/v1/chat/completions`.

    Raises:
        InvalidRequest, InvalidTokens, InvalidSalt: naming the field at fault.
        HttpError: for an unknown model.
    """
    model.check_name(fields.text("model"))
    _refuse_unsupported(fields, _UNSUPPORTED_IN_CHAT)
    prompt = _chat_prompt(fields, model, answering=True)
    max_tokens = fields.integer("max_completion_tokens")
    if max_tokens is None:
        max_tokens = fields.integer("max_tokens")
    if max_tokens is None:
        max_tokens = max(1, min(CHAT_TOKENS, model.limit - count(prompt.run)))
    likeliest = fields.integer("top_logprobs")
    wanted = fields.boolean("logprobs")
    if likeliest is not None and not wanted:
        raise InvalidRequest("top_logprobs needs logprobs", hint="add logprobs: true", param="top_logprobs")
    return _call(fields, (prompt,), max_tokens, (likeliest or 0) if wanted else None)


def parse_completion(fields: Fields, model: ServedModel) -> Call:
    """A body of `/v1/completions`.

    Raises:
        InvalidRequest, InvalidTokens, InvalidSalt: naming the field at fault.
        HttpError: for an unknown model.
    """
    model.check_name(fields.text("model"))
    _refuse_unsupported(fields, _UNSUPPORTED_IN_COMPLETIONS)
    max_tokens = fields.integer("max_tokens")
    return _call(
        fields,
        tuple(_plain_prompts(fields, model)),
        COMPLETION_TOKENS if max_tokens is None else max_tokens,
        fields.integer("logprobs"),
    )


def parse_prompt(fields: Fields, model: ServedModel, *, answering: bool) -> Prompt:
    """A body with either `prompt` or `messages`, of `/tokenize` and `/cache/pins`.

    Args:
        fields: the body.
        model: whose tokens.
        answering: whether messages are followed by the opening of an answer, as in a chat completion; else what is
            meant is only what they contribute to every conversation that goes on with them.

    Raises:
        InvalidRequest, InvalidTokens, InvalidSalt: naming the field at fault.
        HttpError: for an unknown model.
    """
    model.check_name(fields.text("model"))
    if (fields.get("prompt") is None) == (fields.get("messages") is None):
        raise InvalidRequest("The body has neither prompt nor messages, or both", hint="give one of them")
    if fields.get("messages") is not None:
        return _chat_prompt(fields, model, answering=answering)
    prompts = _plain_prompts(fields, model)
    if len(prompts) != 1:
        raise InvalidRequest(f"prompt holds {len(prompts)} prompts", hint="send them one by one", param="prompt")
    return prompts[0]


def parse_tokens(fields: Fields, model: ServedModel) -> list[int]:
    """A body of `/detokenize`.

    Raises:
        InvalidRequest: if `tokens` is not a list of token ids.
        HttpError: for an unknown model.
    """
    model.check_name(fields.text("model"))
    tokens = fields.get("tokens")
    if not isinstance(tokens, list):
        fields.refuse("tokens", "a list of token ids")
    return _token_ids(tokens, "tokens", model)


def _call(fields: Fields, prompts: tuple[Prompt, ...], max_tokens: int, logprobs: int | None) -> Call:
    stop = fields.get("stop")
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        fields.refuse("stop", "a string or a list of strings")
    choices = fields.integer("n")
    if choices is not None and choices * len(prompts) > MAX_ANSWERS:
        raise InvalidRequest(
            f"{len(prompts)} prompts with {choices} answers each in one request",
            hint=f"ask for up to {MAX_ANSWERS} answers in all",
            param="n",
        )
    sampling = SamplingOptions(
        max_tokens=max_tokens,
        temperature=fields.number("temperature", 1.0),
        top_p=fields.number("top_p", 1.0),
        top_k=fields.integer("top_k") or 0,
        seed=fields.integer("seed"),
        stop=tuple(stops),
        logprobs=logprobs,
        ignore_eos=fields.boolean("ignore_eos"),
        choices=1 if choices is None else choices,
    )
    stream = fields.boolean("stream")
    options = fields.part("stream_options")
    if options is not None and not stream:
        raise InvalidRequest("stream_options needs stream", hint="add stream: true", param="stream_options")
    return Call(prompts, sampling, stream, options is not None and options.boolean("include_usage"))


def _refuse_unsupported(fields: Fields, unsupported: Mapping[str, tuple[object, ...]]) -> None:
    for name, neutral in unsupported.items():
        value = fields.get(name)
        if value is not None and value not in neutral:
            raise HttpError(
                400,
                f"{name} is not supported, and leaving it out would change the answer",
                hint="remove it",
                code="unsupported_parameter",
                param=name,
            )


# Plain prompts


def _plain_prompts(fields: Fields, model: ServedModel) -> list[Prompt]:
    prompt = fields.get("prompt")
    match prompt:
        case None:
            raise InvalidRequest("There is no prompt", hint="send a text or a list of token ids", param="prompt")
        case []:
            raise InvalidTokens("The prompt is empty", hint="send at least one token")
        case str():
            parts: Sequence[Any] = [prompt]
        case [str() | list(), *_]:
            parts = prompt
        case [*_]:
            parts = [prompt]
        case _:
            fields.refuse("prompt", "a text, a list of token ids, or a list of either")
    if len(parts) > MAX_PROMPTS:
        raise InvalidRequest(f"{len(parts)} prompts in one request", hint=f"send up to {MAX_PROMPTS}", param="prompt")
    prompts = []
    for index, part in enumerate(parts):
        where = "prompt" if len(parts) == 1 else f"prompt[{index}]"
        if type(part) is not type(parts[0]):
            raise InvalidRequest(f"{where} is {shown(part)}", hint="give only texts or only token ids", param="prompt")
        pieces = _plain_pieces(fields, part, where, model)
        if not pieces.run:
            raise InvalidTokens(f"{where} is empty", hint="send at least one token")
        prompts.append(_pinning(fields, replace(_scoped(fields, pieces.run), chunks=pieces.chunks)))
    return prompts


def _plain_pieces(fields: Fields, part: str | list[Any], where: str, model: ServedModel) -> Pieces:
    """The tokens of one prompt, and the chunks that are marked in it."""
    if where != "prompt" and fields.get(FIELD) is not None:
        raise InvalidRequest(f"{FIELD} goes with one prompt only", hint="send prompts one by one", param=FIELD)
    if not isinstance(part, str):
        run = pack(_token_ids(part, where, model))
        return Pieces(run, tuple((chunk.start, chunk.stop) for chunk in ranges_of_prompt(fields, part)))
    ranges = ranges_of_prompt(fields, part)
    model.check_length(part)
    return tokens_of_text(part, ranges, model.encode, begins_itself=model.tokenizer.begins_itself(part))


def _token_ids(values: list[Any], where: str, model: ServedModel) -> list[int]:
    for index, value in enumerate(values):
        if type(value) is not int or not 0 <= value < model.vocab_size:
            raise InvalidRequest(
                f"{where}[{index}] is {shown(value)}",
                hint=f"token ids of this model are whole numbers from 0 to {model.vocab_size - 1}",
                param=where,
            )
    return values


# Chats


def _chat_prompt(fields: Fields, model: ServedModel, *, answering: bool) -> Prompt:
    raw = _raw_messages(fields)
    messages = [_message(message, index) for index, message in enumerate(raw)]
    tools = fields.objects("tools") or None

    def render(shown: Sequence[Mapping[str, Any]], *, answering: bool = False) -> str:
        return model.tokenizer.apply_chat_template(shown, tools=tools, add_generation_prompt=answering)

    def tokens(shown: Sequence[Mapping[str, Any]], *, answering: bool = False) -> bytes:
        return model.encode(render(shown, answering=answering), add_special=False)

    def lasting() -> bytes:
        return lasting_part(messages, tokens)

    ranges = ranges_of_messages(fields, raw)
    if answering and any(ranges):
        text = render(messages, answering=True)
        model.check_length(text)
        ranges_in_text = ranges_in_rendered(messages, ranges, text, partial(render, answering=True))
        pieces = tokens_of_text(text, ranges_in_text, model.encode, begins_itself=True)
    else:
        pieces = Pieces(tokens(messages, answering=True) if answering else lasting(), ())
    run = pieces.run
    begin = fields.get("cache_salt_from")
    if not isinstance(begin, dict):
        return _pinning(fields, replace(_scoped(fields, run), chunks=pieces.chunks), lasting)
    message = Fields(begin, "cache_salt_from.").integer("message")
    if message is None or not 0 <= message <= len(messages):
        fields.refuse("cache_salt_from", f'a token position or {{"message": 0 to {len(messages)}}}')
    # What the template writes for the first messages alone may differ from what it writes for them among others, so
    # the salt begins where the two part: never behind the message, and so never too late.
    before = common_prefix(tokens(messages[:message]), run) if message else 0
    return _pinning(fields, replace(_scoped(fields, run, before), chunks=pieces.chunks), lasting)


def _raw_messages(fields: Fields) -> list[dict[str, Any]]:
    messages = fields.objects("messages")
    if not messages:
        raise InvalidRequest(
            "There are no messages",
            hint='send at least one, such as {"role": "user", "content": "Hi"}',
            param="messages",
        )
    return messages


def _message(message: dict[str, Any], index: int) -> dict[str, Any]:
    """A message whose content is one text, as chat templates expect it."""
    where = f"messages[{index}]"
    role = message.get("role")
    if not isinstance(role, str):
        raise InvalidRequest(
            f"{where}.role is {shown(role)}", hint="it must be a string such as user", param=f"{where}.role"
        )
    content = message.get("content")
    if content is None or isinstance(content, str):
        return message
    if not isinstance(content, list):
        raise InvalidRequest(
            f"{where}.content is {shown(content)}",
            hint="it must be a string or a list of text parts",
            param=f"{where}.content",
        )
    return {
        **message,
        "content": "\n".join(_part_text(part, f"{where}.content[{i}]") for i, part in enumerate(content)),
    }


def _part_text(part: object, where: str) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)} if kind != "text":
            raise InvalidRequest(f"{where} is of type {shown(kind)}", hint="only text can be sent", param=where)
        case _:
            raise InvalidRequest(
                f"{where} is {shown(part)}", hint='it must be {"type": "text", "text": "..."}', param=where
            )


# Pins and salts


def pin_seconds(fields: Fields, name: str) -> float:
    """A field that says how long a prefix is to stay: true for ever, or a number of seconds; 0 where it is not to.

    Raises:
        InvalidRequest: for anything else.
    """
    value = fields.get(name)
    if value is None or value is False:
        return 0.0
    if value is True:
        return inf
    seconds = fields.number(name, 0.0)
    if not 0 < seconds < inf:
        fields.refuse(name, "true, or a number of seconds over 0")
    return seconds


def _pinning(fields: Fields, prompt: Prompt, lasting: Callable[[], bytes] | None = None) -> Prompt:
    """A prompt with the wish to pin that `prefold_pin` says, of all of it or of what lasts."""
    seconds = pin_seconds(fields, "prefold_pin")
    if not seconds:
        return prompt
    run = prompt.run if lasting is None else prompt.run[: common_prefix(lasting(), prompt.run) * WIDTH]
    if prompt.chunks:  # what follows is not in the cache where chunks are reused
        run = run[: prompt.chunks[0][0] * WIDTH]
    return replace(prompt, pin=PinWish(run, seconds)) if run else prompt


def _scoped(fields: Fields, run: bytes, salt_from: int | None = None) -> Prompt:
    """A prompt with the scope that `cache_salt` and `cache_salt_from` give it.

    Args:
        fields: the body.
        run: the tokens.
        salt_from: where the salt begins, where that is known already.

    Raises:
        InvalidSalt: if salt or position cannot be used.
    """
    salt = fields.get("cache_salt")
    begin = fields.get("cache_salt_from") if salt_from is None else salt_from
    if salt is None:
        if begin is not None:
            raise InvalidSalt("cache_salt_from needs cache_salt", hint="give the salt that begins there")
        return Prompt(run, SHARED)
    if begin is None:
        return Prompt(run, Scope(salt))
    if type(begin) is not int or not 0 <= begin <= count(run):
        raise InvalidSalt(
            f"cache_salt_from is {shown(begin)}",
            hint=f'it must be a token position, 0 to {count(run)} for this prompt, or in a chat {{"message": index}}',
        )
    return Prompt(run, Scope(salt, begin))
