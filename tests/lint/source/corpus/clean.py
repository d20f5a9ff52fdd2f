# snippet: clock in a log line
import logging
from datetime import datetime

from anthropic import Anthropic

client = Anthropic()
log = logging.getLogger(__name__)
SYSTEM_PROMPT = "You are a support agent."


def ask(question):
    log.info("system prompt sent at %s", datetime.now())
    print(f"{datetime.now()}: asking with {SYSTEM_PROMPT}")
    return client.messages.create(
        model="claude-sonnet-4-5", max_tokens=1, system=SYSTEM_PROMPT, messages=[{"role": "user", "content": question}]
    )


# snippet: uuid as an idempotency key and in metadata
import uuid

from openai import OpenAI

client = OpenAI()


def ask(question, user):
    request_id = str(uuid.uuid4())
    return client.responses.create(
        model="gpt-5",
        instructions="You are a translator.",
        input=question,
        metadata={"request_id": request_id},
        extra_headers={"Idempotency-Key": request_id},
    )


# snippet: uuid in the user message
import uuid

from anthropic import Anthropic

client = Anthropic()


def ask(question):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system="You are a translator.",
        messages=[{"role": "user", "content": f"[{uuid.uuid4()}] {question}"}],
    )


# snippet: sorted set of tools
from anthropic import Anthropic

client = Anthropic()
ENABLED = {"search", "calculator"}


def run(messages):
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(ENABLED)]
    return client.messages.create(model="claude-sonnet-4-5", max_tokens=10, tools=tools, messages=messages)


# snippet: set membership only
from openai import OpenAI

client = OpenAI()
BLOCKED = {"gambling", "weapons"}
TOPICS = ["sport", "gambling", "music"]


def ask(question):
    allowed = [topic for topic in TOPICS if topic not in BLOCKED]
    instructions = f"Talk about {', '.join(allowed)}. {len(BLOCKED)} topics are blocked."
    return client.responses.create(model="gpt-5", instructions=instructions, input=question)


# snippet: json of a literal
import json

from openai import OpenAI

client = OpenAI()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def ask(question):
    example = json.dumps({"city": "Oslo"})
    instructions = f"Answer as JSON like {example} by this schema: {json.dumps(SCHEMA)}"
    return client.responses.create(model="gpt-5", instructions=instructions, input=question)


# snippet: json with sorted keys
import json

from openai import OpenAI

client = OpenAI()


def ask(question, profile):
    instructions = "User: " + json.dumps(profile, sort_keys=True, separators=(",", ":"))
    return client.responses.create(model="gpt-5", instructions=instructions, input=question)


# snippet: json of a schema made by pydantic
import json

from openai import OpenAI
from pydantic import BaseModel


class Invoice(BaseModel):
    number: str
    total: float


client = OpenAI()
SYSTEM_PROMPT = "Extract an invoice:\n" + json.dumps(Invoice.model_json_schema())


def ask(text):
    return client.responses.create(model="gpt-5", instructions=SYSTEM_PROMPT, input=text)


# snippet: json parameter that is a literal at every call
import json

from anthropic import Anthropic

client = Anthropic()
TOOLS = [{"name": "search", "input_schema": {"type": "object"}}]


def render(tools):
    return "Tools: " + json.dumps(tools)


def ask(question):
    return client.messages.create(
        model="claude-sonnet-4-5", max_tokens=1, system=render(TOOLS), messages=[{"role": "user", "content": question}]
    )


# snippet: json of a list of literals made in a loop
import json

from anthropic import Anthropic

client = Anthropic()


def describe(tools):
    return f"Choose one of these tools.\n{json.dumps(tools, indent=2)}"


def select(question, available):
    infos = []
    for number, tool in enumerate(available):
        info = {"index": number, "name": tool.name, "description": tool.description or "No description"}
        infos.append(info)
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=describe(infos),
        messages=[{"role": "user", "content": question}],
    )


# snippet: options of a wrapper
from openai import OpenAI

from app.sampling import defaults

client = OpenAI()


def generate(keys: set[str], **options):
    chosen = {key: value for key, value in options.items() if key in keys}
    chosen.update({name: defaults[name] for name in keys})
    return client.responses.create(model="gpt-5", instructions="Be brief.", **chosen)


def ask(question, keys):
    return generate(keys, input=question, temperature=0.2)


# snippet: clock in the last user message
from datetime import datetime

