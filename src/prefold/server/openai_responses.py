"""What clients get: answers, stream chunks, usage and errors in the shapes of OpenAI's API. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prefold.engine.request import BlendUsage, FinishReason, Output, TokenInfo, TokenLogprob, Usage
from prefold.engine.tokenizer import Tokenizer
from prefold.errors import (
    CapacityError,
    EngineFailed,
    EngineStopped,
    InvalidRequest,
    InvalidSalt,
    InvalidTokens,
    NoRoom,
    PrefoldError,
    PromptTooLong,
)
from prefold.server.asgi import HttpError

Json = dict[str, Any]

# Status, code and field of each kind of error; the first that fits counts.
_STATUSES: tuple[tuple[type[PrefoldError], tuple[int, str | None, str | None]], ...] = (
    (PromptTooLong, (400, "context_length_exceeded", None)),
    (InvalidRequest, (400, None, None)),
    (InvalidTokens, (400, None, "prompt")),
    (InvalidSalt, (400, None, "cache_salt")),
    (CapacityError, (409, "insufficient_memory", None)),
    (EngineFailed, (500, "engine_error", None)),
    (NoRoom, (503, "insufficient_memory", None)),
    (EngineStopped, (503, "engine_stopped", None)),
)

_LOWEST_LOGPROB = -9999.0  # what OpenAI writes for impossible tokens; JSON has no infinity


@dataclass(frozen=True)
class Head:
    """What every object of one answer begins with.

    Attributes:
        id: of the request.
        created: Unix time in seconds.
        model: name of the model.
    """

    id: str
    created: int
    model: str

    def object(self, kind: str, **rest: Any) -> Json:
        """An object of this kind."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, **rest}


@dataclass
class Choice:
    """One answer, put together.

    Attributes:
        text: what was generated.
        infos: log-probabilities of each token, where asked for.
        finish: why it ended.
    """

    text: str = ""
    infos: list[TokenInfo] = field(default_factory=list)
    finish: FinishReason | None = None

    def add(self, output: Output) -> None:
        """Take in what happened next."""
        self.text += output.text
        self.infos += output.infos
        self.finish = output.finish


class Form(Protocol):
    """How the answers of one request are written; made anew for each request."""

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        """The body of a response that is not streamed."""

    def chunks(self, index: int, output: Output) -> Iterator[Json]:
        """The stream chunks that tell of one output of choice `index`."""

    def usage_chunk(self, usage: Json) -> Json:
        """The last chunk of a stream, with the usage alone."""


class ChatForm:
    """Chat completions.

    Args:
        head: see `Head`.
        tokenizer: for the texts of single tokens.
        logprobs: whether they are asked for.
        include_usage: whether the stream ends with the usage; its other chunks then say `usage: null`.
    """

    def __init__(self, head: Head, tokenizer: Tokenizer, *, logprobs: bool, include_usage: bool) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._usage: Json = {"usage": None} if include_usage else {}
        self._begun: set[int] = set()

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        """See `Form`."""
        answers = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._log_probabilities(choice.infos),
                "finish_reason": choice.finish,
            }
            for index, choice in enumerate(choices)
        ]
        return self._head.object("chat.completion", choices=answers, usage=usage)

    def chunks(self, index: int, output: Output) -> Iterator[Json]:
        """See `Form`. A choice begins with its role and ends with a chunk of its own."""
        if index not in self._begun:
            self._begun.add(index)
            yield self._chunk(index, {"role": "assistant", "content": ""})
        if output.text or output.infos:
            yield self._chunk(index, {"content": output.text}, self._log_probabilities(output.infos))
        if output.finish:
            yield self._chunk(index, {}, finish=output.finish)

    def usage_chunk(self, usage: Json) -> Json:
        """See `Form`."""
        return self._head.object("chat.completion.chunk", choices=[], usage=usage)

    def _chunk(self, index: int, delta: Json, logprobs: Json | None = None, finish: FinishReason | None = None) -> Json:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._head.object("chat.completion.chunk", choices=[choice], **self._usage)

    def _log_probabilities(self, infos: Iterable[TokenInfo]) -> Json | None:
        if not self._logprobs:
            return None
        content = [
            {**self._entry(info.chosen), "top_logprobs": [self._entry(other) for other in info.likeliest]}
            for info in infos
        ]
        return {"content": content, "refusal": None}

    def _entry(self, item: TokenLogprob) -> Json:
        return {
            "token": self._tokenizer.token_text(item.token),
            "logprob": max(item.logprob, _LOWEST_LOGPROB),
            "bytes": list(self._tokenizer.token_bytes(item.token)),
        }


