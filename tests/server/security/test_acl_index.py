"""Rules of access against an oracle that goes through all of them, as Kafka's documentation says it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import chain

import pytest

from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas.server.security.acl_index import AclIndex, _Rules

Op, T, P = AclOperation, AclResourceType, AclPermissionType
LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
OPERATIONS = [one for one in Op if one is not Op.ANY]
TYPES = (T.TOPIC, T.GROUP)
NAMES = ("*", "a", "ab", "abc", "b", "ba", "a*")
PRINCIPALS = ("User:anna", "User:ben", "User:*")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")


def some_rule(rng: random.Random) -> AclBinding:
    pattern = ResourcePattern(rng.choice(TYPES), rng.choice(NAMES), rng.choice((LITERAL, PREFIXED)))
    permission = P.DENY if rng.random() < 0.25 else P.ALLOW
    entry = AccessControlEntry(rng.choice(PRINCIPALS), rng.choice(HOSTS), rng.choice(OPERATIONS), permission)
    return AclBinding(pattern, entry)


def concerns(pattern: ResourcePattern, kind: AclResourceType, name: str) -> bool:
    if pattern.resource_type is not kind:
        return False
    return name.startswith(pattern.name) if pattern.pattern_type is PREFIXED else pattern.name in (name, "*")


def oracle(rules: set[AclBinding], who: str, host: str, what: AclOperation, kind: AclResourceType, name: str) -> object:
    about = [rule for rule in rules if concerns(rule.pattern, kind, name)]
    if not about:
        return None
    host = "0:0:0:0:0:0:0:1" if host == "::1" else host
    mine = [rule.entry for rule in about if rule.entry.principal in (who, "User:*") and rule.entry.host in (host, "*")]
    if any(one.permission is P.DENY and one.operation in (what, Op.ALL) for one in mine):
        return False
    enough = {what, Op.ALL}
    if what is Op.DESCRIBE:
        enough |= {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}
    if what is Op.DESCRIBE_CONFIGS:
        enough |= {Op.ALTER_CONFIGS}
    return any(one.permission is P.ALLOW and one.operation in enough for one in mine)


def some_oracle(rules: set[AclBinding], who: str, host: str, what: AclOperation, kind: AclResourceType) -> object:
    """Kafka's `authorizeByResourceType`, from the words of KIP-679."""
    mine = [
        rule
        for rule in rules
        if rule.pattern.resource_type is kind
        and rule.entry.principal in (who, "User:*")
        and rule.entry.host in (host, "*")
        and rule.entry.operation in (what, Op.ALL)
    ]
    denied = [rule.pattern for rule in mine if rule.entry.permission is P.DENY]
    if any(pattern == ResourcePattern(kind, "*") for pattern in denied):
        return False
    for rule in mine:
        pattern = rule.pattern
        if rule.entry.permission is P.ALLOW:
            if pattern == ResourcePattern(kind, "*"):
                return True
            by_prefix = any(one.pattern_type is PREFIXED and pattern.name.startswith(one.name) for one in denied)
            by_name = pattern.pattern_type is LITERAL and pattern in denied
            if not by_prefix and not by_name:
                return True
    return None


def compare(seed: int, rounds: int, questions: int) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(rounds):
        index, rules = AclIndex(), set[AclBinding]()
        for _ in range(rng.randrange(25)):
            rule = some_rule(rng)
            if rules and rng.random() < 0.2:
                rule = rng.choice(sorted(rules))
            rules ^= {rule}
            index.replace(rule.pattern, [one.entry for one in rules if one.pattern == rule.pattern])
        assert len(index) == len(rules)
        for _ in range(questions):
            who, host = rng.choice(PRINCIPALS[:2]), rng.choice(("10.0.0.1", "10.0.0.2", "::1"))
            what, kind, name = rng.choice(OPERATIONS), rng.choice(TYPES), rng.choice((*NAMES[1:], "abcd", "c"))
            expected = oracle(rules, who, host, what, kind, name)
            assert index.decide(who, host, what, kind, name) is expected, (sorted(rules), who, host, what, kind, name)
            seen.add(expected)
            if host != "::1":
                assert index.allows_some(who, host, what, kind) is some_oracle(rules, who, host, what, kind)
        wanted = AclBindingFilter(
            rng.choice((T.ANY, *TYPES)),
            rng.choice((None, *NAMES)),
            rng.choice(list(AclPatternType)),
            rng.choice((None, *PRINCIPALS)),
        )
        meant = {one for one in rules if wanted.selects_pattern(one.pattern) and wanted.selects_entry(one.entry)}
        assert set(chain.from_iterable(index.selected(wanted))) == meant
    assert seen == {None, True, False}


