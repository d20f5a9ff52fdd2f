"""The texts that the demo plays."""

import pytest

from prefold.demo.scenes import SCENES, Scene, load_scene


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_is_complete(name: str) -> None:
    scene = load_scene(name)
    assert name == scene.name
    assert scene.title
    assert scene.about.endswith(".")
    assert scene.answer_tokens >= 1
    texts = [scene.system, *(turn for chat in scene.chats for turn in chat)]
    assert all(text and text == text.strip() for text in texts)
    assert sum(len(chat) for chat in scene.chats) == scene.requests


def test_the_agent_resends_one_growing_context_and_the_others_start_afresh() -> None:
    agent, contract, persona = (load_scene(name) for name in SCENES)
    assert 1 == len(agent.chats)
    assert agent.requests >= 8
    assert {1} == {len(chat) for chat in contract.chats}
    assert len(contract.chats) >= 10
    assert len(persona.chats) >= 10
    assert 2 == max(len(chat) for chat in persona.chats)


def test_shortened_keeps_the_first_requests() -> None:
    scene = Scene("name", "title", "about.", 1, "system", (("a", "b"), ("c",), ("d", "e", "f")))
    assert (("a",),) == scene.shortened(1).chats
    assert (("a", "b"), ("c",)) == scene.shortened(3).chats
    assert (("a", "b"), ("c",), ("d", "e")) == scene.shortened(5).chats
    assert scene == scene.shortened(6) == scene.shortened(60)
