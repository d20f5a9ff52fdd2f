# Written when the misses of a reviewer's corpus had been mended, and run before anything else was changed:
# 24 of 24 came out right.

# snippet: popen read
import os
from anthropic import Anthropic


def go(q):
    diff = os.popen("git diff --stat").read()  # expect: PF307
    return Anthropic().messages.create(
        model="m",
        max_tokens=5,
        system="You review code.\n" + diff,
        messages=[{"role": "user", "content": q}],
    )


# snippet: subprocess cat, clean
import subprocess
from anthropic import Anthropic


def go(q):
    rules = subprocess.run(["cat", "rules.md"], capture_output=True, text=True).stdout
    return Anthropic().messages.create(
        model="m",
        max_tokens=5,
        system="You review code.\n" + rules,
        messages=[{"role": "user", "content": q}],
    )


# snippet: guarded role
from datetime import datetime
from openai import OpenAI

client = OpenAI()


def with_clock(messages):
    if messages and messages[0].get("role") == "system":
        messages[0]["content"] = f"Now {datetime.now():%H:%M}. " + messages[0]["content"]  # expect: PF301
    return client.chat.completions.create(model="m", messages=messages)


# snippet: guarded user, clean
from datetime import datetime
from openai import OpenAI

client = OpenAI()


def with_clock(messages):
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"] = f"Now {datetime.now():%H:%M}. " + messages[-1]["content"]
    return client.chat.completions.create(model="m", messages=messages)


# snippet: partial callable
from datetime import datetime
from langchain_core.prompts import ChatPromptTemplate


def clock():
    return datetime.now().isoformat()  # expect: PF301


prompt = ChatPromptTemplate.from_messages([("system", "It is {clock}. You help."), ("human", "{q}")]).partial(
    clock=clock
)


# snippet: partial steady, clean
from langchain_core.prompts import ChatPromptTemplate
from datetime import datetime

prompt = ChatPromptTemplate.from_messages([("system", "You speak {language}."), ("human", "{q} at {when}")]).partial(
    language="German"
)


def ask(llm, q):
    return (prompt | llm).invoke({"q": q, "when": datetime.now()})


# snippet: crew
import uuid
from crewai import Agent, Task

scribe = Agent(
    role="Scribe",
    goal="Take notes",
    backstory=f"Working on case {uuid.uuid4()}",  # expect: PF302
)


# snippet: crew task, clean
import uuid
from crewai import Agent, Task

scribe = Agent(role="Scribe", goal="Take notes", backstory="Ten years at court")
task = Task(description=f"Case {uuid.uuid4()}", agent=scribe, expected_output="minutes")


# snippet: annotated depends
import secrets
from typing import Annotated
from fastapi import Depends, FastAPI
from openai import AsyncOpenAI

app = FastAPI()
client = AsyncOpenAI()


async def nonce() -> str:
    return secrets.token_hex(4)  # expect: PF302


@app.get("/")
async def root(q: str, tag: Annotated[str, Depends(nonce)]):
    return await client.responses.create(model="m", instructions=f"<{tag}> Be kind.", input=q)


# snippet: depends settings, clean
from fastapi import Depends, FastAPI
from openai import AsyncOpenAI

app = FastAPI()
client = AsyncOpenAI()


def persona() -> str:
    return "a kind nurse"


@app.get("/")
async def root(q: str, who: str = Depends(persona)):
    return await client.responses.create(model="m", instructions=f"You are {who}.", input=q)


# snippet: subclass attr
import time
from anthropic import Anthropic


class Bot:
    preface = ""

    def ask(self, q):
        return Anthropic().messages.create(
            model="m",
            max_tokens=1,
            system=self.preface + "Be brief.",
            messages=[{"role": "user", "content": q}],
        )


class LiveBot(Bot):
    preface = f"Started {time.time()}. "  # expect: PF301


# snippet: subclass other, clean
import time
from anthropic import Anthropic


class Bot:
    preface = ""

    def ask(self, q):
        return Anthropic().messages.create(
            model="m",
            max_tokens=1,
            system=self.preface + "Be brief.",
            messages=[{"role": "user", "content": q}],
        )