import litellm


def ask(question, history):
    messages = [
        {"role": "system", "content": "You are an assistant with a calendar."},
        *history,
        {"role": "user", "content": f"{question}\n\n(It is {datetime.now():%H:%M}.)"},
    ]
    return litellm.completion(model="gpt-4o", messages=messages)


# snippet: reminder after the conversation
from datetime import datetime

from openai import OpenAI

client = OpenAI()


def ask(history, question):
    messages = [{"role": "system", "content": "You are a coach."}] + history
    messages.append({"role": "user", "content": question})
    messages.append({"role": "system", "content": f"Current time: {datetime.now()}"})
    return client.chat.completions.create(model="gpt-4o", messages=messages)


# snippet: volatile block behind the last breakpoint
from datetime import date

from anthropic import Anthropic

client = Anthropic()
HANDBOOK = open("handbook.md").read()


def ask(question):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=[
            {"type": "text", "text": HANDBOOK, "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": f"Today is {date.today()}."},
        ],
        messages=[{"role": "user", "content": question}],
    )


# snippet: retry jitter and temperature
import random
import time

from openai import OpenAI

client = OpenAI()


def ask(question, attempts=3):
    for attempt in range(attempts):
        try:
            return client.chat.completions.create(
                model="gpt-4o",
                temperature=random.uniform(0.2, 0.8),
                seed=random.randint(0, 1000),
                messages=[
                    {"role": "system", "content": "You are a poet."},
                    {"role": "user", "content": question},
                ],
            )
        except TimeoutError:
            time.sleep(2**attempt + random.random())
    return None


# snippet: sorted listing
import os
from pathlib import Path

from anthropic import Anthropic

client = Anthropic()


def skills(folder: Path) -> str:
    texts = [file.read_text() for file in sorted(folder.glob("*.md"))]
    names = sorted(os.listdir(folder))
    return "\n".join(texts) + ", ".join(names)


def ask(question):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=skills(Path("skills")),
        messages=[{"role": "user", "content": question}],
    )


# snippet: listing sorted in place
import os

from openai import OpenAI

client = OpenAI()


def ask(question):
    names = os.listdir("docs")
    names.sort()
    return client.responses.create(model="gpt-5", instructions="Files: " + ", ".join(names), input=question)


# snippet: created_at of a database row
from datetime import datetime, timezone

from app.models import Conversation
from openai import OpenAI

client = OpenAI()
SYSTEM_PROMPT = "You are a nutritionist."


def start(session, user, question):
    row = Conversation(user=user, system_prompt=SYSTEM_PROMPT, created_at=datetime.now(timezone.utc))
    session.add(row)
    session.commit()
    return client.responses.create(model="gpt-5", instructions=row.system_prompt, input=question)


# snippet: fixed date in a constant
from openai import OpenAI

client = OpenAI()
KNOWLEDGE_PROMPT = "Your knowledge ends on 2025-06-30. Version 2026-01-15 of these rules."


def ask(question):
    return client.responses.create(model="gpt-5", instructions=KNOWLEDGE_PROMPT, input=question)


# snippet: record that keeps prompt and time apart
import time

from anthropic import Anthropic

client = Anthropic()


def ask(question):
    record = {"system": "You are a tutor.", "time": time.time(), "question": question}
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=record["system"],
        messages=[{"role": "user", "content": record["question"]}],
    )


# snippet: prompt file below the home folder
from pathlib import Path

from anthropic import Anthropic

client = Anthropic()


def load_system_prompt() -> str:
    return (Path.home() / ".config" / "bot" / "system.md").read_text(encoding="utf-8")


def ask(question):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=load_system_prompt(),
        messages=[{"role": "user", "content": question}],
    )


# snippet: cache key and hash beside the prompt
import hashlib
import time

from openai import OpenAI

client = OpenAI()
SYSTEM_PROMPT = "You are a chemist."
SYSTEM_PROMPT_HASH = hashlib.sha256(SYSTEM_PROMPT.encode()).hexdigest()


class Prompts:
    def __init__(self):
        self.system_prompt = SYSTEM_PROMPT
        self.system_prompt_loaded_at = time.time()


def ask(question):
    return client.responses.create(
        model="gpt-5", instructions=Prompts().system_prompt, input=question, prompt_cache_key=SYSTEM_PROMPT_HASH
    )


