"""`barnabas certs`: an authority and certificates for a test, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .reasons import reason
from .session import Json, fail, print_rows

app = typer.Typer(add_completion=False)


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(help="Where the files are made.")],
    *,
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="HOST", help="Names and addresses of the broker.")
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="Clients that show a certificate.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long they are valid.")] = 30,
    password: Annotated[
        str | None,
        typer.Option(
            "--password", envvar="BARNABAS_CERTS_PASSWORD", help="Make PKCS12 stores, too, with this password."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make an authority, a broker's certificate and clients', for a test or a trial.

    Files are PEM: ca.pem is for ssl.truststore.location, broker.pem and those of clients for ssl.keystore.location,
    with the type PEM. The authority's key is written nowhere: to have one more certificate, make all anew.
    """
    try:
        from ..certificates import Authority
    except ImportError:
        fail("certificates are made by another package: pip install 'barnabas[tls]'")
    names = {"broker": list(dict.fromkeys(host or ["localhost", "127.0.0.1", "::1"]))} | {
        one: [] for one in client or ()
    }
    wrong = [name for name in names if not name or "/" in name or name.startswith(".") or name == "ca"]
    if wrong or "broker" in (client or ()):
        fail(f"{(wrong or ['broker'])[0]!r} cannot be the name of a client's file", status=2)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(reason(error))
    present = [path.name for name in ("ca", *names) if (path := folder / f"{name}.pem").exists()]
    if present:
        fail(f"{folder} has {', '.join(present)} already; what trusts it would trust the new one no more")
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
