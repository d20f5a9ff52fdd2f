# snippet: agent class that keeps its system prompt
from dataclasses import dataclass, field
from datetime import datetime

from openai import OpenAI


@dataclass
class Context:
    name: str
    started: str = field(default_factory=lambda: datetime.now().isoformat())  # expect: PF301


class Agent:
    def __init__(self, context: Context):
        self.client = OpenAI()
        self.context = context
        self.messages = [{"role": "system", "content": self._system()}]

    def _system(self) -> str:
        return f"You are {self.context.name}. Session started {self.context.started}."

    def step(self, text: str):
        self.messages.append({"role": "user", "content": text})
        return self.client.chat.completions.create(model="gpt-5", messages=self.messages)


# snippet: dataclass filled by the caller
from dataclasses import dataclass
from datetime import datetime

import anthropic

client = anthropic.Anthropic()


@dataclass
class Env:
    now: datetime
    locale: str


def system_text(env):
    return f"Locale {env.locale}, clock {env.now:%H:%M}."


def main(question):
    env = Env(now=datetime.now(), locale="en")  # expect: PF301
    return client.messages.create(
        model="claude-haiku-4-5",
        max_tokens=64,
        system=system_text(env),
        messages=[{"role": "user", "content": question}],
    )


# snippet: tools from a set
from anthropic import Anthropic

client = Anthropic()
ENABLED = {"search", "calculator", "calendar"}


def schema(name):
    return {"name": name, "description": f"The tool {name}.", "input_schema": {"type": "object", "properties": {}}}


def run(messages):
    tools = [schema(name) for name in ENABLED]  # expect: PF303
    return client.messages.create(model="claude-sonnet-4-5", max_tokens=1000, tools=tools, messages=messages)


# snippet: capability list joined from a set
from openai import OpenAI

client = OpenAI()


def describe(capabilities: set[str]) -> str:
    return "You can: " + ", ".join(capabilities)  # expect: PF303


def ask(question, capabilities):
    return client.responses.create(model="gpt-5", instructions=describe(capabilities), input=question)


# snippet: set difference and a loop
import litellm

ALL = {"en", "de", "fr", "zh"}


def ask(question: str, blocked: list[str]):
    text = "Languages:"
    for code in ALL - set(blocked):  # expect: PF303
        text += f"\n- {code}"
    return litellm.completion(
        model="gpt-4o", messages=[{"role": "system", "content": text}, {"role": "user", "content": question}]
    )


# snippet: set printed by an f-string
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4o")
TOPICS = {"tax", "pension", "insurance"}


def ask(question):
    system = SystemMessage(content=f"Talk about {TOPICS} only.")  # expect: PF303
    return llm.invoke([system, HumanMessage(content=question)])


# snippet: tool registry serialised without sorted keys
import json

from openai import OpenAI

client = OpenAI()
REGISTRY = {}


def tool(function):
    REGISTRY[function.__name__] = {"doc": function.__doc__, "spec": function.spec}
    return function


def ask(question, registry):
    catalogue = json.dumps(registry)  # expect: PF305
    return client.responses.create(model="gpt-5", instructions="Tools:\n" + catalogue, input=question)


# snippet: json of a parameter that a caller fills from the network
import json

import requests
from anthropic import Anthropic

client = Anthropic()


def render(settings) -> str:
    return "Settings: " + json.dumps(settings, indent=2)  # expect: PF305


def run(question: str):
    settings = requests.get("https://config.example.com/agent").json()
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=render(settings),
        messages=[{"role": "user", "content": question}],
    )


# snippet: skills from a folder
from pathlib import Path

from anthropic import Anthropic

client = Anthropic()
SKILLS = Path(__file__).parent / "skills"


def load_skills() -> str:
    parts = []
    for file in SKILLS.glob("*.md"):  # expect: PF304
        parts.append(f"## {file.stem}\n{file.read_text(encoding='utf-8')}")
    return "\n\n".join(parts)


def run(task):
    return client.messages.create(
        model="claude-opus-4-5",
        max_tokens=2000,
        system="You are a coding agent.\n" + load_skills(),
        messages=[{"role": "user", "content": task}],
    )


# snippet: project tree of the working folder
import os

from openai import OpenAI

client = OpenAI()


class Coder:
    def __init__(self, root: str) -> None:
        self.root = root

    def tree(self) -> str:
        names = os.listdir(self.root)  # expect: PF304
        return "\n".join(names)

    def instructions(self) -> str:
        return f"You edit files.\nFiles:\n{self.tree()}"

    def run(self, task: str):
        return client.responses.create(model="gpt-5-codex", instructions=self.instructions(), input=task)


