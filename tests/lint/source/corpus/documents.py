# snippet: documents by score in the system prompt
from langchain_community.vectorstores import FAISS
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4o")


def answer(store: FAISS, question: str) -> str:
    documents = store.similarity_search(question, k=6)  # expect: PF309
    context = "\n\n".join(document.page_content for document in documents)
    return llm.invoke([SystemMessage(f"Answer from:\n{context}"), HumanMessage(question)]).content


# snippet: retriever object
from openai import OpenAI


class Rag:
    def __init__(self, retriever):
        self.retriever = retriever
        self.client = OpenAI()

    def ask(self, question):
        nodes = self.retriever.retrieve(question)  # expect: PF309
        texts = [node.text for node in nodes]
        system = "Use these sources.\n" + "\n---\n".join(texts)
        return self.client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]
        )


# snippet: sorted by score
import anthropic

client = anthropic.Anthropic()


def ask(question, chunks):
    best = sorted(chunks, key=lambda chunk: chunk["score"], reverse=True)[:8]  # expect: PF309
    blocks = [{"type": "text", "text": chunk["text"]} for chunk in best]
    return client.messages.create(
        model="claude-sonnet-4-5", max_tokens=500, system=blocks, messages=[{"role": "user", "content": question}]
    )


# snippet: rows without order
import sqlite3

from openai import OpenAI

client = OpenAI()


def facts(path: str) -> list[str]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, value FROM facts WHERE active = 1").fetchall()  # expect: PF306
    return [f"{name}: {value}" for name, value in rows]


def ask(question):
    instructions = "Known facts:\n" + "\n".join(facts("facts.db"))
    return client.responses.create(model="gpt-5", instructions=instructions, input=question)


# snippet: cursor that is filled before it is read
import psycopg
from anthropic import Anthropic

client = Anthropic()


def load_policies(dsn):
    with psycopg.connect(dsn) as connection:
        cursor = connection.cursor()
        cursor.execute("select title, body from policies")  # expect: PF306
        return [f"{title}\n{body}" for title, body in cursor.fetchall()]


def ask(question):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=300,
        system="\n\n".join(load_policies("postgres://")),
        messages=[{"role": "user", "content": question}],
    )


# snippet: django manager
from django.db import models
from openai import OpenAI

client = OpenAI()


class Tool(models.Model):
    name = models.CharField(max_length=50)
    description = models.TextField()


def build_system_prompt():
    lines = [f"- {tool.name}: {tool.description}" for tool in Tool.objects.filter(enabled=True)]  # expect: PF306
    return "Tools:\n" + "\n".join(lines)


# snippet: sqlalchemy select
from anthropic import Anthropic
from shop.models import Product
from sqlalchemy import select
from sqlalchemy.orm import Session

client = Anthropic()


def catalogue(session: Session) -> str:
    statement = select(Product).where(Product.visible)  # expect: PF306
    products = session.execute(statement).scalars().all()
    return "\n".join(f"{product.sku} {product.title}" for product in products)


def ask(session, question):
    return client.messages.create(
        model="claude-haiku-4-5",
        max_tokens=300,
        system=[{"type": "text", "text": catalogue(session), "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": question}],
    )


# snippet: knowledge files through glob
import glob

import litellm


def knowledge():
    text = ""
    for path in glob.glob("knowledge/*.txt"):  # expect: PF304
        with open(path, encoding="utf-8") as file:
            text = text + file.read() + "\n"
    return text


def ask(question):
    return litellm.completion(
        model="deepseek/deepseek-chat",
        messages=[{"role": "system", "content": knowledge()}, {"role": "user", "content": question}],
    )


# snippet: user profile as json
import json

from openai import OpenAI

client = OpenAI()


class Assistant:
    def __init__(self, profile: dict):
        self.profile = profile

    def system_prompt(self) -> str:
        return "You know this about the user: " + json.dumps(self.profile, ensure_ascii=False)  # expect: PF305

    def ask(self, text: str):
        return client.responses.create(model="gpt-5", instructions=self.system_prompt(), input=text)


# snippet: temporary folder in the instructions
import tempfile

from openai import OpenAI

client = OpenAI()


def run(task):
    sandbox = tempfile.mkdtemp(prefix="agent-")  # expect: PF302
    return client.responses.create(model="gpt-5-codex", instructions=f"Write only below {sandbox}.", input=task)


# snippet: home folder
from pathlib import Path

from anthropic import Anthropic

client = Anthropic()
SYSTEM_PROMPT = f"Notes are kept in {Path.home() / 'notes'}."  # expect: PF307


def ask(question):
    return client.messages.create(
        model="claude-sonnet-4-5", max_tokens=1, system=SYSTEM_PROMPT, messages=[{"role": "user", "content": question}]
    )


# snippet: jinja template
from datetime import datetime

from jinja2 import Environment, FileSystemLoader
from openai import OpenAI

client = OpenAI()
templates = Environment(loader=FileSystemLoader("prompts"))


def ask(question):
    system = templates.get_template("system.j2").render(now=datetime.now(), company="ACME")  # expect: PF301
    return client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]
    )


# snippet: jinja text with a volatile head
from jinja2 import Template
from openai import OpenAI

client = OpenAI()
TEXT = """Generated at {{ generated_at }} for {{ user_id }}  # expect: PF308
You are the study coach of a language school. You explain grammar with two examples, you correct kindly, and you never
switch to the learner's mother tongue unless they ask you to do so in that language.
"""


def ask(user, question, generated_at):
    system = Template(TEXT).render(generated_at=generated_at, user_id=user)
    return client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]
    )


# snippet: hash of a name
from openai import OpenAI

client = OpenAI()


def ask(name, question):
    bucket = hash(name) % 8  # expect: PF302
    return client.responses.create(model="gpt-5", instructions=f"Experiment bucket {bucket}. Be kind.", input=question)


# snippet: module with an alias and a partial path
import datetime
from functools import partial

from openai import OpenAI

client = OpenAI()
clock = datetime.datetime.now


def stamped(prefix, text):
    return f"{prefix} {clock()}: {text}"  # expect: PF301


head = partial(stamped, "log")


def ask(question):
    return client.responses.create(model="gpt-5", instructions=stamped("v2", "Be exact."), input=question)
