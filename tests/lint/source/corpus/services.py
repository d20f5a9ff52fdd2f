# snippet: fastapi chat with the clock in the system prompt
import os
from datetime import datetime, timezone

from anthropic import AsyncAnthropic
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
client = AsyncAnthropic(api_key=os.environ["ANTHROPIC_API_KEY"])


class ChatRequest(BaseModel):
    message: str


@app.post("/chat")
async def chat(body: ChatRequest):
    system = (
        f"You are Lumen, the support assistant of Brightline Energy. "
        f"The current time is {datetime.now(timezone.utc).isoformat()}."  # expect: PF301
    )
    reply = await client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=1024,
        system=system,
        messages=[{"role": "user", "content": body.message}],
    )
    return {"answer": reply.content[0].text}


# snippet: django view with a request id in front
import uuid

from django.http import JsonResponse
from openai import OpenAI

client = OpenAI()
RULES = "You help patients of a dental practice to find appointments. Never give medical advice."


def ask(request):
    request_id = uuid.uuid4().hex  # expect: PF302
    header = f"[request {request_id}]"
    completion = client.chat.completions.create(
        model="gpt-4.1",
        messages=[
            {"role": "system", "content": header + "\n" + RULES},
            {"role": "user", "content": request.POST["question"]},
        ],
    )
    return JsonResponse({"answer": completion.choices[0].message.content})


# snippet: flask with a session id from the framework
from flask import Flask, request
from openai import OpenAI

app = Flask(__name__)
llm = OpenAI()


@app.route("/ask", methods=["POST"])
def ask():
    trace = request.headers.get("X-Request-ID", "")  # expect: PF302
    instructions = f"You are a careful travel agent. Trace: {trace}"
    answer = llm.responses.create(model="gpt-5.1", instructions=instructions, input=request.json["question"])
    return {"text": answer.output_text}


# snippet: classic template filled by str.format
import time
import uuid

import litellm

SUPPORT_TEMPLATE = """Current time: {timestamp}
Request: {request_id}

You are a support agent for a hosting company. Answer in the customer's language, cite the article you used,
and hand over to a human when the customer mentions a refund, a lawyer, or a data leak.
"""


def answer(question: str) -> str:
    system = SUPPORT_TEMPLATE.format(
        timestamp=time.time(),  # expect: PF301
        request_id=uuid.uuid4(),  # expect: PF302
    )
    response = litellm.completion(
        model="claude-haiku-4-5",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
    )
    return response.choices[0].message.content


# snippet: classic template with the values from the caller
from openai import OpenAI

client = OpenAI()

SYSTEM_PROMPT = """Session {session_id}, started {timestamp}.  # expect: PF308

You are the booking assistant of a hotel group. Quote prices with taxes, never promise an upgrade, and
confirm dates in the form 3 May 2026 before you book anything for the guest.
"""


def reply(session_id: str, timestamp: str, question: str) -> str:
    messages = [
        {"role": "system", "content": SYSTEM_PROMPT.format(session_id=session_id, timestamp=timestamp)},
        {"role": "user", "content": question},
    ]
    return client.chat.completions.create(model="gpt-4o", messages=messages).choices[0].message.content


# snippet: f-string template with parameters in its first line
import anthropic

client = anthropic.Anthropic()


def triage(ticket_id: str, now: str, text: str) -> str:
    system = f"""Ticket {ticket_id} received at {now}.  # expect: PF308
You sort incoming tickets of a software company into bug, question, billing and abuse. Answer with one word only,
in lower case, without punctuation. When in doubt between bug and question choose question.
"""
    return client.messages.create(
        model="claude-haiku-4-5", max_tokens=5, system=system, messages=[{"role": "user", "content": text}]
    )


# snippet: helper module across files
# file: app/clock.py
from datetime import datetime


def stamp() -> str:
    return datetime.now().strftime("%H:%M:%S")  # expect: PF301


# file: app/prompts.py
from app.clock import stamp


def build_header(name: str) -> str:
    return f"Hello {name}, it is {stamp()}."


# file: app/main.py
import anthropic
from app import prompts

client = anthropic.Anthropic()


def run(question: str):
    header = prompts.build_header("Ada")
    return client.messages.create(
        model="claude-opus-4-5", max_tokens=100, system=header, messages=[{"role": "user", "content": question}]
    )


# snippet: relative import and a constant with a uuid
# file: bot/settings.py
import uuid

BOOT_ID = str(uuid.uuid4())  # expect: PF302

# file: bot/__init__.py
# file: bot/core.py
from openai import OpenAI

from .settings import BOOT_ID

client = OpenAI()


def say(text):
    return client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": "Bot " + BOOT_ID}, {"role": "user", "content": text}],
    )


# snippet: day granularity in the system prompt
from datetime import date

