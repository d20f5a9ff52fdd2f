"""What a gateway is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefold.gateway.access import Access
from prefold.gateway.budgets import Budgets
from prefold.gateway.canonical import Canonicalizer
from prefold.gateway.config import GatewayConfig
from prefold.gateway.dispatch import Dispatcher
from prefold.gateway.handover import Handover
from prefold.gateway.knowledge import Knowledge
from prefold.gateway.meter import Metering
from prefold.gateway.replicas import Fleet
from prefold.gateway.router import Router
from prefold.gateway.uniform import Uniform
from prefold.gateway.verifier import Verifier
from prefold.responses.cache import AnswerCache
from prefold.server.asgi import App

if TYPE_CHECKING:  # it needs packages that only those have who use it
    from prefold.gateway.meaning import Meaning


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of now. A new configuration makes new ones; requests under way keep those that they began with.

    Attributes:
        config: what was asked for.
        access: who clients are.
        budgets: what tenants may use.
        canonical: makes requests that mean the same the same.
        answers: the response cache.
        meaning: answers by meaning; None where no model has them.
        router: where calls go.
        handover: has long prompts computed elsewhere before.
        fleet: the replicas.
        knowledge: what is known of their caches.
        dispatcher: how replicas are asked.
        metering: what is counted.
        verifier: asks engines whether they cache.
        uniform: holds first bytes where a group asks for it.
        body_limit: most bytes of a request's body.
        engine: the embedded engine's application; None where there is none.
    """

    config: GatewayConfig
    access: Access
    budgets: Budgets
    canonical: Canonicalizer
    answers: AnswerCache
    meaning: Meaning | None
    router: Router
    handover: Handover
    fleet: Fleet
    knowledge: Knowledge
    dispatcher: Dispatcher
    metering: Metering
    verifier: Verifier
    uniform: Uniform
    body_limit: int
    engine: App | None = None
