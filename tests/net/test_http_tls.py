import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.errors import ConfigUnreadable
from fairlead.net.http import tls_context


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


@pytest.mark.requirement("NEED-34")
def test_all_connections_share_one_context_that_verifies() -> None:
    context = tls_context()
    assert context is tls_context()
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.requirement("NEED-34")
def test_only_the_named_authorities_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "none"
    folder.mkdir()
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    assert tls_context().cert_store_stats()["x509_ca"] == 0


@pytest.mark.parametrize("content", [None, "this is no certificate"])
def test_a_file_without_certificates_is_said_to_be_one(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(ConfigUnreadable, match=r"authorities\.pem") as failure:
        tls_context()
    assert "SSL_CERT_FILE" in (failure.value.hint or "")
