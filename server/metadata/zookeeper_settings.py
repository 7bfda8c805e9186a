"""How a ZooKeeper ensemble is reached: known without loading what reaches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """The settings of a session."""

    connect: str
    """Addresses with commas between them, and after the last one the path that stands for the root."""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    """How long the first contact may take."""
    max_in_flight: int = 10
    set_acl: bool = False
    """Nodes that are made may only be written by whoever made them."""
    digest: str | None = None
    """`user:password`, as whom the session does all this."""
    ca_file: str | None = None
    """Certificates (PEM) that the servers' are checked by; None for those of the system. Counts with `tls`."""
    certificate_file: str | None = None
    """Certificate and key (PEM) that the servers are shown."""
    key_password: str | None = None
    check_hostname: bool = True
    tls: bool = False

    @property
    def hosts(self) -> str:
        """The addresses alone."""
        return self.connect.partition("/")[0]

    @property
    def root(self) -> str:
        """What stands before every path: empty, or a path."""
        path = self.connect.partition("/")[2].strip("/")
        return f"/{path}" if path else ""
