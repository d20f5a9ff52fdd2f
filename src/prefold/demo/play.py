"""Playing a scene twice: once with the prefix cache off, once with it on, and comparing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, Protocol

from prefold.core.tokens import count
from prefold.demo.scenes import Scene

Mode = Literal["off", "on"]
Message = dict[str, str]


@dataclass(frozen=True)
class Reply:
    """The answer to one request.

    Attributes:
        text: the answer.
        tokens: its token ids, one that ended it included.
        cached: prompt tokens that were not computed.
        ttft: seconds from the request to the first token, None if nothing was computed.
        wall: seconds from the request to the last token, None likewise.
    """

    text: str
    tokens: tuple[int, ...]
    cached: int
    ttft: float | None
    wall: float | None


class Player(Protocol):
    """Whatever answers requests over a prefix cache."""

    def prompt(self, messages: Sequence[Message]) -> bytes:
        """The tokens of a conversation, ready for an answer; packed as in `core.tokens`."""

    def answer(self, prompt: bytes, max_tokens: int) -> Reply:
        """Answer one request, greedily, using and feeding the cache."""

    def forget(self) -> None:
        """Empty the cache."""


@dataclass(frozen=True)
class Exchange:
    """One request and its answers with the cache off and on."""

    prompt: bytes
    off: Reply
    on: Reply


@dataclass(frozen=True)
class SceneResult:
    """A scene that was played.

    Attributes:
        scene: what was played.
        exchanges: its requests in order.
    """

    scene: Scene
    exchanges: tuple[Exchange, ...]

    @property
    def tokens_sent(self) -> int:
        """Input tokens of all requests."""
        return sum(count(exchange.prompt) for exchange in self.exchanges)

    @property
    def tokens_hit(self) -> int:
        """Input tokens that the cache served."""
        return sum(exchange.on.cached for exchange in self.exchanges)

    @property
    def tokens_recomputed(self) -> int:
        """Input tokens that were computed although the cache was on."""
        return self.tokens_sent - self.tokens_hit

    @property
    def hit_rate(self) -> float:
        """Input tokens served from cache divided by input tokens."""
        return self.tokens_hit / self.tokens_sent

    @property
    def differing(self) -> int:
        """Number of answers that the cache changed."""
        return sum(exchange.off.tokens != exchange.on.tokens for exchange in self.exchanges)

    def replies(self, mode: Mode) -> list[Reply]:
        """The answers of one pass."""
        return [exchange.off if mode == "off" else exchange.on for exchange in self.exchanges]

    def ttft(self, mode: Mode) -> float | None:
        """Median time to the first token, in seconds; None if nothing was computed."""
        times = [reply.ttft for reply in self.replies(mode) if reply.ttft is not None]
        return median(times) if times else None

    def wall(self, mode: Mode) -> float | None:
        """Time that all requests took, one after the other, in seconds; None if nothing was computed."""
        times = [reply.wall for reply in self.replies(mode) if reply.wall is not None]
        return sum(times) if times else None


def play(scene: Scene, player: Player, on_reply: Callable[[Mode], None]) -> SceneResult:
    """Play a scene with the cache off, then the very same prompts with the cache on.

    Off means that the cache is emptied before each request, so both passes run the same code on the same model, one
    request at a time. The answers of the first pass go into its conversations. The second pass sends the prompts of the
    first, so that they are the same even where rounding makes an answer differ.

    Args:
        scene: what to play.
        player: who answers.
        on_reply: called after each answer, with the pass it belongs to.
    """
    prompts: list[bytes] = []
    off: list[Reply] = []
    for prompt, reply in _converse(scene, player):
        prompts.append(prompt)
        off.append(reply)
        on_reply("off")
    player.forget()
    on = []
    for prompt in prompts:
        on.append(player.answer(prompt, scene.answer_tokens))
        on_reply("on")
    return SceneResult(scene, tuple(Exchange(*row) for row in zip(prompts, off, on, strict=True)))


def _converse(scene: Scene, player: Player) -> Iterator[tuple[bytes, Reply]]:
    """Each request of a scene and its answer, from an empty cache."""
    for chat in scene.chats:
        messages: list[Message] = [{"role": "system", "content": scene.system}]
        for said in chat:
            messages.append({"role": "user", "content": said})
            prompt = player.prompt(messages)
            player.forget()
            reply = player.answer(prompt, scene.answer_tokens)
            messages.append({"role": "assistant", "content": reply.text})
            yield prompt, reply
