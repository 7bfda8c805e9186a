"""Hooks of MkDocs: pages that are generated, and links to files outside `docs/`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click
import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from barnabas.tools.cli.app import app

ROOT = Path(__file__).parents[1]
COPIED_PAGES = {
    "project/changelog.md": "CHANGELOG.md",
    "project/security-policy.md": "SECURITY.md",
    "contributing/index.md": "CONTRIBUTING.md",
}
"""Pages of the site that are files of the repository's root."""
REPOSITORY_VARIABLE = "BARNABAS_REPOSITORY"
"""Where the project is published: the base of links to files that are not pages."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^):#\s]+)(#[^)\s]*)?\)")
_HARD_WRAPPED_CODE = "\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated and the copied pages."""
    files.append(File.generated(config, "reference/cli.md", content=command_line_page()))
    for page, source in COPIED_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Resolve each relative link against the repository: to a page, to a published file, or to plain text."""
    uri = page.file.src_uri
    source = ROOT / COPIED_PAGES[uri] if uri in COPIED_PAGES else ROOT / "docs" / uri
    published = os.environ.get(REPOSITORY_VARIABLE, "")

    def resolve(link: re.Match[str]) -> str:
        text, path, anchor = link[1], link[2], link[3] or ""
        target = Path(os.path.normpath(source.parent / path))
        if not target.is_relative_to(ROOT) or not target.exists():
            return link[0]  # generated pages, and broken links, which MkDocs reports
        name = target.relative_to(ROOT).as_posix()
        copied = {original: copy for copy, original in COPIED_PAGES.items()}
        if name in copied:
            name = f"docs/{copied[name]}"
        elif name == "README.md":
            name = "docs/index.md"
        if name.startswith("docs/") and name.endswith((".md", ".png", ".svg", ".json")):
            return f"[{text}]({os.path.relpath(name.removeprefix('docs/'), Path(uri).parent)}{anchor})"
        return f"[{text}]({published}/{name})" if published else text

    return _LINK.sub(resolve, markdown)


def command_line_page() -> str:
    """The help of every command, as Markdown."""
    group = typer.main.get_command(app)
    context = click.Context(group, info_name="barnabas")
    parts = [
        "# Command line",
        "Every command prints this text with `--help`. The commands work with any Kafka cluster, except for those that "
        "start a process or read a directory.",
        *_command_sections(group, context, level=2),
    ]
    return "\n\n".join(parts) + "\n"


def _command_sections(command: Any, context: click.Context, level: int) -> list[str]:
    sections = []
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is None or child.hidden:
            continue
        inner = click.Context(child, info_name=name, parent=context)
        sections += [
            f"{'#' * level} barnabas {' '.join(inner.command_path.split()[1:])}",
            _text(child.help or child.short_help),
        ]
        if hasattr(child, "list_commands"):
            sections += _command_sections(child, inner, level + 1)
            continue
        usage = " ".join([inner.command_path, *child.collect_usage_pieces(inner)])
        sections.append(f"```text\n{usage}\n```")
        rows = [row for parameter in child.get_params(inner) if (row := _parameter_row(parameter, inner))]
        if rows:
            sections.append("\n".join(["| option | description |", "|---|---|", *rows]))
    return sections


def _parameter_row(parameter: Any, context: click.Context) -> str:
    record = parameter.get_help_record(context)
    if record is None or "--help" in getattr(parameter, "opts", ()):
        return ""
    name, text = record
    name = " ".join(name.split()).replace("|", "\\|")
    return f"| `{name}` | {_text(text, in_table=True)} |"


def _text(text: str | None, *, in_table: bool = False) -> str:
    paragraphs = [" ".join(part.split()) for part in (text or "").replace("\b", "").split("\n\n")]
    escaped = [re.sub(r"([<>*_\[\]{}#|])", r"\\\1", part) for part in paragraphs if part]
    return (" " if in_table else "\n\n").join(escaped)
