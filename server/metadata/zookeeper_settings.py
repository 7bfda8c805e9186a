"""Settings of a session with a ZooKeeper ensemble, apart from the client, which a single broker does not load."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """The settings of a session."""

    connect: str
    """Addresses with commas between them, and after the last one the path that stands for the root."""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    """The timeout of the first connection."""
    max_in_flight: int = 10
    set_acl: bool = False
    """Nodes are created with an ACL that lets only their creator write."""
    digest: str | None = None
    """`user:password` of the session."""
    ca_file: str | None = None
    """Trusted certificates (PEM) for the servers; None for the certificates of the system. Used with `tls`."""
    certificate_file: str | None = None
    """Certificate and key (PEM) of this client."""
    key_password: str | None = None
    check_hostname: bool = True
    tls: bool = False

    @property
    def hosts(self) -> str:
        """The addresses alone."""
        return self.connect.partition("/")[0]

    @property
    def root(self) -> str:
        """The prefix of every path: empty, or a path."""
        path = self.connect.partition("/")[2].strip("/")
        return f"/{path}" if path else ""