class CompletionForm:
    """Completions; arguments as for `ChatForm`."""

    def __init__(self, head: Head, tokenizer: Tokenizer, *, logprobs: bool, include_usage: bool) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._usage: Json = {"usage": None} if include_usage else {}
        self._offsets: dict[int, int] = {}

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        """See `Form`."""
        answers = [
            {
                "index": index,
                "text": choice.text,
                "logprobs": self._log_probabilities(index, choice.infos),
                "finish_reason": choice.finish,
            }
            for index, choice in enumerate(choices)
        ]
        return self._head.object("text_completion", choices=answers, usage=usage)

    def chunks(self, index: int, output: Output) -> Iterator[Json]:
        """See `Form`."""
        if output.text or output.infos or output.finish:
            choice = {
                "index": index,
                "text": output.text,
                "logprobs": self._log_probabilities(index, output.infos),
                "finish_reason": output.finish,
            }
            yield self._head.object("text_completion", choices=[choice], **self._usage)

    def usage_chunk(self, usage: Json) -> Json:
        """See `Form`."""
        return self._head.object("text_completion", choices=[], usage=usage)

    def _log_probabilities(self, index: int, infos: Iterable[TokenInfo]) -> Json | None:
        if not self._logprobs:
            return None
        offset = self._offsets.get(index, 0)
        tokens: list[str] = []
        offsets: list[int] = []
        own: list[float] = []
        likeliest: list[dict[str, float]] = []
        for info in infos:
            tokens.append(self._tokenizer.token_text(info.chosen.token))
            offsets.append(offset)
            offset += len(tokens[-1])
            own.append(max(info.chosen.logprob, _LOWEST_LOGPROB))
            # The chosen token is among them in OpenAI's form, even where it is not among the likeliest.
            likeliest.append(
                {
                    self._tokenizer.token_text(item.token): max(item.logprob, _LOWEST_LOGPROB)
                    for item in (*info.likeliest, info.chosen)
                }
            )
        self._offsets[index] = offset
        return {"tokens": tokens, "token_logprobs": own, "top_logprobs": likeliest, "text_offset": offsets}


def usage_object(usages: Iterable[Usage]) -> Json:
    """The usage of one answer, summed over its prompts."""
    prompt = cached = completion = 0
    blend: BlendUsage | None = None
    for usage in usages:
        blend = blend or usage.blend  # chunks are marked in single prompts only
        prompt += usage.prompt
        cached += usage.cached
        completion += usage.completion
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        **({} if blend is None else {"prefold_blend": _blend_object(blend)}),
    }


def _blend_object(blend: BlendUsage) -> Json:
    counts = {
        "approximate": not blend.is_exact,
        "chunks": blend.chunks,
        "reused_chunks": blend.reused,
        "reused_tokens": blend.reused_tokens,
        "recomputed_tokens": blend.recomputed_tokens,
    }
    return counts | ({"reason": blend.reason} if blend.reason else {})


def as_http_error(error: PrefoldError) -> HttpError:
    """An error with the status that clients get for it."""
    if isinstance(error, HttpError):
        return error
    known = (answer for kind, answer in _STATUSES if isinstance(error, kind))
    status, code, param = next(known, (500, None, None))
    if isinstance(error, InvalidRequest):
        param = error.param
    return HttpError(status, error.message, hint=error.hint, code=code, param=param)


def error_body(error: HttpError) -> Json:
    """The body of an error response; its message includes the hint."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}
