# Written to be harder than held_out_2.py and run once before anything was mended: 17 of 20 came out right. Missed were a
# dict of the module that another function fills, and a decorator; a false alarm was the other attribute of a namespace.

# snippet: contextvar
from contextvars import ContextVar
from openai import OpenAI

request_id: ContextVar[str] = ContextVar("request_id")


def go(q):
    return OpenAI().responses.create(
        model="m",
        instructions=f"[{request_id.get()}] Help.",  # expect: PF302
        input=q,
    )


# snippet: logging filter, clean
import logging, uuid
from openai import OpenAI


class AddId(logging.Filter):
    def filter(self, record):
        record.request_id = uuid.uuid4().hex
        return True


def go(q):
    return OpenAI().responses.create(model="m", instructions="Help.", input=q)


# snippet: dataclass post init
from dataclasses import dataclass
from datetime import datetime
from anthropic import Anthropic


@dataclass
class Persona:
    name: str
    stamp: str = ""

    def __post_init__(self):
        self.stamp = datetime.now().isoformat()  # expect: PF301

    def prompt(self):
        return f"You are {self.name}. {self.stamp}"


def go(q):
    return Anthropic().messages.create(
        model="m",
        max_tokens=1,
        system=Persona("Ada").prompt(),
        messages=[{"role": "user", "content": q}],
    )


# snippet: dataclass field unused, clean
from dataclasses import dataclass, field
from datetime import datetime
from anthropic import Anthropic


@dataclass
class Persona:
    name: str
    made: datetime = field(default_factory=datetime.now)

    def prompt(self):
        return f"You are {self.name}."


def go(q):
    return Anthropic().messages.create(
        model="m",
        max_tokens=1,
        system=Persona("Ada").prompt(),
        messages=[{"role": "user", "content": q}],
    )


# snippet: write stringio
import io, time
from openai import OpenAI


def go(q):
    out = io.StringIO()
    out.write("You help. ")
    out.write(time.ctime())  # expect: PF301
    return OpenAI().responses.create(model="m", instructions=out.getvalue(), input=q)


# snippet: dict order, clean
from openai import OpenAI

TOPICS = {"b": 1, "a": 2}


def go(q):
    return OpenAI().responses.create(
        model="m",
        instructions=", ".join(TOPICS) + " ".join(f"{k}={v}" for k, v in TOPICS.items()),
        input=q,
    )


# snippet: global state
import uuid
from openai import OpenAI

STATE = {}


def start():
    STATE["session"] = str(uuid.uuid4())  # expect: PF302


def go(q):
    return OpenAI().responses.create(model="m", instructions=f"Session {STATE['session']}. Help.", input=q)


# snippet: global state, clean
import uuid
from openai import OpenAI

STATE = {"persona": "Ada"}


def start():
    STATE["session"] = str(uuid.uuid4())


def go(q):
    return OpenAI().responses.create(
        model="m",
        instructions=f"You are {STATE['persona']}. Help.",
        input=q,
        user=STATE["session"],
    )


# snippet: classmethod, clean
from openai import OpenAI


class P:
    text = "You are a clerk."

    @classmethod
    def get(cls):
        return cls.text


def go(q):
    return OpenAI().responses.create(model="m", instructions=P.get(), input=q)


# snippet: tuple return
import time
from openai import OpenAI


def build(q):
    return f"Now {time.time()}. Help.", q  # expect: PF301


def go(q):
    system, user = build(q)
    return OpenAI().chat.completions.create(
        model="m",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": user}],
    )


# snippet: tuple return, clean
import time
from openai import OpenAI


def build(q):
    return "Help.", f"Now {time.time()}. {q}"


def go(q):
    system, user = build(q)
    return OpenAI().chat.completions.create(
        model="m",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": user}],
    )


# snippet: timezone zone
from datetime import datetime
from zoneinfo import ZoneInfo
import anthropic


def go(q):
    system = [
        "You plan trips.",
        "Local time: {0:%H:%M}".format(datetime.now(ZoneInfo("Asia/Tokyo"))),  # expect: PF301
    ]
    return anthropic.Anthropic().messages.create(
        model="m",
        max_tokens=1,
        system=" ".join(system),
        messages=[{"role": "user", "content": q}],
    )


# snippet: deadline, clean
from datetime import date
import anthropic

DEADLINE = date(2027, 1, 1)


def go(q):
    return anthropic.Anthropic().messages.create(
        model="m",
        max_tokens=1,
        system=f"Deadline {DEADLINE:%d %B}.",
        messages=[{"role": "user", "content": q}],
    )


# snippet: set in json
import json
from openai import OpenAI


def go(q, names):
    return OpenAI().responses.create(
        model="m",
        instructions="Allowed: " + json.dumps(list(set(names))),  # expect: PF303
        input=q,
    )


# snippet: counter, clean
from collections import Counter
from openai import OpenAI


def go(q, names):
    top = Counter(names).most_common(3)
    return OpenAI().responses.create(model="m", instructions="Top: " + ", ".join(sorted(n for n, _ in top)), input=q)


# snippet: mongo
from pymongo import MongoClient
from openai import OpenAI

db = MongoClient().shop


def go(q):
    faqs = [d["text"] for d in db.faqs.find({"live": True})]  # expect: PF306
    return OpenAI().responses.create(model="m", instructions="\n".join(faqs), input=q)


# snippet: mongo sorted, clean
from pymongo import MongoClient
from openai import OpenAI

db = MongoClient().shop


def go(q):
    faqs = [d["text"] for d in db.faqs.find({"live": True}).sort("_id", 1)]
    return OpenAI().responses.create(model="m", instructions="\n".join(faqs), input=q)


# snippet: settings obj
import secrets
from types import SimpleNamespace
from openai import OpenAI

ctx = SimpleNamespace(tag=secrets.token_hex(3), name="Ada")  # expect: PF302


def go(q):
    return OpenAI().responses.create(model="m", instructions=f"<{ctx.tag}> Help.", input=q)


# snippet: settings obj, clean
import secrets
from types import SimpleNamespace
from openai import OpenAI

ctx = SimpleNamespace(tag=secrets.token_hex(3), name="Ada")


def go(q):
    return OpenAI().responses.create(model="m", instructions=f"You are {ctx.name}. Help.", input=q)


# snippet: decorator that puts a clock first
from datetime import datetime

from openai import OpenAI


def stamped(f):
    def inner(*args):
        return f"{datetime.now()}\n" + f(*args)  # expect: PF301

    return inner


@stamped
def persona():
    return "You are a clerk."


def go(q):
    return OpenAI().responses.create(model="m", instructions=persona(), input=q)
