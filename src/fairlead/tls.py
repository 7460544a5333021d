"""Why a server's certificate was not accepted, in words that say what to do about it."""

_ANOTHER_NAME = (62, 64)
_DATES = (9, 10)
"""OpenSSL's numbers of what can be wrong with a certificate: its names, when it is valid"""


def explain_untrusted_certificate(error: Exception, name: str) -> tuple[str, str] | None:
    """Return what is wrong with the certificate of the server asked by this name, and the fix.

    None if it is something else that went wrong. ssl, slow to import, is not imported for it.
    """
    code = getattr(error, "verify_code", None)
    if code is None:
        return None
    why = str(getattr(error, "verify_message", "")).rstrip(".") or str(error)
    if code in _ANOTHER_NAME:
        fix = f"give the server a certificate with {name} in it, or use a name that it has"
        return f"the server's certificate is not valid for {name} ({why})", fix
    if code in _DATES:
        fix = "give the server a new certificate, or correct the clock"
        return f"the server's certificate is not valid now ({why})", fix
    fix = "set SSL_CERT_FILE to a file with it or with its authority's"
    return f"the server's certificate is not trusted ({why})", fix