def test_random_questions_have_the_oracles_answer() -> None:
    compare(seed=5, rounds=120, questions=60)


@pytest.mark.verify
@pytest.mark.timeout(900)
def test_a_million_random_questions_have_the_oracles_answer() -> None:
    compare(seed=6, rounds=5000, questions=200)


def test_rules_of_others_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client may make its broker look for something that it may write to."""
    index = AclIndex()
    for number in range(2000):
        entry = AccessControlEntry(f"User:{number}", "*", Op.WRITE, P.ALLOW)
        index.replace(ResourcePattern(T.TOPIC, f"t{number}"), [entry])
    looked_at = 0
    entries = _Rules.of

    def counted(self: _Rules, principal: str, host: str) -> Iterator[AccessControlEntry]:
        nonlocal looked_at
        looked_at += 1
        return entries(self, principal, host)

    monkeypatch.setattr(_Rules, "of", counted)
    assert index.allows_some("User:nobody", "10.0.0.1", Op.WRITE, T.TOPIC) is None
    assert index.allows_some("User:7", "10.0.0.1", Op.WRITE, T.TOPIC) is True
    assert looked_at == 1


def test_what_a_filter_of_names_that_match_selects() -> None:
    """Kafka's ResourcePatternFilter with MATCH: whatever rules about that name there are."""
    patterns = [
        ResourcePattern(T.TOPIC, "abc"),
        ResourcePattern(T.TOPIC, "*"),
        ResourcePattern(T.TOPIC, "ab", PREFIXED),
        ResourcePattern(T.TOPIC, "abcd", PREFIXED),
        ResourcePattern(T.TOPIC, "*", PREFIXED),
    ]
    wanted = AclBindingFilter(T.TOPIC, "abc", AclPatternType.MATCH)
    assert [wanted.selects_pattern(pattern) for pattern in patterns] == [True, True, True, False, False]
    assert [AclBindingFilter(name="*").selects_pattern(pattern) for pattern in patterns] == [
        False,
        True,
        False,
        False,
        True,
    ]


def test_a_question_costs_no_more_with_ten_thousand_rules() -> None:
    """Counted in calls, of Python and of C: those of others, and of other resources, are not looked at."""

    def index_with(others: int) -> AclIndex:
        index = AclIndex()
        mine = AccessControlEntry("User:anna", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
        index.replace(ResourcePattern(AclResourceType.TOPIC, "mine"), {mine})
        for number in range(others // 10):
            theirs = (mine._replace(principal=f"User:u{number}-{user}") for user in range(10))
            index.replace(ResourcePattern(AclResourceType.TOPIC, f"other-{number}"), theirs)
        return index

    def cost(index: AclIndex) -> int:
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            assert index.decide("User:anna", "10.0.0.1", AclOperation.WRITE, AclResourceType.TOPIC, "mine")
            assert index.decide("User:anna", "10.0.0.1", AclOperation.WRITE, AclResourceType.TOPIC, "else") is None
            assert index.allows_some("User:anna", "10.0.0.1", AclOperation.WRITE, AclResourceType.TOPIC)
        finally:
            sys.setprofile(None)
        return calls

    few, many = index_with(0), index_with(10_000)
    assert len(many) == 10_001
    cost(few)
    assert cost(few) == cost(many)