# snippet: clock overwritten before use
from datetime import datetime

from openai import OpenAI

client = OpenAI()


def ask(question):
    header = f"It is {datetime.now()}"
    print(header)
    header = "You are a pilot."
    return client.responses.create(model="gpt-5", instructions=header, input=question)


# snippet: elapsed time in the answer
import time

from openai import OpenAI

client = OpenAI()


def ask(question):
    start = time.monotonic()
    answer = client.responses.create(model="gpt-5", instructions="Be brief.", input=question)
    return {"text": answer.output_text, "seconds": time.monotonic() - start, "system_prompt_version": 3}


# snippet: ordered query
import sqlite3

from openai import OpenAI

client = OpenAI()


def ask(question):
    connection = sqlite3.connect("facts.db")
    rows = connection.execute("SELECT name FROM facts WHERE active = 1 ORDER BY name").fetchall()
    count = connection.execute("SELECT count(*) FROM facts").fetchone()[0]
    instructions = f"{count} facts: " + ", ".join(row[0] for row in rows)
    return client.responses.create(model="gpt-5", instructions=instructions, input=question)


# snippet: one row of a table
from anthropic import Anthropic

client = Anthropic()


def tenant_prompt(cursor, tenant):
    cursor.execute("SELECT prompt FROM tenants WHERE tenant_id = %s", (tenant,))
    return cursor.fetchone()[0]


def ask(cursor, tenant, question):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=tenant_prompt(cursor, tenant),
        messages=[{"role": "user", "content": question}],
    )


# snippet: django query with an order
from django.db import models
from openai import OpenAI

client = OpenAI()


class Tool(models.Model):
    name = models.CharField(max_length=50)


def build_system_prompt():
    names = [tool.name for tool in Tool.objects.filter(enabled=True).order_by("name")]
    default = Tool.objects.filter(default=True).first()
    return f"Tools: {', '.join(names)}; default {default.name}"


# snippet: documents in the user message
from openai import OpenAI

client = OpenAI()


def ask(retriever, question):
    documents = retriever.invoke(question)
    context = "\n".join(document.page_content for document in documents)
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": "Answer from the documents in the question."},
            {"role": "user", "content": f"{context}\n\n{question}"},
        ],
    )


# snippet: documents sorted by id in the system prompt
from openai import OpenAI

client = OpenAI()


def ask(store, question):
    documents = sorted(store.similarity_search(question), key=lambda document: document.id)
    context = "\n".join(document.page_content for document in documents)
    return client.responses.create(model="gpt-5", instructions="Sources:\n" + context, input=question)


# snippet: template with the placeholders last
from openai import OpenAI

client = OpenAI()

TEMPLATE = """You are the booking assistant of a hotel group. Quote prices with taxes, never promise an upgrade, and
confirm dates in the form 3 May 2026 before you book anything for the guest.

Guest: {guest}
Time: {timestamp}"""


def reply(guest, timestamp, question):
    return client.responses.create(
        model="gpt-5", instructions=TEMPLATE.format(guest=guest, timestamp=timestamp), input=question
    )


# snippet: chat room that knows no model
import uuid
from datetime import datetime

from fastapi import FastAPI

app = FastAPI()


@app.post("/rooms/{room}")
async def join_room(room: str, user: str):
    system_message = f"{user} joined at {datetime.now():%H:%M} ({uuid.uuid4()})"
    instructions = f"Press {uuid.uuid4().hex[:4]} to leave."
    return {"system": system_message, "instructions": instructions}


# snippet: monitoring with a system keyword
import platform
import time

import psutil


def report(registry):
    registry.gauge(name="load", system=platform.node(), value=psutil.cpu_percent(), time=time.time())
    return registry.create(system=f"{platform.node()}-{time.time()}") if registry.closed else None


# snippet: seeded random examples
import random

from openai import OpenAI

client = OpenAI()
EXAMPLES = ["a", "b", "c", "d"]
rng = random.Random(42)
SHOTS = rng.sample(EXAMPLES, 2)


def ask(question):
    return client.responses.create(model="gpt-5", instructions="Examples: " + ", ".join(SHOTS), input=question)


# snippet: deterministic uuid
import uuid

from openai import OpenAI

client = OpenAI()


def ask(question):
    project = uuid.uuid5(uuid.NAMESPACE_URL, "https://example.com/project")
    return client.responses.create(model="gpt-5", instructions=f"Project {project}.", input=question)


