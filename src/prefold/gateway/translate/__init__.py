"""Between Anthropic's Messages API and OpenAI's chat completions: requests, answers, streams and errors, both ways.

Nothing here does I/O. A `Translation` is made for one call and holds its request for the other API and what turns the
answer back. Cache markers go along in both directions, and so do the numbers of cached tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from prefold.gateway.call import Api
from prefold.gateway.config import Kind
from prefold.gateway.translate import errors
from prefold.gateway.translate.anthropic_client import answer as message_answer
from prefold.gateway.translate.anthropic_client import request as message_request
from prefold.gateway.translate.anthropic_client.stream import MessageStream
from prefold.gateway.translate.openai_client import answer as chat_answer
from prefold.gateway.translate.openai_client import request as chat_request
from prefold.gateway.translate.openai_client.stream import ChatStream
from prefold.gateway.translate.shapes import Json
from prefold.gateway.translate.stream import StreamTranslator

__all__ = ["Json", "StreamTranslator", "Translation", "translate"]


@dataclass(frozen=True, slots=True)
class Translation:
    """One call in the words of the other API.

    Attributes:
        api: where it goes upstream.
        body: what goes there.
        answer: the client's answer, from a whole one with a status below 400; raises `UpstreamFailed` where it is none.
        stream: makes what translates a stream.
        error: the client's error, from the status and body of the upstream's; the status stays.
    """

    api: Api
    body: Json
    answer: Callable[[Json], Json]
    stream: Callable[[], StreamTranslator]
    error: Callable[[int, bytes | Json], Json]


def translate(api: Api, fields: Mapping[str, Any], kind: Kind, created: int) -> Translation | None:
    """A call for an upstream that speaks only the other API.

    Args:
        api: where the call came in.
        fields: its body.
        kind: what the upstream is.
        created: Unix time in seconds, for answers that say it.

    Returns:
        None for calls that the other API has nothing for: completions, responses, embeddings. For counts of tokens see
        `counting`.

    Raises:
        InvalidRequest: naming the field that has the wrong form, or that the other API cannot say.
    """
    if api is Api.MESSAGES:
        return Translation(
            Api.CHAT,
            message_request.to_openai(fields, kind),
            message_answer.to_anthropic,
            MessageStream,
            errors.to_anthropic,
        )
    if api is Api.CHAT:
        return Translation(
            Api.MESSAGES,
            chat_request.to_anthropic(fields),
            partial(chat_answer.to_openai, created=created),
            partial(ChatStream, created, include_usage=chat_request.wants_usage(fields)),
            errors.to_openai,
        )
    return None
