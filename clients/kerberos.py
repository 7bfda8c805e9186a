"""The client side of SASL GSSAPI with Kerberos (RFC 4752), with the MIT library (`pip install barnabas[gssapi]`)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import NamedTuple

import gssapi

from ..common.jaas import jaas_options, kerberos_service
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.sasl import GSSAPI, SaslExchange

_NO_LAYER = b"\x01\0\0\0"


class KerberosLogin(NamedTuple):
    """Principal and keytab for tickets, or else the ticket cache."""

    service: str
    principal: str | None = None
    keytab: str | None = None
    cache: str = "MEMORY:"
    """Cache for the tickets of the keytab, separate for each login."""

    @classmethod
    def of(cls, settings: Mapping[str, str], own: str) -> KerberosLogin:
        """Create a login from `sasl.kerberos.service.name` and the options of Krb5LoginModule; `own` is a unique name.

        Raises ValueError, and OSError for an unreadable keytab.
        """
        options = jaas_options(settings.get("sasl.jaas.config", ""))
        try:
            service = kerberos_service(options, settings.get("sasl.kerberos.service.name"))
        except ValueError as error:
            raise ValueError(f"sasl.kerberos.service.name: {error}") from None
        if not service:
            raise ValueError("sasl.kerberos.service.name: required by GSSAPI, the name of the brokers' service")
        keytab = options.get("keyTab", "").removeprefix("file:") if options.get("useKeyTab") == "true" else ""
        if keytab:
            Path(keytab).open("rb").close()
        return cls(service, options.get("principal"), keytab or None, f"MEMORY:{own}")

    def exchange(self, host: str) -> SaslExchange:
        """Start an exchange with a broker. Blocks, because it may call the KDC. Raises KafkaError
        SASL_AUTHENTICATION_FAILED.
        """
        try:
            target = gssapi.Name(f"{self.service}@{host}", gssapi.NameType.hostbased_service)
            context = gssapi.SecurityContext(
                name=target, creds=self._credentials(), mech=gssapi.MechType.kerberos, usage="initiate"
            )
            first = context.step()
        except gssapi.exceptions.GSSError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"cannot get a ticket: {error}") from error
        return SaslExchange(GSSAPI, _messages(context, first))

    def _credentials(self) -> gssapi.Credentials:
        name = self.principal and gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        if self.keytab is None:
            return gssapi.Credentials(name=name, usage="initiate")
        store = {"client_keytab": self.keytab, "ccache": self.cache}
        return gssapi.Credentials(name=name, usage="initiate", store=store)


def _messages(context: gssapi.SecurityContext, first: bytes | None) -> Generator[bytes, bytes, None]:
    token = first
    try:
        while True:
            answer = yield token or b""
            if context.complete:
                break
            token = context.step(answer)
        offered = context.unwrap(answer).message
        if not offered or not offered[0] & _NO_LAYER[0]:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker requires a security layer")
        yield context.wrap(_NO_LAYER, False).message
    except gssapi.exceptions.GSSError as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker is not authenticated: {error}") from error
