# Written when the analyser was finished, and run once before anything was mended: 15 of 15 came out right.

# snippet: celery task with an f-string over several lines
from celery import shared_task
from django.utils import timezone
from openai import OpenAI


@shared_task
def summarise_meeting(meeting_id: int, transcript: str) -> str:
    now = timezone.now()  # expect: PF301
    persona = "\n".join(
        [
            "You are a minute taker.",
            f"Written on {now.isoformat(timespec='minutes')}.",
            "Keep decisions and owners apart.",
        ]
    )
    client = OpenAI()
    response = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "system", "content": persona},
            {"role": "user", "content": transcript},
        ],
    )
    return response.choices[0].message.content


# snippet: prompt registry with class methods
import os

from anthropic import Anthropic


class Prompts:
    BASE = "You review pull requests of a payments team."

    @classmethod
    def reviewer(cls) -> str:
        return cls.BASE + cls.environment()

    @staticmethod
    def environment() -> str:
        return f"\nRunning in {os.getcwd()}"  # expect: PF307


def review(diff: str) -> str:
    message = Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=2048,
        system=Prompts.reviewer(),
        messages=[{"role": "user", "content": diff}],
    )
    return message.content[0].text


# snippet: tool specifications from a registry that is a set
from openai import OpenAI

_registered = set()
client = OpenAI()


def register(function):
    _registered.add(function)
    return function


def specifications():
    return [
        {"type": "function", "function": {"name": function.__name__, "description": function.__doc__}}
        for function in _registered  # expect: PF303
    ]


def turn(messages):
    return client.chat.completions.create(model="gpt-4.1", messages=messages, tools=specifications())


# snippet: gemini with a nested helper
from datetime import datetime

import google.generativeai as genai


def build_model(city: str):
    def clock_line() -> str:
        return "Local time: " + datetime.now().strftime("%I:%M %p")  # expect: PF301

    return genai.GenerativeModel("gemini-1.5-pro", system_instruction=f"You plan trips in {city}. {clock_line()}")


# snippet: async agent loop with a trace id
import uuid

from anthropic import AsyncAnthropic


class Loop:
    def __init__(self, goal: str) -> None:
        self.trace_id = uuid.uuid4()  # expect: PF302
        self.goal = goal
        self.client = AsyncAnthropic()

    async def run(self) -> None:
        blocks = [
            {"type": "text", "text": f"Trace {self.trace_id}"},
            {"type": "text", "text": f"Goal: {self.goal}", "cache_control": {"type": "ephemeral"}},
        ]
        await self.client.messages.create(
            model="claude-opus-4-1", max_tokens=4096, system=blocks, messages=[{"role": "user", "content": "Begin."}]
        )


# snippet: yaml prompt with replaced markers
import time
from pathlib import Path

import yaml
from litellm import completion

PROMPTS = yaml.safe_load(Path("prompts.yaml").read_text())


def chat(question):
    text = PROMPTS["support"].replace("<<TIME>>", time.strftime("%c"))  # expect: PF301
    return completion(
        model="gpt-4o", messages=[{"role": "system", "content": text}, {"role": "user", "content": question}]
    )


# snippet: knowledge base articles from a table
import asyncpg
from openai import AsyncOpenAI

client = AsyncOpenAI()


async def articles(pool: asyncpg.Pool) -> str:
    records = await pool.fetch("SELECT title, body FROM articles WHERE published")  # expect: PF306
    return "\n\n".join(f"# {record['title']}\n{record['body']}" for record in records)


async def answer(pool, question):
    instructions = "Answer from these articles only.\n" + await articles(pool)
    return await client.responses.create(model="gpt-5", instructions=instructions, input=question)


# snippet: nested json in a tool description
import json

from anthropic import Anthropic


def database_tool(tables):
    return {
        "name": "query",
        "description": "Run SQL on these tables: " + json.dumps(tables),  # expect: PF305
        "input_schema": {"type": "object", "properties": {"sql": {"type": "string"}}},
    }


