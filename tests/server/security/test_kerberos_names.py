"""Rules for Kerberos principals, with the examples of Kafka's KerberosNameTest and KerberosRuleTest."""

from __future__ import annotations

import pytest

from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.security.kerberos_short_namer import KerberosShortNamer

SERVICES = (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT")
LOWER = (
    "RULE:[1:$1]/L",
    "RULE:[2:$1](Test.*)s/ABC///L",
    "RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L",
    "RULE:[2:$1]/L",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (SERVICES, "App.service-name/example.com@REALM.COM", "service-name"),
        (SERVICES, "App.service-name@REALM.COM", "service-name"),
        (SERVICES, "user/host@REALM.COM", "user"),
        (SERVICES, "user@ELSEWHERE.COM", None),
        (LOWER, "User@REALM.COM", "user"),
        (LOWER, "TestABC/host@FOO.COM", "test"),
        (LOWER, "ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        (LOWER, "App.SERVICE-name/example.com@REALM.COM", "service-name"),
        (LOWER, "User/root@REALM.COM", "user"),
        (("RULE:[1:$1]/U",), "User@REALM.COM", "USER"),
        (("RULE:[2:$1@$0]",), "user/host@REALM.COM", None),
        (("RULE:[2:$2]",), "user/host@REALM.COM", "host"),
        (("DEFAULT",), "user", None),
        (("DEFAULT",), "user/a/b@REALM.COM", None),
        (("DEFAULT",), "@REALM.COM", None),
    ],
)
def test_the_first_rule_that_fits_names_the_user(rules: tuple[str, ...], principal: str, name: str | None) -> None:
    assert KerberosShortNamer(rules, "REALM.COM").name_of(principal) == name


@pytest.mark.parametrize(
    "rule",
    [
        "default", "DEFAUL", "DEFAULT/L", "DEFAULT/g", "rule:[1:$1]", "RULE:[1:$1]/L/U", "RULE:[1:$1]/LU",
        "RULE:[1:$1]/g", "RULE:[1:$1](App/L", "RULE:[1:$2]", "RULE:[1:$1](*)", "RULE:[1:$1]s/a/$2/", "",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused_at_start(rule: str) -> None:
    with pytest.raises(ConfigError):
        KerberosShortNamer((rule,), "REALM.COM")
