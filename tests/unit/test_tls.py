"""What is said of certificates that are not accepted."""

import ssl

import pytest

from fairlead.tls import explain_untrusted_certificate


@pytest.mark.parametrize(
    ("code", "why", "problem", "fix"),
    [
        (18, "self-signed certificate", "is not trusted (self-signed", "set SSL_CERT_FILE"),
        (20, "unable to get local issuer", "is not trusted (unable", "set SSL_CERT_FILE"),
        (10, "certificate has expired", "is not valid now (", "new certificate, or correct"),
        (9, "certificate is not yet valid", "is not valid now (", "new certificate, or correct"),
        (62, "Hostname mismatch", "is not valid for gpu (Hostname", "certificate with gpu in it"),
        (64, "IP address mismatch", "is not valid for gpu (IP", "certificate with gpu in it"),
    ],
)
def test_each_fault_of_a_certificate_has_its_own_fix(
    code: int, why: str, problem: str, fix: str
) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, why
    found = explain_untrusted_certificate(error, "gpu")
    assert found is not None
    assert problem in found[0]
    assert fix in found[1]


def test_what_is_no_fault_of_a_certificate_is_not_taken_for_one() -> None:
    for error in (ConnectionRefusedError(111, "refused"), TimeoutError(), ssl.SSLError(1, "eof")):
        assert explain_untrusted_certificate(error, "gpu") is None
