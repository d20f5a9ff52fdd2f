# snippet: wrappers, state and other ways round
import json
import os
import time
import uuid
from datetime import datetime as dt

from anthropic import Anthropic
from langchain_core.messages import SystemMessage

client = Anthropic()
BASE = "You are"


class Settings:
    boot = time.time()  # expect: PF301


PROMPTS = {"system": f"x {uuid.uuid4()}", "user": "u"}  # expect: PF302


def wrap(**options):
    return client.messages.create(model="m", **options)


def outer(question, **kwargs):
    return wrap(messages=[], **kwargs)


def node(state):
    state["messages"] = [SystemMessage(content="It is " + dt.now().date().isoformat())]  # expect: PF301
    return state


def a(session, q):
    outer(q, system=f"{BASE} {dt.now()}")  # expect: PF301
    outer(q, metadata={"id": uuid.uuid4()})
    messages = []
    messages.append({"role": "system", "content": "{} {}".format(BASE, os.getpid())})  # expect: PF307
    messages.append({"role": "user", "content": q + str(uuid.uuid4())})
    client.messages.create(system=Settings.boot, messages=messages)
    client.messages.create(system=PROMPTS["user"], messages=[{"role": "system", "content": PROMPTS["system"]}])
    system = " ".join([BASE, f"Session {session.session_id}"])  # expect: PF302
    client.messages.create(system=system, messages=messages)


def register(f):
    return f


@register
def toolset(names: frozenset[str]):
    return [{"name": n} for n in names]  # expect: PF303


client.messages.create(model="x", tools=toolset(frozenset({"a"})), messages=[])


def stream(q):
    parts = []
    for i in range(3):
        parts += [f"{i}"]
    parts.insert(0, f"# {time.strftime('%Y-%m-%d')}")  # expect: PF301
    with client.messages.stream(model="x", system="\n".join(parts), messages=[]) as s:
        return s


def j(cfg: dict, tools: list[dict]):
    merged = {**cfg, "a": 1}
    client.messages.create(model="x", system=f"{json.dumps(merged)}", messages=[])  # expect: PF305
    body = json.dumps({"tools": tools}, separators=(",", ":"))
    client.messages.create(model="x", system=body, messages=[])


# snippet: wrappers that pass volatile values elsewhere
import time
import uuid

from openai import OpenAI

client = OpenAI()


def wrap(**options):
    return client.responses.create(model="gpt-5", **options)


def outer(question, **options):
    return wrap(input=question, **options)


def ask(question, names: list[str], label: str):
    outer(question, metadata={"at": time.time()}, user=uuid.uuid4().hex)
    outer(f"{question} {time.time()}", instructions="Be brief. " + ", ".join(names) + label)
