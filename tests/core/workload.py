"""Traffic of our own for policies: people and agents who talk to a model, many conversations at a time."""

from dataclasses import dataclass
from random import Random

from prefold.core.tokens import pack


@dataclass(frozen=True)
class Turn:
    """A request: when, the prompt as packed ids of blocks, the length of its answer in tokens, why that ended."""

    time: float
    run: bytes
    output_tokens: int
    stop: str


def conversations(seed: int, requests: int, *, every: float = 4.0, forget: float = 0.5) -> list[Turn]:
    """Conversations behind three shared heads, a new one every few seconds.

    Those of people end after each turn with the probability `forget`, those of agents, every third one, hardly ever
    before they are done; people come back after a minute or two, agents after some seconds.
    """
    # Only random() is sure to give the same numbers in every version of Python.
    random = Random(seed).random
    ids = iter(range(10**9))
    heads = [[next(ids) for _ in range(length)] for length in (1, 3, 8)]
    turns: list[Turn] = []
    begin = 0.0
    while len(turns) < requests:
        begin += 2 * every * random()
        agent = random() < 1 / 3
        time, prompt = begin, [*heads[int(random() * 3)]]
        for turn in range(12 if agent else 6):
            prompt = prompt + [next(ids) for _ in range(1 + int(random() * (3 if agent or turn else 20)))]
            stop = "tool_use" if agent and turn < 11 else "end_turn"
            turns.append(Turn(time, pack(prompt), int(10 + 990 * random()), stop))
            time += (5 + 20 * random()) if agent else (30 + 180 * random() * random())
            if random() < (0.02 if agent else forget):
                break
            if random() < 0.7:
                prompt = prompt[:-1]  # the last block was not full, and goes on differently
    return sorted(turns, key=lambda turn: turn.time)[:requests]
