"""The one TLS context all connections share."""

import functools
import os
import ssl
import sys

import truststore

from fairlead.errors import ConfigUnreadable


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return the context that trusts what this machine trusts, or only what `SSL_CERT_FILE`/`_DIR` name.

    It takes tens of milliseconds to make, so it is made once, when the first `https` URL needs it.
    """
    context = _trusting_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _trusting_context() -> ssl.SSLContext:
    paths = ssl.get_default_verify_paths()
    file, folder = os.environ.get(paths.openssl_cafile_env), os.environ.get(paths.openssl_capath_env)
    if file or folder:
        try:
            return ssl.create_default_context(cafile=file or None, capath=folder or None)
        except OSError as exc:
            names = " and ".join(filter(None, (file, folder)))
            raise ConfigUnreadable(
                f"no certificates can be read from {names}: {exc.strerror}",
                hint=f"correct or unset {paths.openssl_cafile_env} and {paths.openssl_capath_env}",
            ) from exc
    # Elsewhere the operating system has to be asked about each certificate. Here OpenSSL reads the same files
    # as the rest of the system, and reads them once rather than for every connection.
    if sys.platform not in ("darwin", "win32") and (paths.cafile or paths.capath):
        return ssl.create_default_context(cafile=paths.cafile, capath=paths.capath)
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
