"""Explanation of a rejected server certificate, with the fix."""

_WRONG_NAME = (62, 64)
_OUTSIDE_VALIDITY = (9, 10)
"""OpenSSL's error numbers for a certificate: wrong name, outside its validity"""


def explain_untrusted_certificate(error: Exception, name: str) -> tuple[str, str] | None:
    """Return the problem with the certificate of the server ``name``, and the fix.

    Returns None for other errors. Does not import ssl, which takes long.
    """
    code = getattr(error, "verify_code", None)
    if code is None:
        return None
    reason = str(getattr(error, "verify_message", "")).rstrip(".") or str(error)
    if code in _WRONG_NAME:
        fix = f"give the server a certificate for {name}, or use a name that its certificate has"
        return f"the server's certificate is not valid for {name} ({reason})", fix
    if code in _OUTSIDE_VALIDITY:
        fix = "give the server a new certificate, or correct the clock"
        return f"the server's certificate is not valid now ({reason})", fix
    fix = "set SSL_CERT_FILE to a file with the certificate or its authority's"
    return f"the server's certificate is not trusted ({reason})", fix
