"""`barnabas features`: feature levels of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from ...clients.admin import FeatureLevel, FeatureUpgradeType
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, parse_settings
from .session import Bootstrap, Json, Yes, ask_first, print_rows, run, say

app = typer.Typer(help="Show and change the feature levels of a cluster.", no_args_is_help=True, add_completion=False)

Levels = Annotated[list[str], typer.Argument(metavar="FEATURE=LEVEL…", help="For example transaction.version=2.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate the change without applying it.")]


@app.command()
def describe(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show each feature with the levels that the broker supports, and its finalized level."""

    async def work() -> list[FeatureLevel]:
        async with admin_of(bootstrap) as admin:
            return await admin.describe_features()

    rows = [
        {"feature": one.name, "min": one.supported_min, "max": one.supported_max, "finalized": one.finalized}
        for one in run(work())
    ]
    print_rows(rows, as_json=json)


@app.command()
def upgrade(levels: Levels, *, dry_run: DryRun = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Raise finalized feature levels."""
    _update(bootstrap, levels, FeatureUpgradeType.UPGRADE, dry_run=dry_run)


@app.command()
def downgrade(
    levels: Levels,
    *,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Allow a downgrade that loses metadata.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Lower finalized feature levels. Level 0 disables a feature."""
    if not dry_run:
        ask_first(f"Downgrade {', '.join(levels)}?", yes=yes)
    kind = FeatureUpgradeType.UNSAFE_DOWNGRADE if unsafe else FeatureUpgradeType.SAFE_DOWNGRADE
    _update(bootstrap, levels, kind, dry_run=dry_run)


def _update(bootstrap: str, texts: list[str], kind: FeatureUpgradeType, *, dry_run: bool) -> None:
    levels = {}
    for name, text in parse_settings(texts).items():
        if not text.isdecimal() or int(text) > 32767:
            raise typer.BadParameter(f"{name}={text}: expected a level such as {name}=1")
        levels[name] = int(text)

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            await admin.update_features(levels, upgrade_type=kind, validate_only=dry_run)

    run(work())
    changed = ", ".join(f"{name}={level}" for name, level in levels.items())
    say(f"{'would set' if dry_run else 'set'} {changed}")