def ask(tables, messages):
    return Anthropic().messages.create(
        model="claude-sonnet-4-5", max_tokens=500, tools=[database_tool(tables)], messages=messages
    )


# snippet: 运维助手
import platform
from datetime import datetime

from openai import OpenAI

client = OpenAI(base_url="https://open.bigmodel.cn/api/paas/v4")


def 构造提示(值班人: str) -> list[dict]:
    头部 = "主机：%s\n时间：%s\n值班：%s\n" % (platform.node(), datetime.now(), 值班人)  # expect: PF307, PF301
    正文 = "你是一名运维助手，先给出结论，再给出排查步骤。"
    return [{"role": "system", "content": 头部 + 正文}]


def 提问(问题, 值班人):
    消息 = 构造提示(值班人)
    消息.append({"role": "user", "content": 问题})
    return client.chat.completions.create(model="glm-4.6", messages=消息)


# snippet: reranked passages joined into a developer message
from openai import OpenAI

client = OpenAI()


def ask(question, passages, reranker):
    ranked = reranker.rerank(question, passages)  # expect: PF309
    evidence = "\n".join(passage["text"] for passage in ranked[:5])
    return client.chat.completions.create(
        model="o4-mini",
        messages=[{"role": "developer", "content": f"Evidence:\n{evidence}"}, {"role": "user", "content": question}],
    )


# snippet: clean telemetry around a model call
import time
import uuid
from datetime import datetime

from anthropic import Anthropic

client = Anthropic()
SYSTEM_PROMPT = "You are a paralegal. Cite the paragraph."


def ask(question, sink):
    span = {"id": uuid.uuid4().hex, "started": datetime.now().isoformat(), "system_prompt": SYSTEM_PROMPT}
    began = time.perf_counter()
    reply = client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=800,
        system=span["system_prompt"],
        messages=[{"role": "user", "content": question}],
        metadata={"user_id": span["id"]},
    )
    sink.write({**span, "seconds": time.perf_counter() - began})
    return reply


# snippet: clean tool that returns the time
from datetime import datetime

from agents import Agent, function_tool


@function_tool
def current_time() -> str:
    """Return the time in ISO form."""
    return datetime.now().isoformat()


agent = Agent(name="Clock", instructions="Tell the time with the tool.", tools=[current_time])


# snippet: clean registry ordered by name
import json
import os

from openai import OpenAI

client = OpenAI()


def load_tools(folder):
    tools = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name)) as file:
                tools.append(json.load(file))
    return tools


def turn(messages):
    return client.chat.completions.create(model="gpt-4.1", messages=messages, tools=load_tools("tools"))


# snippet: clean prompt with the session at the end of the conversation
import uuid
from datetime import datetime, timezone

from anthropic import Anthropic

client = Anthropic()


class Session:
    def __init__(self):
        self.id = uuid.uuid4()
        self.system = "You are a sommelier."
        self.messages = []

    def say(self, text):
        stamp = datetime.now(timezone.utc).isoformat()
        self.messages.append({"role": "user", "content": f"{text}\n<meta session='{self.id}' at='{stamp}'/>"})
        return client.messages.create(
            model="claude-haiku-4-5", max_tokens=300, system=self.system, messages=self.messages
        )


# snippet: clean cache of rendered prompts
import functools
import hashlib
import random

from openai import OpenAI

client = OpenAI(max_retries=random.randint(1, 3))
VARIANTS = {"short": "Be brief.", "long": "Explain at length."}


@functools.lru_cache
def system_prompt(style: str) -> str:
    return VARIANTS[style]


def ask(question, style="short"):
    key = hashlib.md5(system_prompt(style).encode()).hexdigest()
    return client.responses.create(
        model="gpt-5", instructions=system_prompt(style), input=question, prompt_cache_key=key
    )
