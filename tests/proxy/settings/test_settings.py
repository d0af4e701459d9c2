"""Settings: every variable has a default, a help line and a check, and one start shows every problem."""

import ipaddress
from dataclasses import fields

import pytest
from farmproxy.config.parsers import HostPort
from farmproxy.config.settings import Settings, SettingsError, help_text, limits, variables

API = {"FARMPROXY_KUBE_API": "http://127.0.0.1:1"}


def problems(**env):
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({**API, **{f"FARMPROXY_{name}": value for name, value in env.items()}})
    return caught.value.problems


def read(**env):
    return Settings.from_env({**API, **{f"FARMPROXY_{name}": value for name, value in env.items()}})


def test_defaults_are_the_contract():
    settings = Settings.from_env(API)
    assert settings.pools == {"default": "browsers"}
    assert (settings.namespace, settings.port_name) == ("farm", "cdp")
    assert (settings.door.port, settings.admin.port) == (9222, 9223)
    seconds = {
        field.name: getattr(settings, field.name) for field in fields(Settings) if field.name.endswith("_s")
    }
    assert seconds == {
        "hold_default_s": 300,
        "hold_ceiling_s": 3600,
        "connect_timeout_s": 2,
        "handshake_timeout_s": 2,
        "prepare_timeout_s": 30,
        "recycle_s": 30,
        "set_aside_s": 2,
        "set_aside_max_s": 60,
        "lease_default_s": 900,
        "lease_ceiling_s": 3600,
        "lease_idle_s": 0,
        "first_use_s": 30,
        "rejoin_s": 30,
        "head_timeout_s": 10,
        "stall_s": 60,
        "keepalive_s": 15,
        "watch_silence_s": 60,
        "linger_s": 5,
        "drain_s": 900,
    }
    assert settings.hold_limit == 10_000


def test_every_variable_is_in_the_help():
    text = help_text()
    for name, field in variables():
        assert f"  {name} " in text
        assert field.metadata["says"] in text


def test_values_are_parsed():
    settings = read(
        POOLS=" default=browsers , big=browsers-big ",
        DOOR="[::1]:0",
        HOLD_DEFAULT_S="0.5",
        ORIGINS="https://Ops.example:8443/, chrome-extension://abc",
        HOSTS="Farm.example.",
        TRUSTED_PROXIES="10.0.0.0/8,192.0.2.7",
        KUBE_API="https://api:6443/",
        PREFIX="/farm/a.b/",
    )
    assert settings.prefix == "/farm/a.b"
    assert list(settings.pools.items()) == [("default", "browsers"), ("big", "browsers-big")]
    assert settings.door == HostPort("::1", 0)
    assert str(settings.door) == "[::1]:0"
    assert settings.hold_default_s == 0.5
    assert settings.origins == {"https://ops.example:8443", "chrome-extension://abc"}
    assert settings.hosts == {"farm.example"}
    assert settings.trusted_proxies == (
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_network("192.0.2.7/32"),
    )
    assert settings.kube_api == "https://api:6443"


def test_empty_means_not_set():
    assert read(HOLD_LIMIT=" ", TOKENS_FILE="") == Settings.from_env(API)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POOLS", "browsers"),
        ("POOLS", "a=b=c"),
        ("POOLS", "a=x,a=y"),
        ("POOLS", "a=x,b=x"),
        ("POOLS", ","),
        ("POOLS", "A=x"),
        ("NAMESPACE", "Farm"),
        ("PREFIX", "farm"),
        ("PREFIX", "//evil.example"),
        ("PREFIX", "/a?b"),
        ("PREFIX", "/leases"),
        ("DOOR", "9222"),
        ("DOOR", "::1:9222"),
        ("DOOR", "h:65536"),
        ("DOOR", "h:-1"),
        ("KUBE_API", "kubernetes.default"),
        ("KUBE_API", "ftp://x"),
        ("HOLD_DEFAULT_S", "-1"),
        ("HOLD_DEFAULT_S", "nan"),
        ("HOLD_DEFAULT_S", "inf"),
        ("HOLD_DEFAULT_S", "5m"),
        ("CONNECT_TIMEOUT_S", "0"),
        ("HOLD_LIMIT", "1.5"),
        ("HOLD_LIMIT", "-1"),
        ("HOLD_LIMIT", "\u0663"),
        ("ORIGINS", "*"),
        ("ORIGINS", "https://x/path"),
        ("HOSTS", "a b"),
        ("HOSTS", "a:80"),
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name, value):
    (problem,) = problems(**{name: value})
    assert problem.startswith(f"FARMPROXY_{name} is {value!r}; ")
    assert "allowed" in problem or "twice" in problem or "host bits" in problem


def test_all_problems_come_at_once():
    found = problems(POOLS="x", STALL_S="y", HOLD_DEFAULT_S="7200", HOLD_DEFUALT_S="3")
    assert [problem.split()[0] for problem in found] == [
        "FARMPROXY_POOLS",
        "FARMPROXY_STALL_S",
        "FARMPROXY_HOLD_DEFUALT_S",
        "FARMPROXY_HOLD_DEFAULT_S",
    ]
    assert "did you mean FARMPROXY_HOLD_DEFAULT_S?" in found[2]
    assert "at most FARMPROXY_HOLD_CEILING_S" in found[3]


def test_service_links_are_no_slips():
    links = [
        "PORT",
        "SERVICE_HOST",
        "SERVICE_PORT_DOOR",
        "PORT_9222_TCP_ADDR",
        "ADMIN_SERVICE_PORT",
        "ADMIN_PORT",
    ]
    assert read(**dict.fromkeys(links, "tcp://10.0.0.1:9222")) == Settings.from_env(API)


def test_in_a_cluster_the_pod_finds_its_api_server():
    cluster = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    settings = Settings.from_env(cluster)
    assert settings.kube_api == "https://[fd00::1]:6443"
    assert settings.kube_token_file.endswith("serviceaccount/token")
    assert settings.kube_ca_file.endswith("serviceaccount/ca.crt")
    named = Settings.from_env({**cluster, **API})
    assert (named.kube_api, named.kube_token_file, named.kube_ca_file) == ("http://127.0.0.1:1", "", "")


def test_outside_a_cluster_the_api_server_must_be_named():
    with pytest.raises(SettingsError, match="FARMPROXY_KUBE_API is not set"):
        Settings.from_env({})


def test_limits_follow_the_settings():
    by_pool = limits(
        read(POOLS="a=x,b=y", HOLD_LIMIT="7", SET_ASIDE_S="3", SET_ASIDE_MAX_S="9", RECYCLE_S="11"), 20_000
    )
    assert list(by_pool) == ["a", "b"]
    one = by_pool["a"]
    assert (one.hold_limit, one.set_aside_s, one.set_aside_max_s, one.recycle_s) == (7, 3, 9, 11)


def test_memory_for_the_held_and_long_polls_are_for_all_pools_together():
    one, two = (limits(read(POOLS=pools), 20_000)["a"] for pools in ("a=x", "a=x,b=y"))
    assert (one.hold_bytes, one.ask_places) == (2 * two.hold_bytes, 2 * two.ask_places)
    assert limits(read(), 256)["default"].ask_places == 16
    assert limits(read(), 1 << 20)["default"].ask_places == 2048
