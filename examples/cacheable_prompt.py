"""Build a request whose prefix can be cached, and see what a clock in the wrong place does.

python examples/cacheable_prompt.py
"""

from __future__ import annotations

from prefold.errors import InvalidRequest
from prefold.prompts.builder import PromptBuilder
from prefold.prompts.divergence.compare import compare
from prefold.prompts.prompt import Prompt, Stability

QUESTION = {"role": "user", "content": "Where is my parcel?"}
RULES = "Check the handbook before you answer, and say which page you used. " * 120

# Parts come in any order; each says how often it changes.
builder = (
    PromptBuilder()
    .system("The customer is called Ada.", stability=Stability.SESSION)
    .system(RULES)
    .tool({"name": "search_orders", "description": "Find an order.", "input_schema": {"type": "object"}})
    .tool({"name": "open_ticket", "description": "Write a ticket.", "input_schema": {"type": "object"}})
    .message("user", "Where is my parcel?")
)


def request(clock: str) -> Prompt:
    """The request at some time of day."""
    part = f"Now: 2026-11-30T{clock}Z"
    return builder.system(part, stability=Stability.REQUEST).build(
        "anthropic", model="claude-sonnet-4-5", max_tokens=99
    )


print("In order:")
for segment in request("10:00:00").segments:
    print(f"  {segment.path!s:26} {segment.text[:48].strip()}")

# A clock that is said to be static is refused, with a hint.
try:
    builder.system("Now: 2026-11-30T10:00:00Z")
except InvalidRequest as error:
    print(f"\n{error.message}\n{error.hint}")

# What it would have done.
bodies = (
    {"model": "gpt-5.2", "messages": [{"role": "system", "content": f"Now: {clock}\n{RULES}"}, QUESTION]}
    for clock in ("10:00:00", "10:01:00")
)
found = compare(*map(Prompt.of, bodies))
print(f"\n{found.cause} at {found.path}: {found.explanation}\n{found.fix}")
assert found.gain_tokens > 1000  # tried on a copy of both requests
