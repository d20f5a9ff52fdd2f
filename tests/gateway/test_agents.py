"""A coding agent's recorded requests, sent by real clients through the gateway, to engines and as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")
pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytest.importorskip("torch")
pytest.importorskip("zmq")

import anthropic
import openai
from tests.gateway.engines import Engine, engine
from tests.gateway.support import RunningGateway, Upstream, config_of, eventually, running, serving

from prefold.engine.checkpoint import Checkpoint
from prefold.gateway.events.source import Trust

RECORDED = Path(__file__).parents[3] / "shared/data/traces/swe_agent"
SESSIONS = (  # tools called by function, tools called by function with another issue, commands in the text
    "trajectories_demonstrations_function_calling_simple",
    "trajectories_demonstrations_replay__marshmallow-code__marshmallow-1867__function_calling__",
    "trajectories_demonstrations_ctf_misc_networking_1",
)
MODEL = "smollm2-135m-instruct"
LIMIT = 400  # characters of a message that the small model is shown
TURNS = 4
ANSWER = 5  # tokens
OF_THE_HOP = ("host", "connection", "accept-encoding")
CACHED = {"type": "ephemeral"}

pytestmark = pytest.mark.skipif(not RECORDED.is_dir(), reason="needs ../shared/data/traces/swe_agent")

Messages = list[dict[str, Any]]


@cache
def recorded(session: str) -> Messages:
    """A session in OpenAI's words."""
    [path] = RECORDED.glob(f"{session}*")
    messages = []
    for message in json.loads(path.read_bytes())["history"]:
        kept = {"role": message["role"], "content": message["content"]}
        if message["role"] == "assistant" and message.get("tool_calls"):
            kept["tool_calls"] = message["tool_calls"]
        if message["role"] == "tool":
            [kept["tool_call_id"]] = message["tool_call_ids"]
        messages.append(kept)
    return messages


def requests_of(session: str, turns: int | None = None, limit: int | None = None) -> list[Messages]:
    """What an agent sends: at each turn all that was said before."""
    messages = [{**message, "content": message["content"][:limit]} for message in recorded(session)]
    places = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return [messages[:place] for place in places[:turns]]


def tools_of(session: str) -> list[dict[str, Any]]:
    """The functions that are called in a session, in OpenAI's words."""
    calls = [call["function"] for message in recorded(session) for call in message.get("tool_calls", ())]
    arguments = {call["name"]: sorted(json.loads(call["arguments"])) for call in calls}
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {"type": "object", "properties": {argument: {"type": "string"} for argument in names}},
            },
        }
        for name, names in sorted(arguments.items())
    ]


def as_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message in Anthropic's words."""
    text = {"type": "text", "text": message["content"]}
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": [text]}
        return {"role": "user", "content": [result]}
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "content": [text, *calls]}