# snippet: tool results with times
from datetime import datetime

from anthropic import Anthropic

client = Anthropic()
TOOLS = [{"name": "now", "description": "The time.", "input_schema": {"type": "object", "properties": {}}}]


def loop(question):
    messages = [{"role": "user", "content": question}]
    while True:
        reply = client.messages.create(
            model="claude-sonnet-4-5", max_tokens=500, system="Use the tools.", tools=TOOLS, messages=messages
        )
        if reply.stop_reason != "tool_use":
            return reply
        messages.append({"role": "assistant", "content": reply.content})
        call = reply.content[-1]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": datetime.now().isoformat()}
        messages.append({"role": "user", "content": [result]})


# snippet: decision by the clock
from datetime import datetime

from openai import OpenAI

client = OpenAI()


def ask(question):
    is_open = 9 <= datetime.now().hour < 17
    model = "gpt-5" if is_open else "gpt-5-mini"
    return client.responses.create(model=model, instructions="You are a clerk.", input=question)


# snippet: session key of the cache in a header
import os
import uuid

from anthropic import Anthropic

client = Anthropic(default_headers={"x-session": str(uuid.uuid4()), "x-pid": str(os.getpid())})


def ask(question):
    with client.messages.stream(
        model="claude-sonnet-4-5",
        max_tokens=10,
        system="You are a cook.",
        messages=[{"role": "user", "content": question}],
    ) as stream:
        return stream.get_final_text()


# snippet: list of tools in a fixed order
from openai import OpenAI

client = OpenAI()


def tool(name, description):
    return {"type": "function", "function": {"name": name, "description": description}}


class Toolbox:
    def __init__(self):
        self.tools = {}

    def register(self, name, description):
        self.tools[name] = tool(name, description)

    def definitions(self):
        return [self.tools[name] for name in sorted(self.tools)]


def ask(toolbox, messages):
    return client.chat.completions.create(model="gpt-4o", tools=toolbox.definitions(), messages=messages)


# snippet: langchain with the time in the human turn
from datetime import datetime

from langchain_core.prompts import ChatPromptTemplate

prompt = ChatPromptTemplate.from_messages(
    [("system", "You are a planner. Answer in {language}."), ("human", "{question}\nIt is {now}.")]
)


def ask(chain, question):
    return chain.invoke({"question": question, "now": datetime.now(), "language": "French"})


# snippet: environment variable that is configuration
import os

from openai import OpenAI

client = OpenAI()
COMPANY = os.environ.get("COMPANY_NAME", "ACME")
LANGUAGE = os.getenv("BOT_LANGUAGE", "en")


def ask(question):
    return client.responses.create(model="gpt-5", instructions=f"You work for {COMPANY} in {LANGUAGE}.", input=question)


# snippet: database of a thermostat
import sqlite3
import time


class Thermostat:
    def __init__(self, path):
        self.connection = sqlite3.connect(path)

    def system_state(self):
        rows = self.connection.execute("SELECT * FROM readings").fetchall()
        return {"rows": rows, "instructions": f"read at {time.time()}"}


# snippet: year in a footer
from datetime import date

from openai import OpenAI

client = OpenAI()


def ask(question):
    year = date.today().year
    return client.responses.create(model="gpt-5", instructions=f"Copyright {year} ACME. Be brief.", input=question)


# snippet: tests of a prompt builder
from datetime import datetime

from app.prompts import build_system_prompt


def test_system_prompt_is_stable():
    started = datetime.now()
    first = build_system_prompt("en")
    second = build_system_prompt("en")
    assert first == second
    print(datetime.now() - started)


# snippet: number of files only
import os

from openai import OpenAI

client = OpenAI()


def ask(question):
    total = len(os.listdir("docs"))
    has_readme = "README.md" in os.listdir("docs")
    instructions = f"There are {total} documents; readme: {has_readme}."
    return client.responses.create(model="gpt-5", instructions=instructions, input=question)


# snippet: unique names kept in order
from openai import OpenAI

client = OpenAI()


def ask(question, names):
    unique = list(dict.fromkeys(names))
    seen = set()
    ordered = []
    for name in names:
        if name not in seen:
            seen.add(name)
            ordered.append(name)
    instructions = ", ".join(unique) + ", ".join(ordered)
    return client.responses.create(model="gpt-5", instructions=instructions, input=question)
