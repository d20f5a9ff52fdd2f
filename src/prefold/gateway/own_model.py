"""A model behind this gateway, asked by the gateway itself on behalf of a tenant."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from prefold.gateway.budgets import estimated_tokens
from prefold.gateway.call import Api, Call, Tenant
from prefold.gateway.config import JUDGE
from prefold.gateway.meter import CallMeter, Metering, Outcome
from prefold.gateway.upstream import Answer, UpstreamFailed
from prefold.server.asgi import encode_json

Ask = Callable[[Call, CallMeter], Awaitable[Answer]]
"""Routes a call and sends it."""

_HEADERS: Mapping[bytes, bytes] = {b"content-type": b"application/json", b"accept": b"application/json"}
_OK = 200


class RecentTenants:
    """Who was seen lately, by name.

    Args:
        most: that are remembered.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._tenants: OrderedDict[str, Tenant] = OrderedDict()

    def see(self, tenant: Tenant) -> None:
        """Remember one."""
        self._tenants[tenant.name] = tenant
        self._tenants.move_to_end(tenant.name)
        if len(self._tenants) > self._most:
            self._tenants.popitem(last=False)

    def named(self, name: str) -> Tenant | None:
        """One that is remembered."""
        return self._tenants.get(name)


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Message(msgspec.Struct, frozen=True):
    content: str


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Completion).decode


class OwnModel:
    """Asks a model in the name of the tenant whose texts the question holds.

    So the question goes only where that tenant's own requests may go, with its salt. What it takes is counted under a
    tenant of its own, `JUDGE`, and charged to nobody's budget.

    Args:
        model: its name.
        tenants: whose texts may be asked about.
        ask: routes and sends a call.
        metering: counts it.
    """

    def __init__(
        self,
        model: str,
        tenants: RecentTenants,
        ask: Ask,
        metering: Metering,
    ) -> None:
        self._model = model
        self._tenants = tenants
        self._ask = ask
        self._metering = metering

    async def __call__(self, messages: Sequence[Mapping[str, str]], tenant_name: str) -> str:
        """What the model says.

        Raises:
            PrefoldError: if it says nothing, or must not be asked.
        """
        tenant = self._tenants.named(tenant_name)
        if tenant is None:
            raise UpstreamFailed("The tenant whose texts these are was not seen lately")
        fields = {"model": self._model, "messages": list(messages), "temperature": 0}
        body = encode_json(fields)
        call = Call(
            api=Api.CHAT,
            body=body,
            fields=fields,
            model=self._model,
            stream=False,
            tenant=tenant,
            headers=_HEADERS,
            estimate=estimated_tokens(body),
        )
        meter = self._metering.call(call.api, call.model, JUDGE, body=body)
        status, outcome = 0, Outcome.FAILED
        try:
            answer = await self._ask(call, meter)
            try:
                said = b"".join([chunk async for chunk in answer.chunks()])
                status, outcome = answer.status, Outcome.DONE
            finally:
                await answer.close()
        finally:
            meter.end(status, outcome)
        if status != _OK:
            raise UpstreamFailed(f"{self._model} answered {status}")
        return _text(said)


def _text(body: bytes) -> str:
    try:
        return _decode(body).choices[0].message.content
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
        raise UpstreamFailed("The answer is no text") from None
