"""Trust of the API server: its CA file and nothing else."""

import contextlib
import shutil
import ssl
import subprocess

import pytest
from farmproxy.config.settings import SettingsError
from farmproxy.kube.credentials import Credentials


@pytest.fixture
def certificate(tmp_path):
    """(certificate, key) of 127.0.0.1, its own authority."""
    return _certificate(tmp_path, "ca")


def _certificate(folder, name):
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate")
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    ask = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=api",
    ]
    where = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*ask, *where], check=True, capture_output=True)
    return str(cert), str(key)


async def test_https_with_the_clusters_ca(api, watching, certificate):
    cert, key = certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    await api.close()
    api.port = 0
    await api.open(tls)
    url = f"https://127.0.0.1:{api.port}"
    async with watching(kube_api=url, kube_ca_file=cert) as bench:
        await bench.begin("10", {"metadata": {"name": "s1"}})
        assert bench.watcher.listed
    async with watching(kube_api=url) as bench:
        assert await bench.pauses.begun.get() > 0
        assert bench.restarts() == {"broken": 1}
        assert "Certificate" in bench.logged("watch-restarted")[0]["detail"]


async def test_the_ca_file_is_read_again_when_it_is_replaced(api, watching, certificate, tmp_path):
    pairs = [certificate, _certificate(tmp_path, "next")]
    believed = tmp_path / "believed.crt"
    await api.close()
    api.port = 0
    async with contextlib.AsyncExitStack() as stack:
        for number, (cert, key) in enumerate(pairs):
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(cert, key)
            await api.open(tls)
            if number == 0:
                shutil.copy(cert, believed)
                url = f"https://127.0.0.1:{api.port}"
                bench = await stack.enter_async_context(watching(kube_api=url, kube_ca_file=str(believed)))
                stream = await bench.begin("10")
                bench.pauses.gate.clear()
                stream.cut()
                await bench.pauses.begun.get()
                await api.close()
        bench.pauses.gate.set()
        while not any("Certificate" in line["detail"] for line in bench.logged("watch-restarted")):
            await bench.pauses.begun.get()
        believed.write_text("half wri")  # a read that fails keeps the last good one
        await bench.pauses.begun.get()
        shutil.copy(pairs[1][0], believed)
        assert (await api.next()).query["resourceVersion"] == "10"
        assert bench.logged("kube-ca-read-again")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used_stops_the_start(tmp_path, content):
    file = tmp_path / "ca.crt"
    if content:
        file.write_text(content)
    with pytest.raises(SettingsError, match="FARMPROXY_KUBE_CA_FILE"):
        Credentials("", str(file), None)
