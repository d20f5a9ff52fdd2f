"""What a conversation contributes to those that go on with it, found by rendering."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from prefold.core.tokens import pack, unpack
from prefold.errors import InvalidRequest
from prefold.server.lasting import lasting_part

SYSTEM = {"role": "system", "content": "Be kind."}
USER = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello"}

Template = Callable[[Sequence[Mapping[str, Any]]], str]


def chatml(messages: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"<{message['role']}>{message['content']}</>" for message in messages)


def system_in_the_first_question(messages: Sequence[Mapping[str, Any]]) -> str:
    """As Llama 2 does; a system message alone writes nothing."""
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    rest = messages[bool(system) :]
    return "".join(
        f"[INST]{f'<<{system}>>' if system and not at else ''}{message['content']}[/INST]"
        if message["role"] == "user"
        else f"{message['content']}</s>"
        for at, message in enumerate(rest)
    )


def thinking(messages: Sequence[Mapping[str, Any]]) -> str:
    """The last answer keeps its thoughts, earlier ones lose them."""
    texts = [f"<{message['role']}>{message['content']}</>" for message in messages]
    if messages[-1]["role"] == "assistant":
        texts[-1] = f"<assistant><think></think>{messages[-1]['content']}</>"
    return "".join(texts)


def no_end_in_an_open_question(messages: Sequence[Mapping[str, Any]]) -> str:
    """Refuses what does not end with a question."""
    if messages[-1]["role"] != "user":
        raise InvalidRequest("the template says no")
    return chatml(messages)


@pytest.mark.parametrize(
    ("template", "messages", "expected"),
    [
        (chatml, [SYSTEM], "<system>Be kind.</><user>"),
        (chatml, [SYSTEM, USER], "<system>Be kind.</><user>Hi</><assistant>"),
        (chatml, [SYSTEM, USER, ANSWER], "<system>Be kind.</><user>Hi</><assistant>Hello</><user>"),
        (system_in_the_first_question, [SYSTEM], "[INST]<<Be kind.>>"),
        (thinking, [SYSTEM, USER], "<system>Be kind.</><user>Hi</><assistant>"),
        (no_end_in_an_open_question, [SYSTEM], "<system>Be kind.</><user>"),
        (no_end_in_an_open_question, [SYSTEM, USER], "<system>Be kind.</><user>Hi</><assistant>"),
    ],
)
def test_what_lasts(template: Template, messages: list[dict[str, str]], expected: str) -> None:
    lasting = lasting_part(messages, lambda shown: pack([*template(shown).encode()]))
    assert expected == bytes(unpack(lasting)).decode()


def test_a_template_that_takes_nothing_more_gives_what_it_takes() -> None:
    def only_one(messages: Sequence[Mapping[str, Any]]) -> bytes:
        if len(messages) > 1:
            raise InvalidRequest("one message only")
        return pack([*b"<only>"])

    assert b"<only>" == bytes(unpack(lasting_part([USER], only_one)))
