"""Launch options: one reading for door and agent, bounded, and with nothing in it that could leave a command line."""

import json

import pytest
from farmwire import launch_options
from farmwire.launch_options import ARGS, HEADER_LIMIT, LaunchOptions, from_header, parse
from hypothesis import given
from hypothesis import strategies as st

VALUES = {
    "proxy_server": ["proxy:3128", "http://10.1.2.3:80", "socks5://[::1]:1080"],
    "user_agent": ["x", 'Mozilla/5.0 (X11; "Linux") \\ a' + "b" * 400],
    "lang": ["de", "de-DE,de,en-US", "zh-Hant-TW"],
    "timezone": ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+3"],
    "window": ["500x200", "1280x800", "8192x8192"],
    "args": [
        "--hide-scrollbars",
        "--hide-scrollbars --proxy-bypass-list=<-loopback>;*.test",
        "--force-device-scale-factor=1.5 --blink-settings=imagesEnabled=false",
    ],
}
ANY = st.text(st.characters(codec="utf-8"), max_size=40)


@given(st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}))
def test_what_the_door_takes_the_agent_takes(asked):
    options = parse(asked)
    header = options.as_header()
    assert len(header) <= HEADER_LIMIT
    assert header.isascii()
    assert header.isprintable()
    assert (from_header(header) if header else LaunchOptions()) == options


@given(st.dictionaries(st.sampled_from(launch_options.NAMES), ANY))
def test_whatever_is_asked_is_taken_whole_or_refused_by_name(asked):
    try:
        options = parse(asked)
    except ValueError as error:
        assert str(error).startswith(launch_options.NAMES)  # noqa: PT017
    else:
        assert from_header(options.as_header() or "{}") == options


@given(st.one_of(ANY, st.recursive(st.none() | ANY | st.integers(), st.lists, max_leaves=5).map(json.dumps)))
def test_a_header_that_no_door_wrote_is_refused(text):
    with pytest.raises(ValueError, match="options"):
        from_header(text)


@pytest.mark.parametrize("name", ["user-data-dir", "remote-debugging-port", "remote-allow-origins", "no-sandbox", "load-extension",
    "disable-extensions-except", "disable-web-security", "js-flags", "enable-logging", "log-file", "renderer-cmd-prefix",
    "gpu-launcher", "utility-cmd-prefix", "use-file-for-fake-video-capture", "proxy-pac-url", "ssl-key-log-file",
    "disable-features", "enable-features", "allow-file-access-from-files", "crash-dumps-dir", "trace-startup-file", "net-log", "log-net-log"])  # fmt: skip
def test_no_flag_that_names_a_file_a_program_or_a_port_or_weakens_the_sandbox(name):
    assert name not in ARGS
    for flag in (f"--{name}", f"--{name}=/tmp/x"):
        with pytest.raises(ValueError, match=f"--{name} is not taken"):
            parse({"args": flag})


@pytest.mark.parametrize("flag", ["--blink-settings=webSecurityEnabled=false", "--disable-blink-features=A,B", "--hide-scrollbars=",
    "--Hide-scrollbars", "-hide", "hide", "--", "--force-color-profile", "--force-device-scale-factor=50", "--proxy-bypass-list=a\x00b",
    "--autoplay-policy=no-user-gesture-required|x"])  # fmt: skip
def test_an_allowed_flag_takes_only_its_own_values(flag):
    with pytest.raises(ValueError, match=r"^args; "):
        parse({"args": flag})


def test_the_largest_options_fit_the_handshake():
    longest = {
        "autoplay-policy": "document-user-activation-required",
        "blink-settings": "imagesEnabled=false",
        "disable-blink-features": "AutomationControlled",
        "font-render-hinting": "medium",
        "force-color-profile": "a" * 32,
        "force-device-scale-factor": "1.25",
        "proxy-bypass-list": "<" * 256,
    }
    flags = [f"--{name}" + (f"={longest[name]}" if pattern else "") for name, pattern in ARGS.items()]
    asked = {
        "user_agent": '"' * 512,
        "proxy_server": "https://" + "a" * 253 + ":8080",
        "lang": ",".join(["abc-" + "-".join(["x" * 8] * 3)] * 8),
        "timezone": "America/Argentina/ComodRivadavia",
        "window": "8192x8192",
        "args": " ".join(flags),
    }
    assert len(parse(asked).as_header()) < HEADER_LIMIT
    for name, most in (("user_agent", 512), ("proxy_server", 266), ("lang", 247)):
        with pytest.raises(ValueError, match=name):
            parse({name: asked[name][:most] + "a" * 300})
