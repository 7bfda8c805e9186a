"""What a newcomer meets first: the names of `barnabas.clients`, and one name given where a list is wanted."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

import barnabas.clients
from barnabas import Broker
from barnabas.clients import Admin, Consumer, Producer


@pytest.mark.parametrize("name", barnabas.clients.__all__)
def test_every_name_can_be_had_and_is_shown(name: str) -> None:
    assert getattr(barnabas.clients, name).__name__ == name
    assert name in dir(barnabas.clients)


@pytest.mark.parametrize("kind", [Admin, Consumer, Producer])
def test_public_classes_define_their_methods(kind: type) -> None:
    """`help()` and "go to definition" find every method: none is assigned to an instance."""
    assigned = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(dedent(inspect.getsource(kind))))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        for target in node.targets
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_")
    ]
    assert assigned == []
    assert [name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")]


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.delete_topics("flights"),
        lambda admin: admin.describe_topics("flights"),
        lambda admin: admin.list_groups(states="Stable"),
        lambda admin: admin.list_groups(types="classic"),
        lambda admin: admin.describe_groups("readers"),
        lambda admin: admin.delete_groups("readers"),
        lambda admin: admin.list_group_offsets("readers"),
        lambda admin: admin.remove_members("readers", "instance"),
        lambda admin: admin.group_lag("readers"),
    ],
)
async def test_a_name_is_not_taken_for_its_letters(call: Callable[[Admin], Any]) -> None:
    async with Broker() as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(TypeError, match="must be a list of names, not a string"):
            await call(admin)
