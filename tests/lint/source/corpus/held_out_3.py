# The other half of held_out_2.py: 24 of 24 came out right.

# snippet: iterdir loop
from pathlib import Path
import ollama


def go(q):
    system = "Skills:\n"
    for file in Path("skills").iterdir():  # expect: PF304
        system += file.read_text()
    return ollama.chat(
        model="m",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": q}],
    )


# snippet: iterdir count, clean
from pathlib import Path
import ollama


def go(q):
    count = sum(1 for _ in Path("skills").iterdir())
    return ollama.chat(
        model="m",
        messages=[
            {"role": "system", "content": f"You have {count} skills."},
            {"role": "user", "content": q},
        ],
    )


# snippet: set diff
from openai import OpenAI

ALL = {"de", "fr", "en"}


def go(q, done):
    left = ALL - set(done)
    return OpenAI().responses.create(
        model="m",
        instructions=f"Translate into {', '.join(left)}.",  # expect: PF303
        input=q,
    )


# snippet: json flat, clean
import json
from openai import OpenAI


def go(q, rows):
    return OpenAI().responses.create(
        model="m", instructions="Names: " + json.dumps([row.name for row in rows]), input=q
    )


# snippet: adk
from datetime import date
from google.adk.agents import LlmAgent

agent = LlmAgent(
    name="x",
    model="gemini-2.5-flash",
    instruction=f"Today is {date.today()}. Plan trips.",  # expect: PF301
)


# snippet: adk, clean
from datetime import date
from google.adk.agents import LlmAgent


def today() -> str:
    """Tool: the date."""
    return str(date.today())


agent = LlmAgent(
    name="x",
    model="gemini-2.5-flash",
    instruction="Plan trips. Ask the tool for the date.",
    tools=[today],
)


# snippet: prompt variables
import time
from langchain_core.prompts import ChatPromptTemplate

P = ChatPromptTemplate(
    messages=[("system", "Clock: {clock}. Be exact."), ("human", "{q}")],
    partial_variables={"clock": time.ctime()},  # expect: PF301
)


# snippet: template from file, clean
from pathlib import Path
from langchain_core.prompts import ChatPromptTemplate

P = ChatPromptTemplate.from_messages([("system", Path("s.txt").read_text()), ("human", "{q}")])


# snippet: yield parts
import random
from mistralai import Mistral


def parts():
    yield "You tell riddles."
    yield f"Seed {random.random()}"  # expect: PF302


def go(q):
    return Mistral().chat.complete(
        model="m",
        messages=[
            {"role": "system", "content": "\n".join(parts())},
            {"role": "user", "content": q},
        ],
    )


# snippet: random temperature, clean
import random
from mistralai import Mistral


def go(q):
    return Mistral().chat.complete(
        model="m",
        temperature=random.random(),
        messages=[
            {"role": "system", "content": "You tell riddles."},
            {"role": "user", "content": q},
        ],
    )


# snippet: asyncio proc
import asyncio
from anthropic import AsyncAnthropic


async def go(q):
    proc = await asyncio.create_subprocess_exec(  # expect: PF307
        "git", "status", "-sb", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await proc.communicate()
    return await AsyncAnthropic().messages.create(
        model="m",
        max_tokens=1,
        system="Repo:\n" + out.decode(),
        messages=[{"role": "user", "content": q}],
    )


# snippet: git show, clean
import subprocess
from anthropic import AsyncAnthropic


async def go(q):
    code = subprocess.call(["git", "fetch"])
    if code:
        raise RuntimeError(code)
    return await AsyncAnthropic().messages.create(
        model="m",
        max_tokens=1,
        system="You code.",
        messages=[{"role": "user", "content": q}],
    )


# snippet: env template
import getpass
from jinja2 import Template
from openai import OpenAI

T = Template("Hello {{ who }}, you are root. Rules follow.")


def go(q):
    return OpenAI().responses.create(
        model="m",
        instructions=T.render(who=getpass.getuser()),  # expect: PF307
        input=q,
    )


# snippet: dictcomp, clean
import json
from openai import OpenAI

CFG = {"a": 1, "b": [1, 2]}


def go(q):
    return OpenAI().responses.create(
        model="m",
        instructions=json.dumps(CFG) + json.dumps({k: CFG[k] for k in sorted(CFG)}),
        input=q,
    )


# snippet: lookup dict
from datetime import datetime
from openai import OpenAI


def go(q):
    prompts = {"de": f"Es ist {datetime.now()}.", "en": "You help."}  # expect: PF301
    return OpenAI().responses.create(model="m", instructions=prompts["de"], input=q)


# snippet: lookup dict, clean
from datetime import datetime
from openai import OpenAI


def go(q):
    prompts = {"de": f"Es ist {datetime.now()}.", "en": "You help."}
    print(prompts["de"])
    return OpenAI().responses.create(model="m", instructions=prompts["en"], input=q)


# snippet: sdk positional
import time
from langchain_openai import ChatOpenAI


def go(q):
    return ChatOpenAI().invoke([("system", f"t={time.time()} You help."), ("human", q)])  # expect: PF301


# snippet: cache key, clean
import time
from openai import OpenAI


def go(q):
    started = time.monotonic()
    r = OpenAI().responses.create(model="m", instructions="You help.", input=q, prompt_cache_key="support-v1")
    print("prompt took", time.monotonic() - started)
    return r


# snippet: tools desc
from datetime import datetime
from anthropic import Anthropic


def tools():
    return [
        {
            "name": "book",
            "description": f"Books a room. Now: {datetime.now()}",  # expect: PF301
            "input_schema": {"type": "object"},
        }
    ]


def go(q):
    return Anthropic().messages.create(
        model="m", max_tokens=1, tools=tools(), messages=[{"role": "user", "content": q}]
    )


# snippet: tool run, clean
from datetime import datetime
from anthropic import Anthropic

TOOLS = [{"name": "now", "description": "Tells the time.", "input_schema": {"type": "object"}}]


def run(name):
    return str(datetime.now())


def go(q):
    return Anthropic().messages.create(model="m", max_tokens=1, tools=TOOLS, messages=[{"role": "user", "content": q}])


# snippet: runnable map
from datetime import datetime
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_openai import ChatOpenAI

p = ChatPromptTemplate.from_messages([("system", "{now} Help."), ("human", "{q}")])
chain = (
    {"now": lambda _: datetime.now().isoformat(), "q": RunnablePassthrough()}  # expect: PF301
    | p
    | ChatOpenAI()
)


# snippet: loop system removed, clean
from openai import OpenAI
import time


def go(messages):
    for m in messages:
        if m["role"] == "user":
            m["content"] = f"[{time.time()}] {m['content']}"
    return OpenAI().chat.completions.create(model="m", messages=messages)


# snippet: for system
from openai import OpenAI
import time


def go(messages):
    for m in messages:
        if m["role"] == "system":
            m["content"] += f" [{time.time()}]"  # expect: PF301
    return OpenAI().chat.completions.create(model="m", messages=messages)


# snippet: msgspec, clean
import json
from openai import OpenAI

OPTS = {"sort_keys": True}


def go(q, cfg):
    return OpenAI().responses.create(model="m", instructions=json.dumps(cfg, **OPTS), input=q)