def in_anthropics_words(messages: Messages, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """A request with the markers of agents: behind the system prompt, and, moving on, behind the latest message."""
    system, *rest = messages
    said = [as_message(message) for message in rest]
    said[-1]["content"][-1]["cache_control"] = CACHED
    functions = [tool["function"] for tool in tools]
    return {
        "system": [{"type": "text", "text": system["content"], "cache_control": CACHED}],
        "messages": said,
        "tools": [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in functions],
    }


@dataclass
class Wire:
    """What a client sent and got, as its HTTP library saw it."""

    sent: list[Any] = field(default_factory=list)
    got: list[Any] = field(default_factory=list)

    def hooks(self) -> dict[str, Any]:
        return {"request": [self.sent.append], "response": [self.got.append]}


@dataclass(frozen=True)
class Told:
    """What an agent reads in an answer."""

    prompt: int
    cached: int
    replica: str
    reason: str
    matched: int


class OpenAIAgent:
    """An agent that speaks OpenAI's chat API."""

    def __init__(self, gateway: RunningGateway, stack: ExitStack) -> None:
        self.wire = Wire()
        client = stack.enter_context(openai.DefaultHttpxClient(event_hooks=self.wire.hooks()))
        self.sdk = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-own", max_retries=0, http_client=client)

    def ask(self, messages: Messages, tools: list[dict[str, Any]], *, stream: bool) -> tuple[str, int, int]:
        """The answer's text, tokens of the prompt, and how many of them were cached."""
        ask = {"model": MODEL, "messages": messages, "max_tokens": ANSWER, "temperature": 0}
        ask |= {"tools": tools} if tools else {}
        if stream:
            chunks = list(self.sdk.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            usage = chunks[-1].usage
        else:
            answer = self.sdk.chat.completions.create(**ask)
            text, usage = answer.choices[0].message.content, answer.usage
        return text, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens


class AnthropicAgent:
    """An agent that speaks Anthropic's API, with the headers and the query of its beta features."""

    def __init__(self, gateway: RunningGateway, stack: ExitStack) -> None:
        self.wire = Wire()
        client = stack.enter_context(anthropic.DefaultHttpxClient(event_hooks=self.wire.hooks()))
        self.sdk = anthropic.Anthropic(base_url=gateway.url, api_key="sk-own", max_retries=0, http_client=client)

    def ask(self, messages: Messages, tools: list[dict[str, Any]], *, stream: bool) -> tuple[str, int, int]:
        """See `OpenAIAgent.ask`."""
        ask = {
            "model": MODEL,
            "max_tokens": ANSWER,
            "betas": ["a-feature-of-tomorrow-2031-01-01"],
            "extra_query": {"beta": "true"},
            "extra_body": {"temperature": 0},
            **in_anthropics_words(messages, tools),
        }
        if stream:
            with self.sdk.beta.messages.stream(**ask) as events:
                answer = events.get_final_message()
        else:
            answer = self.sdk.beta.messages.create(**ask)
        usage = answer.usage
        return answer.content[0].text, usage.input_tokens + usage.cache_read_input_tokens, usage.cache_read_input_tokens


Agent = OpenAIAgent | AnthropicAgent
AGENTS = pytest.mark.parametrize("agent_of", [OpenAIAgent, AnthropicAgent], ids=["openai", "anthropic"])


# Two engines


@dataclass(frozen=True)
class Fleet:
    """Two engines and the gateway in front of them."""

    engines: list[Engine]
    gateway: RunningGateway

    def empty(self) -> None:
        """Begin with nothing cached."""
        for each in self.engines:
            each.reset()
        knowledge = self.gateway.gateway.app.parts.knowledge
        eventually(lambda: not any(knowledge.index.blocks_of(index) for index in (0, 1)), "empty caches")


@pytest.fixture(scope="module")
def fleet(default_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    # Each may have all the load: among so few and short sessions one would else be sent away for the sake of balance.
    more = '[routing]\npolicy = "exact"\nload_bound = 2\n[health]\nverify_caching = false\n'
    with ExitStack() as stack:
        engines = [stack.enter_context(engine(name, kv_memory="400MiB")) for name in ("one", "two")]
        tables = [f'{each.table}tokenizer = "{default_checkpoint.folder}"\n' for each in engines]
        gateway = stack.enter_context(serving("\n".join([*tables, more]), tmp_path_factory.mktemp("gateway")))
        knowledge = gateway.gateway.app.parts.knowledge
        eventually(lambda: {Trust.EXACT} == {knowledge.trust(index) for index in (0, 1)}, "trust")
        yield Fleet(engines, gateway)


@pytest.fixture(scope="module")
def cold(fleet: Fleet) -> dict[tuple[str, int], str]:
    """What an engine answers that has never seen the session, asked without the gateway; each under its own salt."""
    answers = {}
    for session in SESSIONS:
        for turn, messages in enumerate(requests_of(session, TURNS, LIMIT)):
            body = {"model": MODEL, "messages": messages, "max_tokens": ANSWER, "temperature": 0}
            answer = fleet.engines[turn % 2].post({**body, "cache_salt": f"{session} {turn}"})
            assert 0 == answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            answers[session, turn] = answer["choices"][0]["message"]["content"]
    return answers


@pytest.mark.slow
@AGENTS
def test_sessions_grow_where_they_began(fleet: Fleet, cold: dict[tuple[str, int], str], agent_of: type[Agent]) -> None:
    fleet.empty()
    told: dict[str, list[Told]] = {session: [] for session in SESSIONS}
    reported = fleet.gateway.metric("llm_prefix_cache_hit_tokens_total")
    with ExitStack() as stack:
        agent = agent_of(fleet.gateway, stack)
        for turn in range(TURNS):  # all sessions at once, as on a busy day
            for session in SESSIONS:
                messages = requests_of(session, TURNS, LIMIT)[turn]
                text, prompt, cached = agent.ask(messages, tools_of(session), stream=turn % 2 == 1)
                assert cold[session, turn] == text
                headers = agent.wire.got[-1].headers
                replica, reason, matched = (
                    headers[f"x-prefold-{it}"] for it in ("replica", "reason", "matched-tokens")
                )
                told[session].append(Told(prompt, cached, replica, reason, int(matched)))
    assert {"one", "two"} == {answers[0].replica for answers in told.values()}
    for answers in told.values():
        assert 1 == len({answer.replica for answer in answers})
        for before, now in pairwise(answers):
            assert "exact" == now.reason
            # The prompt of the turn before is there, but for its end, where words may join into other tokens.
            assert before.prompt - 2 <= now.cached < now.prompt
            assert before.cached < now.cached
            assert before.prompt - 16 - 2 <= now.matched <= now.cached  # whole blocks
    cached = sum(answer.cached for answers in told.values() for answer in answers)
    assert cached == fleet.gateway.metric("llm_prefix_cache_hit_tokens_total") - reported


@pytest.mark.slow
def test_the_other_dialect_finds_the_same_prefix(fleet: Fleet) -> None:
    """A session that began in one API's words is at home there in the other's."""
    fleet.empty()
    session = SESSIONS[0]
    first, second, *_ = requests_of(session, TURNS, LIMIT)
    with ExitStack() as stack:
        agents = OpenAIAgent(fleet.gateway, stack), AnthropicAgent(fleet.gateway, stack)
        _, prompt, _ = agents[0].ask(first, tools_of(session), stream=False)
        _, _, cached = agents[1].ask(second, tools_of(session), stream=True)
        assert prompt - 2 <= cached
        homes = [agent.wire.got[-1].headers["x-prefold-replica"] for agent in agents]
    assert homes[0] == homes[1]


# Bytes


@AGENTS
def test_bodies_pass_to_the_byte(agent_of: type[Agent], tmp_path: Path) -> None:
    """Whole requests, nothing shortened: to servers that have both APIs."""
    a, b = Upstream("a"), Upstream("b")
    places: dict[str, str] = {}
    with ExitStack() as stack:
        stack.enter_context(running(a, b))
        config = config_of(a, b, replica=f'speaks = ["openai", "anthropic"]\nmodels = ["{MODEL}"]')
        gateway = stack.enter_context(serving(config, tmp_path))
        agent = agent_of(gateway, stack)
        for session in SESSIONS:
            for turn, messages in enumerate(requests_of(session)):
                agent.ask(messages, tools_of(session), stream=turn % 2 == 1)
                sent, got = agent.wire.sent[-1], agent.wire.got[-1]
                place = places.setdefault(session, got.headers["x-prefold-replica"])
                assert place == got.headers["x-prefold-replica"]
                there = (a if place == "a" else b).requests[-1]
                assert sent.content == there.body
                assert sent.url.raw_path.decode() == there.path
                kept = {name: sent.headers[name] for name in sent.headers if name not in OF_THE_HOP}
                assert kept == {name: there.headers.get(name) for name in kept}
        explained = gateway.post(sent.content, sent.url.path, x_prefold_explain="1").json
        assert [] == explained["transforms"]
    assert len(a.requests) + len(b.requests) == len(agent.wire.sent)
    is_anthropic = agent_of is AnthropicAgent
    assert is_anthropic == ("/v1/messages?beta=true" == there.path)
    assert is_anthropic == ("a-feature-of-tomorrow" in there.headers.get("anthropic-beta", ""))
