"""Keys of TLS, SASL, authorisation and delegation tokens."""

from __future__ import annotations

from .builders import (
    HIGH,
    LOW,
    MEDIUM,
    PER_BROKER,
    boolean,
    class_name,
    double,
    integer,
    list_of,
    long,
    password,
    short,
    string,
)
from .definition import ConfigKey
from .validators import NonNull, OneOf, Range, ValidList

# fmt: off
SECURITY_KEYS: tuple[ConfigKey, ...] = (
    string("authorizer.class.name", "", LOW, NonNull(),
        doc=(
            "The authorizer. AclAuthorizer and StandardAuthorizer, the names of Kafka's authorizers, select ACLs that "
            "are stored in the cluster; any other value is the name of an entry point in `barnabas.authorizers`. "
            "Empty: all requests are allowed. See also `super.users` and `allow.everyone.if.no.acl.found`."
        )),
    long("connections.max.reauth.ms", 0, MEDIUM,
        doc="Time after which a SASL client must authenticate again; 0: never. Can be set per listener."),
    long("delegation.token.expiry.check.interval.ms", 3600000, LOW, Range(1),
        doc="Interval of the removal of expired delegation tokens."),
    long("delegation.token.expiry.time.ms", 86400000, MEDIUM, Range(1),
        doc="Time after which a delegation token expires unless it is renewed."),
    password("delegation.token.master.key", None, MEDIUM,
        doc="The former name of `delegation.token.secret.key`."),
    long("delegation.token.max.lifetime.ms", 604800000, MEDIUM, Range(1),
        doc="Maximum lifetime of a delegation token, with all renewals."),
    password("delegation.token.secret.key", None, MEDIUM,
        doc=(
            "Key from which the secrets of delegation tokens are derived: the same on all brokers. Without it "
            "delegation tokens are disabled."
        )),
    class_name(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        MEDIUM,
        mode=PER_BROKER,
    ),
    class_name("sasl.client.callback.handler.class", None, MEDIUM),
    list_of("sasl.enabled.mechanisms", ("GSSAPI",), MEDIUM, ValidList(), mode=PER_BROKER,
        doc=(
            "SASL mechanisms for clients: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI. Passwords for "
            'PLAIN are `user_NAME="…"` in `listener.name.NAME.plain.sasl.jaas.config`.'
        )),
    password("sasl.jaas.config", None, MEDIUM, mode=PER_BROKER),
    string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", MEDIUM, mode=PER_BROKER),
    long("sasl.kerberos.min.time.before.relogin", 60000, MEDIUM, mode=PER_BROKER),
    list_of("sasl.kerberos.principal.to.local.rules", ("DEFAULT",), MEDIUM, ValidList(), mode=PER_BROKER,
        doc=(
            "Rules that map a Kerberos principal to the name of a user: `DEFAULT` or `RULE:…`. The first matching rule "
            "applies."
        )),
    string("sasl.kerberos.service.name", None, MEDIUM, mode=PER_BROKER,
        doc="The first component of the brokers' Kerberos principals."),
    double("sasl.kerberos.ticket.renew.jitter", 0.05, MEDIUM, mode=PER_BROKER),
    double("sasl.kerberos.ticket.renew.window.factor", 0.8, MEDIUM, mode=PER_BROKER),
    class_name("sasl.login.callback.handler.class", None, MEDIUM),
    class_name("sasl.login.class", None, MEDIUM),
    integer("sasl.login.connect.timeout.ms", None, LOW),
    integer("sasl.login.read.timeout.ms", None, LOW),
    short("sasl.login.refresh.buffer.seconds", 300, MEDIUM, mode=PER_BROKER),
    short("sasl.login.refresh.min.period.seconds", 60, MEDIUM, mode=PER_BROKER),
    double("sasl.login.refresh.window.factor", 0.8, MEDIUM, mode=PER_BROKER),
    double("sasl.login.refresh.window.jitter", 0.05, MEDIUM, mode=PER_BROKER),
    long("sasl.login.retry.backoff.max.ms", 10000, LOW),
    long("sasl.login.retry.backoff.ms", 100, LOW),
    string("sasl.mechanism.inter.broker.protocol", "GSSAPI", MEDIUM, mode=PER_BROKER,
        doc=(
            "SASL mechanism of connections between brokers. The credentials are in the listener's JAAS string "
            "(`username` and `password`, or a keytab), or are an OAUTHBEARER token."
        )),
    boolean("sasl.oauthbearer.allow.unverified.audience", False, MEDIUM),
    boolean("sasl.oauthbearer.allow.unverified.issuer", False, MEDIUM),
    string("sasl.oauthbearer.assertion.algorithm", "RS256", MEDIUM, OneOf("ES256", "RS256", ignore_case=True)),
    string("sasl.oauthbearer.assertion.claim.aud", None, MEDIUM),
    integer("sasl.oauthbearer.assertion.claim.exp.seconds", 300, LOW, Range(0, 86400)),
    string("sasl.oauthbearer.assertion.claim.iss", None, MEDIUM),
    boolean("sasl.oauthbearer.assertion.claim.jti.include", False, MEDIUM),
    integer("sasl.oauthbearer.assertion.claim.nbf.seconds", 60, LOW, Range(0, 3600)),
    string("sasl.oauthbearer.assertion.claim.sub", None, MEDIUM),
    string("sasl.oauthbearer.assertion.file", None, MEDIUM),
    string("sasl.oauthbearer.assertion.private.key.file", None, MEDIUM),
    password("sasl.oauthbearer.assertion.private.key.passphrase", None, MEDIUM),
    string("sasl.oauthbearer.assertion.template.file", None, MEDIUM),
    string("sasl.oauthbearer.client.credentials.client.id", None, MEDIUM,
        doc="Client id with which this broker requests a token for connections to other brokers."),
    password("sasl.oauthbearer.client.credentials.client.secret", None, MEDIUM,
        doc="Client secret with which this broker requests a token for connections to other brokers."),
    integer("sasl.oauthbearer.clock.skew.seconds", 30, LOW,
        doc="Permitted difference between the clocks of the identity provider and the broker."),
    list_of("sasl.oauthbearer.expected.audience", (), HIGH, ValidList(),
        doc="Accepted audiences, of which the claim `aud` of a token must contain one; if empty, `aud` is not "
            "checked."),
    string("sasl.oauthbearer.expected.issuer", None, HIGH,
        doc="Required issuer, `iss`, of a token; if not set, `iss` is not checked."),
    long("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3600000, LOW,
        doc="Interval at which the keys for the verification of tokens are read again."),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10000, LOW,
        doc="Maximum pause after failed attempts to read the keys."),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, LOW,
        doc="Pause after the first failed attempt to read the keys."),
    string("sasl.oauthbearer.jwks.endpoint.url", None, MEDIUM,
        doc=(
            "URL of the keys for the verification of tokens: `https://`, `file://`, or `http://` on the loopback "
            "interface."
        )),
    class_name(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        MEDIUM,
    ),
    class_name(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        MEDIUM,
    ),
    string("sasl.oauthbearer.scope", None, MEDIUM,
        doc="Scope of the token that this broker requests for connections to other brokers."),
    string("sasl.oauthbearer.scope.claim.name", "scope", LOW),
    string("sasl.oauthbearer.sub.claim.name", "sub", LOW,
        doc="The claim of a token with the name of the user."),
    string("sasl.oauthbearer.token.endpoint.url", None, MEDIUM,
        doc="URL from which this broker requests a token for connections to other brokers."),
    class_name("sasl.server.callback.handler.class", None, MEDIUM,
        doc="For OAUTHBEARER: `…OAuthBearerUnsecuredValidatorCallbackHandler` accepts unsigned tokens."),
    integer("sasl.server.max.receive.size", 524288, MEDIUM,
        doc=(
            "Maximum size of a request before authentication. The mechanisms have lower limits: 16 KiB for PLAIN, 8 "
            "KiB for SCRAM, 64 KiB for OAUTHBEARER and GSSAPI, and 8 KiB before the client has selected a mechanism."
        )),
    string("security.providers", None, LOW),
    boolean("ssl.allow.dn.changes", False, LOW),
    boolean("ssl.allow.san.changes", False, LOW),
    list_of("ssl.cipher.suites", (), MEDIUM, ValidList(), mode=PER_BROKER,
        doc=(
            "Permitted cipher suites, by Java's names: a protocol without a suite in the list is not negotiated. The "
            "list must contain all suites of TLSv1.3 or none, because Python before 3.15 cannot select single suites; "
            "any other list is rejected. Empty: OpenSSL's default suites."
        )),
    string("ssl.client.auth", "none", MEDIUM, OneOf("required", "requested", "none"), mode=PER_BROKER,
        doc="Whether clients of SSL listeners must send a certificate: `required`, `requested` or `none`."),
    list_of(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        MEDIUM,
        ValidList(),
        mode=PER_BROKER,
        doc="Enabled versions of TLS: TLSv1.2, TLSv1.3.",
    ),
    string("ssl.endpoint.identification.algorithm", "https", LOW, mode=PER_BROKER,
        doc=(
            "`https`: the certificate of another broker must contain its host name; empty: the host name is not "
            "checked."
        )),
    class_name("ssl.engine.factory.class", None, LOW, mode=PER_BROKER),
    password("ssl.key.password", None, MEDIUM, mode=PER_BROKER,
        doc="Password of an encrypted private key."),
    string("ssl.keymanager.algorithm", "SunX509", MEDIUM, mode=PER_BROKER),
    password("ssl.keystore.certificate.chain", None, MEDIUM, mode=PER_BROKER,
        doc="The broker's certificate and its chain, as PEM text (KIP-651)."),
    password("ssl.keystore.key", None, MEDIUM, mode=PER_BROKER,
        doc="The broker's private key, as PEM text (KIP-651)."),
    string("ssl.keystore.location", None, MEDIUM, mode=PER_BROKER,
        doc="File with the broker's key and certificates: PEM or PKCS12."),
    password("ssl.keystore.password", None, MEDIUM, mode=PER_BROKER,
        doc="Password of a PKCS12 store."),
    string("ssl.keystore.type", "JKS", MEDIUM, mode=PER_BROKER,
        doc="PEM; with any other value the format is detected from the file."),
    string("ssl.principal.mapping.rules", "DEFAULT", LOW,
        doc=(
            "Rules that map the distinguished name of a client certificate to the name of a user (KIP-371); a "
            "certificate that matches no rule is rejected."
        )),
    string("ssl.protocol", "TLSv1.3", MEDIUM, mode=PER_BROKER),
    string("ssl.provider", None, MEDIUM, mode=PER_BROKER),
    string("ssl.secure.random.implementation", None, LOW, mode=PER_BROKER),
    string("ssl.trustmanager.algorithm", "PKIX", MEDIUM, mode=PER_BROKER),
    password("ssl.truststore.certificates", None, MEDIUM, mode=PER_BROKER,
        doc="Certificates of trusted authorities, as PEM text (KIP-651)."),
    string("ssl.truststore.location", None, MEDIUM, mode=PER_BROKER,
        doc="File with the certificates of trusted authorities: PEM or PKCS12."),
    password("ssl.truststore.password", None, MEDIUM, mode=PER_BROKER,
        doc="Password of a PKCS12 store."),
    string("ssl.truststore.type", "JKS", MEDIUM, mode=PER_BROKER,
        doc="PEM; with any other value the format is detected from the file."),
)
# fmt: on
