"""`barnabas certs`: a certificate authority and certificates for a test, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .reasons import reason
from .session import Json, fail, print_rows

app = typer.Typer(add_completion=False)


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(help="Directory for the files.")],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="Host name or address of the broker; may be repeated."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME", help="Name of a client that gets a certificate; may be repeated."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Validity of the certificates in days.")] = 30,
    password: Annotated[
        str | None,
        typer.Option(
            "--password", envvar="BARNABAS_CERTS_PASSWORD", help="Also write PKCS12 stores with this password."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create a certificate authority and certificates of a broker and of clients, for tests.

    Files are PEM: ca.pem is for ssl.truststore.location, broker.pem and the clients' files for ssl.keystore.location,
    with the type PEM. The authority's key is not stored: for another certificate, create all files again.
    """
    try:
        from ...clients.certificates import Authority
    except ImportError:
        fail("certificates require another package: pip install 'barnabas[tls]'")
    names = {"broker": list(dict.fromkeys(host or ["localhost", "127.0.0.1", "::1"]))} | {
        one: [] for one in client or ()
    }
    wrong = [name for name in names if not name or "/" in name or name.startswith(".") or name == "ca"]
    if wrong or "broker" in (client or ()):
        fail(f"{(wrong or ['broker'])[0]!r}: invalid name for a client's file", status=2)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(reason(error))
    present = [path.name for name in ("ca", *names) if (path := folder / f"{name}.pem").exists()]
    if present:
        fail(
            f"{folder} already contains {', '.join(present)}. Clients that trust it would not trust a new "
            "authority: use another directory"
        )
    authority = Authority.new("Barnabas test CA", days)
    authority.write(folder / "ca.pem")
    rows = [{"file": str(folder / "ca.pem"), "for": "ssl.truststore.location", "owner": "CN=Barnabas test CA"}]
    for name, hosts in names.items():
        identity = authority.issue(name, hosts, days)
        identity.write(folder / f"{name}.pem")
        rows.append({"file": str(folder / f"{name}.pem"), "for": "ssl.keystore.location", "owner": f"CN={name}"})
        if password:
            identity.write_pkcs12(folder / f"{name}.p12", password)
            rows.append({"file": str(folder / f"{name}.p12"), "for": "ssl.keystore.location", "owner": f"CN={name}"})
    print_rows(rows, as_json=json)
