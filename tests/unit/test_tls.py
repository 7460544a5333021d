"""Explanations of rejected server certificates."""

import ssl

import pytest

from fairlead.tls import explain_untrusted_certificate


@pytest.mark.parametrize(
    ("code", "reason", "problem", "fix"),
    [
        (18, "self-signed certificate", "is not trusted (self-signed", "set SSL_CERT_FILE"),
        (20, "unable to get local issuer", "is not trusted (unable", "set SSL_CERT_FILE"),
        (10, "certificate has expired", "is not valid now (", "new certificate, or correct"),
        (9, "certificate is not yet valid", "is not valid now (", "new certificate, or correct"),
        (62, "Hostname mismatch", "is not valid for gpu (Hostname", "certificate for gpu"),
        (64, "IP address mismatch", "is not valid for gpu (IP", "certificate for gpu"),
    ],
)
def test_each_problem_of_a_certificate_has_its_fix(
    code: int, reason: str, problem: str, fix: str
) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, reason
    explanation = explain_untrusted_certificate(error, "gpu")
    assert explanation is not None
    assert problem in explanation[0]
    assert fix in explanation[1]


def test_other_errors_are_not_explained() -> None:
    for error in (ConnectionRefusedError(111, "refused"), TimeoutError(), ssl.SSLError(1, "eof")):
        assert explain_untrusted_certificate(error, "gpu") is None
