import pytest

from farmctl.images import farm


@pytest.fixture
def context(tmp_path):
    farm.lay("proxy", tmp_path)
    return tmp_path


def test_context_holds_our_code_and_pinned_requirements(context):
    assert (context / "Containerfile").exists()
    assert (context / "src/farmproxy/__main__.py").exists()
    assert (context / "src/farmwire").is_dir()
    assert not list(context.rglob("__pycache__"))
    lines = (context / "requirements.txt").read_text().split()
    assert lines == sorted(lines)
    assert all("==" in line for line in lines)
    assert any(line.startswith("aiohttp==") for line in lines)
    assert not any(line.startswith("farm-") for line in lines)


def test_digest_follows_bytes_and_names_only(context):
    before = farm.digest(context)
    assert len(before) == 12
    (context / "Containerfile").touch()
    (context / farm.CERTIFICATES).write_bytes(b"whom this host trusts")
    assert farm.digest(context) == before
    (context / "src/farmproxy/__main__.py").write_text("changed")
    changed = farm.digest(context)
    assert changed != before
    (context / "src/farmproxy/__main__.py").rename(context / "src/farmproxy/main.py")
    assert farm.digest(context) not in (before, changed)


def test_two_checkouts_of_the_same_have_one_tag(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        farm.lay("browser", tmp_path / folder)
    assert farm.digest(tmp_path / "one") == farm.digest(tmp_path / "two")


@pytest.mark.parametrize("setting", ["PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_builder_trusts_whom_the_host_trusts(monkeypatch, tmp_path, setting):
    for each in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(each, raising=False)
    assert farm.trusted() == b""
    (tmp_path / "ca.pem").write_bytes(b"ca")
    monkeypatch.setenv(setting, str(tmp_path / "ca.pem"))
    assert farm.trusted() == b"ca"
