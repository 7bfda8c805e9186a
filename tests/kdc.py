"""A Kerberos realm for tests: MIT's KDC on a free port of 127.0.0.1, with principals and keytabs."""

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
    """Skip the test if the KDC or the library is not installed: pip cannot install either."""
    pytest.importorskip("gssapi", reason="pip install barnabas[gssapi] (it needs libkrb5-dev)")
    for tool in ("krb5kdc", "kadmin.local", "kdb5_util", "kinit"):
        if _tool(tool) is None:
            pytest.skip(f"{tool} is not installed (apt-get install krb5-kdc krb5-admin-server krb5-user)")


def _tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Kdc:
    """A KDC. While its context is entered, this process and its child processes use its realm."""

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
        self._process.wait_ready(self._is_listening, timeout_s=30, what="the KDC listens")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.end()
        self._patch.undo()

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def administer(self, query: str) -> None:
        """Run a kadmin query, for example `addprinc -pw secret ann`."""
        run_checked([str(_tool("kadmin.local")), "-r", self._realm, "-q", query])

    def keytab(self, principal: str) -> Path:
        """Create the principal if necessary, and return a keytab with a new key. Its earlier keys become invalid."""
        self.administer(f"addprinc -randkey {principal}")
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self.administer(f"ktadd -k {path} {principal}")
        return path

    def log_in(self, principal: str, keytab: Path) -> None:
        """Store a ticket of the principal in the ticket cache."""
        subprocess.run([str(_tool("kinit")), "-k", "-t", str(keytab), principal], check=True)
