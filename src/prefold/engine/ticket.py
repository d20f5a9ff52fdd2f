"""A submitted request and how far its answers are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from prefold.core.tokens import count
from prefold.engine.answer import AnswerText
from prefold.engine.pins import Pinned
from prefold.engine.request import BlendUsage, Request, SamplingOptions
from prefold.engine.scheduler import Sequence
from prefold.errors import PrefoldError


@dataclass(eq=False)
class Answer:
    """One choice of a request, on its way."""

    text: AnswerText
    generator: torch.Generator | None
    sequence: Sequence


@dataclass(eq=False)
class Ticket:
    """A submitted request; cancel with it.

    Attributes:
        request: what was asked.
        answers: its choices that still run, by number.
        completion: tokens generated so far, all choices.
        cached: prompt tokens that need not be computed; 0 until the request is admitted.
        pin: what became of the wish to pin; None until the prompt is computed.
        blend: what became of the chunks; None where there are none, or until the prompt is computed.
    """

    request: Request
    answers: dict[int, Answer] = field(default_factory=dict)
    completion: int = 0
    cached: int = 0
    pin: Pinned | PrefoldError | None = None
    blend: BlendUsage | None = None


def tokens_of(request: Request) -> int:
    """Most tokens that a request can take up."""
    return count(request.prompt) + request.sampling.max_tokens


def generator_of(options: SamplingOptions, choice: int) -> torch.Generator | None:
    """What one choice draws its tokens with, None if it draws none."""
    if options.temperature == 0:
        return None
    generator = torch.Generator()
    if options.seed is None:
        generator.seed()
    else:
        generator.manual_seed((options.seed + choice) % 2**63)
    return generator