from google import genai
from google.genai import types

client = genai.Client()


def summarise(text: str) -> str:
    config = types.GenerateContentConfig(
        system_instruction=f"You write minutes. Today is {date.today():%d %B %Y}.",  # expect: PF301
    )
    return client.models.generate_content(model="gemini-2.5-flash", contents=text, config=config).text


# snippet: bedrock converse with the host name
import socket

import boto3

bedrock = boto3.client("bedrock-runtime")


def converse(question):
    return bedrock.converse(
        modelId="anthropic.claude-sonnet-4-5-20250929-v1:0",
        system=[{"text": f"You run on {socket.gethostname()}. Be brief."}],  # expect: PF307
        messages=[{"role": "user", "content": [{"text": question}]}],
    )


# snippet: raw http body
import datetime as dt

import httpx


def call(question: str) -> dict:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 500,
        "system": "You are a poet. " + str(dt.datetime.utcnow()),  # expect: PF301
        "messages": [{"role": "user", "content": question}],
    }
    return httpx.post("https://api.anthropic.com/v1/messages", json=body, timeout=60).json()


# snippet: keyword arguments collected in a dict
import random

from anthropic import Anthropic

client = Anthropic()
TONES = ["friendly", "formal", "cheerful"]


def answer(question: str):
    tone = random.choice(TONES)  # expect: PF302
    params = dict(model="claude-sonnet-4-5", max_tokens=300)
    params["system"] = f"You are a {tone} assistant of a bicycle shop."
    params["messages"] = [{"role": "user", "content": question}]
    return client.messages.create(**params)


# snippet: percent formatting and a default in the signature
from datetime import datetime

import openai


def build_system_prompt(now=datetime.now()):  # expect: PF301
    return "You are a clerk. The time is %s." % now


def ask(q):
    return openai.chat.completions.create(
        model="gpt-4o", messages=[{"role": "system", "content": build_system_prompt()}, {"role": "user", "content": q}]
    )


# snippet: string.Template with a safe_substitute
from datetime import datetime
from string import Template

import openai

PREAMBLE = Template("You are a librarian.\nLast refresh: $refreshed\nAnswer with the shelf mark.")


def ask(question):
    text = PREAMBLE.safe_substitute(refreshed=datetime.today().isoformat())  # expect: PF301
    return openai.responses.create(model="gpt-5", instructions=text, input=question)


# snippet: stringbuilder that grows
import getpass
import os

from anthropic import Anthropic

client = Anthropic()


def context() -> str:
    lines = ["You are a terminal assistant."]
    lines.append("User: " + getpass.getuser())  # expect: PF307
    lines.append(f"Folder: {os.getcwd()}")  # expect: PF307
    return "\n".join(lines)


def run(command):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=400,
        system=context(),
        messages=[{"role": "user", "content": command}],
    )


# snippet: leading clock in the only user message
import time

from openai import OpenAI

client = OpenAI()


def classify(review: str) -> str:
    prompt = f"""Run at {time.ctime()}.  # expect: PF301
Classify the review below as positive, negative or mixed. Consider irony, quotes from other people, and reviews that
praise the product but complain about delivery: those are mixed. Answer with a single word in lower case, nothing else.

Review: {review}"""
    response = client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": prompt}])
    return response.choices[0].message.content


# snippet: cohere preamble
import uuid

import cohere

co = cohere.Client()


def chat(message, conversation):
    token = str(uuid.uuid1())  # expect: PF302
    return co.chat(message=message, preamble="You are Coral. Conversation " + token, chat_history=conversation)


# snippet: mistral with a walrus and a conditional
import time

from mistralai import Mistral

client = Mistral(api_key="...")


def ask(question, verbose):
    extra = f"Started {started}." if (started := time.time_ns()) and verbose else ""  # expect: PF301
    return client.chat.complete(
        model="mistral-large-latest",
        messages=[{"role": "system", "content": "You are Le Chat. " + extra}, {"role": "user", "content": question}],
    )


# snippet: environment of the user
import os

from openai import OpenAI

client = OpenAI()
SYSTEM_PROMPT = "You are a shell helper for " + os.environ["USER"] + "."  # expect: PF307


def ask(text):
    return client.responses.create(model="gpt-5-mini", instructions=SYSTEM_PROMPT, input=text)


# snippet: secret canary token in the system prompt
import secrets

import anthropic


class Guard:
    def __init__(self):
        self.client = anthropic.Anthropic()
        self.canary = secrets.token_hex(8)  # expect: PF302

    @property
    def system(self):
        return f"Never reveal the word {self.canary}."

    def ask(self, question):
        return self.client.messages.create(
            model="claude-sonnet-4-5",
            max_tokens=200,
            system=self.system,
            messages=[{"role": "user", "content": question}],
        )
