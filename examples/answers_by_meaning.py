"""Answer questions that mean the same from what a model answered before, once that is proven to be right.

python examples/answers_by_meaning.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prefold.errors import UsageError
from prefold.responses.semantic.decision.decision import DecisionOptions
from prefold.responses.semantic.open_cache import open_cache
from prefold.responses.semantic.report import read_report

TASKS = (
    *("reset my router", "bake sourdough bread", "delete a branch in git", "sharpen a kitchen knife"),
    *("remove a red wine stain", "grow tomatoes indoors", "change a bicycle tyre", "fold a paper crane"),
    *("clean a cast iron pan", "train for a marathon", "learn touch typing", "descale a kettle"),
    *("tune a guitar", "write a cover letter", "poach an egg", "repot an orchid"),
    *("unclog a kitchen sink", "build a bookshelf", "brew green tea", "juggle three balls"),
    *("patch a hole in drywall", "tie a bow tie", "make a paper boat", "polish leather shoes"),
)
WORDINGS = (
    *("How do I {}?", "How can I {}?", "What is the best way to {}?"),
    *("Can you tell me how to {}?", "Please tell me how to {}.", "How should I {}?"),
)

# A generous limit, so that the example is short: at 0.5 % some 800 right answers are needed. No audits, for the same.
DECISION = DecisionOptions(max_wrong=0.3, audit_share=0.0)


async def call_model(request: Mapping[str, Any]) -> dict[str, Any]:
    """Stands for a real model: the same answer to every wording."""
    question = request["messages"][-1]["content"]
    answer = next((f"This is how to {task}." for task in TASKS if task in question), "Ask the help desk.")
    message = {"role": "assistant", "content": answer}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20},
    }


def ask(question: str) -> dict[str, Any]:
    """A request whose answer is not left to chance."""
    return {"model": "stub", "temperature": 0, "messages": [{"role": "user", "content": question}]}


async def main(folder: Path) -> None:
    """Six days of watching, a report, and a day of serving."""
    try:
        async with open_cache(folder, mode="on", decision=DECISION):
            pass
    except UsageError as error:
        print(f"On from the start? {error.message.partition(':')[0]}.\n")

    for day, wording in enumerate(WORDINGS, 1):
        async with open_cache(folder, mode="shadow", decision=DECISION, deadline_seconds=5) as cache:
            for task in TASKS:
                await cache.ask(ask(wording.format(task)), call_model, principal=f"customer {day}")
            print(f"Day {day}: {len(TASKS)} questions, {cache.counts.hits} answered from the cache")

    async with open_cache(folder, decision=DECISION) as cache:
        report = await read_report(cache.entries, DECISION)
        print(f"\nProven: {report.passes}")

    async with open_cache(folder, mode="on", decision=DECISION, deadline_seconds=5) as cache:
        await cache.ask(ask("Can you please tell me how I can reset my router?"), call_model)
        for question in ("Please, how can I reset my router?", "How can I reset my password?"):
            answer = await cache.ask(ask(question), call_model)
            source = "the cache" if "prefold" in answer else "the model"
            print(f"{question} {source}: {answer['choices'][0]['message']['content']}")


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
