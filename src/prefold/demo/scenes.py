"""What the demo plays: three kinds of traffic, written out in `data/`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from importlib import resources

SCENES = ("agent", "contract", "persona")


@dataclass(frozen=True)
class Scene:
    """Conversations that begin with the same system prompt.

    Attributes:
        name: as in `SCENES`.
        title: what a reader sees.
        about: in one sentence, what is sent again and again.
        answer_tokens: longest answer.
        system: the system prompt.
        chats: for each conversation what its user says, turn by turn. Each turn is a request that sends the whole
            conversation so far.
    """

    name: str
    title: str
    about: str
    answer_tokens: int
    system: str
    chats: tuple[tuple[str, ...], ...]

    @property
    def requests(self) -> int:
        """Number of requests."""
        return sum(len(chat) for chat in self.chats)

    def shortened(self, requests: int) -> Scene:
        """The scene up to and with this many requests."""
        chats = []
        for chat in self.chats:
            if requests <= 0:
                break
            chats.append(chat[:requests])
            requests -= len(chat)
        return replace(self, chats=tuple(chats))


def load_scene(name: str) -> Scene:
    """A scene of `SCENES`, complete."""
    content = tomllib.loads((resources.files(__package__) / "data" / f"{name}.toml").read_text(encoding="utf-8"))
    return Scene(
        name=name,
        title=content["title"],
        about=content["about"],
        answer_tokens=content["answer_tokens"],
        system=content["system"].strip(),
        chats=tuple(tuple(turn.strip() for turn in chat) for chat in content["chats"]),
    )
