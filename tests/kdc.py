"""A Kerberos realm for tests: MIT's KDC on a free port of the loopback, users with passwords, and keys in files."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.foreign_tools import run_checked
from tests.server_process import ServerProcess, free_port

REALM = "EXAMPLE.COM"
CLIENT_CONFIG = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
SERVER_CONFIG = """\
[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
"""


def require_kerberos() -> None:
    """Skips the test where there is no KDC or no library: neither comes with any package manager of a language."""
    pytest.importorskip("gssapi", reason="pip install barnabas[gssapi] (it needs libkrb5-dev)")
    for tool in ("krb5kdc", "kadmin.local", "kdb5_util", "kinit"):
        if _tool(tool) is None:
            pytest.skip(f"{tool} is not installed (apt-get install krb5-kdc krb5-admin-server krb5-user)")


def _tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Kdc:
    """While it is entered, this process and those that it starts belong to its realm."""

    def __init__(self, folder: Path, realm: str = REALM) -> None:
        self.folder = folder
        self.config = folder / "krb5.conf"
        self._realm = realm
        self._port = free_port()
        self._patch = pytest.MonkeyPatch()
        self._process: ServerProcess | None = None

    def __enter__(self) -> Self:
        settings = {"realm": self._realm, "port": self._port, "folder": self.folder}
        self.config.write_text(CLIENT_CONFIG.format(**settings))
        server = self.folder / "kdc.conf"
        server.write_text(SERVER_CONFIG.format(**settings))
        self._patch.setenv("KRB5_CONFIG", str(self.config))
        self._patch.setenv("KRB5_KDC_PROFILE", str(server))
        self._patch.setenv("KRB5CCNAME", f"FILE:{self.folder}/tickets")
        run_checked([str(_tool("kdb5_util")), "create", "-s", "-P", "master", "-r", self._realm])
        command = [str(_tool("krb5kdc")), "-n", "-r", self._realm, "-P", str(self.folder / "pid")]
        self._process = ServerProcess(command, self.folder / "kdc.log")
        self._process.wait_ready(self._answers, timeout_s=30, what="the KDC listens")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.end()
        self._patch.undo()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def administer(self, query: str) -> None:
        """By kadmin's language."""
        run_checked([str(_tool("kadmin.local")), "-r", self._realm, "-q", query])

    def keytab(self, principal: str) -> Path:
        """A file with a new key of the principal, whom this makes if needed; keys that it had before are void."""
        self.administer(f"addprinc -randkey {principal}")
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self.administer(f"ktadd -k {path} {principal}")
        return path

    def log_in(self, principal: str, keytab: Path) -> None:
        """Put a ticket of the principal into the ticket cache."""
        subprocess.run([str(_tool("kinit")), "-k", "-t", str(keytab), principal], check=True)