class LiveBot(Bot):
    preface = "Be warm. "

    def started(self):
        return time.time()


# snippet: super init
import socket
from openai import OpenAI


class Base:
    def __init__(self, system):
        self.system = system

    def ask(self, q):
        return OpenAI().responses.create(model="m", instructions=self.system, input=q)


class Worker(Base):
    def __init__(self):
        super().__init__(f"You run on {socket.gethostname()}.")  # expect: PF307


# snippet: super init, clean
import socket
from openai import OpenAI


class Base:
    def __init__(self, system, name):
        self.system = system
        self.name = name

    def ask(self, q):
        return OpenAI().responses.create(model="m", instructions=self.system, input=q)


class Worker(Base):
    def __init__(self):
        super().__init__("You run.", socket.gethostname())


# snippet: filled list
import datetime
from openai import OpenAI


def add_date(lines):
    lines.append("Date: " + datetime.datetime.now().isoformat())  # expect: PF301


def go(q):
    lines = ["You are a notary."]
    add_date(lines)
    return OpenAI().responses.create(model="m", instructions="\n".join(lines), input=q)


# snippet: filled log, clean
import datetime
from openai import OpenAI


def note(log):
    log.append("Date: " + datetime.datetime.now().isoformat())


def go(q):
    log, lines = [], ["You are a notary."]
    note(log)
    return OpenAI().responses.create(model="m", instructions="\n".join(lines), input=q), log


# snippet: orjson
import orjson
import anthropic


def go(profile, q):
    text = orjson.dumps(profile).decode()  # expect: PF305
    return anthropic.Anthropic().messages.create(
        model="m",
        max_tokens=1,
        system=f"Customer: {text}",
        messages=[{"role": "user", "content": q}],
    )


# snippet: partial dumps, clean
import json
from functools import partial
import anthropic

dumps = partial(json.dumps, sort_keys=True, ensure_ascii=False)


def go(profile, q):
    return anthropic.Anthropic().messages.create(
        model="m",
        max_tokens=1,
        system=f"Customer: {dumps(profile)}",
        messages=[{"role": "user", "content": q}],
    )


# snippet: score sort
from operator import itemgetter
from openai import OpenAI


def go(index, q):
    pairs = index.similarity_search_with_relevance_scores(q)
    pairs.sort(key=itemgetter(1), reverse=True)  # expect: PF309
    text = "\n".join(doc.page_content for doc, _ in pairs)
    return OpenAI().responses.create(model="m", instructions="Sources:\n" + text, input=q)


# snippet: score sorted by id, clean
from openai import OpenAI


def go(index, q):
    pairs = index.similarity_search_with_relevance_scores(q)
    docs = sorted((doc for doc, _ in pairs), key=lambda doc: doc.metadata["id"])
    return OpenAI().responses.create(
        model="m",
        instructions="Answer from the sources.",
        input="\n".join(d.page_content for d in docs) + q,
    )


# snippet: contents
from datetime import datetime
from google import genai

RULES = "You are a judge of cookery. " * 30


def go(q):
    return genai.Client().models.generate_content(
        model="gemini-2.5-pro",
        contents=f"{datetime.now()}\n{RULES}\n{q}",  # expect: PF301
    )


# snippet: contents tail, clean
from datetime import datetime
from google import genai

RULES = "You are a judge of cookery. " * 30


def go(q):
    return genai.Client().models.generate_content(model="gemini-2.5-pro", contents=f"{RULES}\n{q}\n{datetime.now()}")


# snippet: cn
import uuid
from zhipuai import ZhipuAI


def wen(question):
    messages = [
        {"role": "system", "content": "编号：" + uuid.uuid4().hex + "。你是客服。"},  # expect: PF302
        {"role": "user", "content": question},
    ]
    return ZhipuAI().chat.completions.create(model="glm-4", messages=messages)


# snippet: cn, clean
import uuid
from zhipuai import ZhipuAI


def wen(question):
    messages = [
        {"role": "system", "content": "你是客服。"},
        {"role": "user", "content": question},
    ]
    return ZhipuAI().chat.completions.create(model="glm-4", messages=messages, request_id=uuid.uuid4().hex)