# snippet: os.walk into a developer message
import os

from openai import OpenAI

client = OpenAI()


def listing(root):
    found = []
    for folder, _, names in os.walk(root):  # expect: PF304
        for name in names:
            found.append(os.path.join(folder, name))
    return found


def ask(question):
    content = "Repository:\n" + "\n".join(listing("src"))
    messages = [{"role": "developer", "content": content}, {"role": "user", "content": question}]
    return client.chat.completions.create(model="o4-mini", messages=messages)


# snippet: pydantic ai decorator
from datetime import datetime

from pydantic_ai import Agent, RunContext

agent = Agent("openai:gpt-5", deps_type=str)


@agent.system_prompt
def add_time(ctx: RunContext[str]) -> str:
    return f"It is {datetime.now()}."  # expect: PF301


# snippet: openai agents with instructions
import platform

from agents import Agent, Runner

helper = Agent(
    name="Helper",
    instructions=f"You help on the machine {platform.node()}.",  # expect: PF307
)


async def main(question):
    return await Runner.run(helper, question)


# snippet: langchain template with a clock placeholder
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

prompt = ChatPromptTemplate.from_messages(
    [
        (
            "system",
            "Now: {current_time}\nYou answer questions about the opening hours of our shops. Answer with the day, the "  # expect: PF308
            "hours and the address, and mention public holidays if the question is about one of them.",
        ),
        ("human", "{question}"),
    ]
)
chain = prompt | ChatOpenAI(model="gpt-4o")

# snippet: langchain system tuple made by a function
import time

from langchain.prompts import ChatPromptTemplate


def make(domain):
    return ChatPromptTemplate.from_messages(
        [("system", f"Expert for {domain}. Epoch {int(time.time())}."), ("human", "{input}")]  # expect: PF301
    )


# snippet: lambda context variable
import contextvars

from anthropic import AsyncAnthropic

request_id_var = contextvars.ContextVar("request_id", default="-")
client = AsyncAnthropic()


async def ask(question: str):
    header = f"id={request_id_var.get()}\nYou are a nurse."  # expect: PF302
    system = [{"type": "text", "text": header, "cache_control": {"type": "ephemeral"}}]
    return await client.messages.create(
        model="claude-sonnet-4-5", max_tokens=100, system=system, messages=[{"role": "user", "content": question}]
    )


# snippet: aws lambda handler
import anthropic

client = anthropic.AnthropicBedrock()


def handler(event, context):
    system = "Function call " + context.aws_request_id + ". Translate to German."  # expect: PF302
    return client.messages.create(
        model="anthropic.claude-haiku-4-5",
        max_tokens=100,
        system=system,
        messages=[{"role": "user", "content": event["text"]}],
    )


# snippet: shuffled few-shot examples
import random

from openai import OpenAI

client = OpenAI()
EXAMPLES = ["2+2=4", "3+5=8", "7-1=6"]


def ask(question):
    shots = list(EXAMPLES)
    random.shuffle(shots)  # expect: PF302
    system_prompt = "Calculate.\n" + "\n".join(shots)
    return client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": system_prompt}, {"role": "user", "content": question}],
    )


# snippet: greeting chosen by the clock
from datetime import datetime

from openai import OpenAI

client = OpenAI()
GREETINGS = ["Good night", "Good morning", "Good afternoon", "Good evening"]


def ask(question):
    greeting = GREETINGS[datetime.now().hour // 6]  # expect: PF301
    return client.responses.create(model="gpt-5", instructions=f"Begin with '{greeting}'.", input=question)


# snippet: inherited prompt builder
import os

from anthropic import Anthropic


class Base:
    def __init__(self):
        self.client = Anthropic()

    def system(self):
        return f"Process {os.getpid()}."  # expect: PF307

    def ask(self, question):
        return self.client.messages.create(
            model="claude-sonnet-4-5",
            max_tokens=9,
            system=self.system(),
            messages=[{"role": "user", "content": question}],
        )


class Math(Base):
    def ask_math(self, question):
        return self.ask("Calculate " + question)


# snippet: cached content named by a random id
import uuid

from google import genai
from google.genai import types

client = genai.Client()


def cache_name():
    return f"cachedContents/{uuid.uuid4().hex}"  # expect: PF302


def ask(text):
    return client.models.generate_content(
        model="gemini-2.5-pro", contents=text, config=types.GenerateContentConfig(cached_content=cache_name())
    )
