"""A certificate authority of one way out, by which TLS to the domains of secrets is ended here.

Its key is in memory only, and only the container trusts it. Needs the extra `gateway` or `egress`.
"""

import datetime
import os
import secrets
import ssl
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.protocol.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import CertificateBuilder, Name

MISSING = "domain_secrets need the package cryptography: pip install 'ferrule[egress]' (the extra gateway has it, too)"
AUTHORITY_DAYS = 3650
"""Longer than any server runs."""
LEAF_DAYS = 397
"""The longest that clients accept."""
MAX_KEPT = 256
"""Certificates: a domain with `*` has any number of hosts."""
SLACK = datetime.timedelta(days=1)
"""Clocks differ."""
SYSTEM_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, BSD
)


class Authority:
    """Makes certificates for hosts. Raises `UsageError` without the package `cryptography`."""

    def __init__(self) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.x509.oid import NameOID
        except ImportError as error:
            raise UsageError(MISSING) from error
        self._key = ec.generate_private_key(ec.SECP256R1())
        # Two authorities of one name confuse OpenSSL.
        title = f"Ferrule container {secrets.token_hex(8)}"
        self._name: Name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        builder = (
            _builder(self._name, self._name, self._key, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        )
        self.pem = _signed(builder, self._key)
        """Its certificate, which the container trusts."""
        self.context = lru_cache(MAX_KEPT)(self._context)
        """Returns the server's side of TLS for a host."""

    def __repr__(self) -> str:
        return "<Authority>"

    def _context(self, host: str) -> ssl.SSLContext:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(x509.Name([]), self._name, key, LEAF_DAYS)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(authority, critical=False)
        )
        encoding = serialization.Encoding.PEM
        private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        _load(context, private + _signed(builder, self._key))
        return context


def _builder(subject: "Name", issuer: "Name", key: "EllipticCurvePrivateKey", days: int) -> "CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + datetime.timedelta(days=days) - SLACK)
    )


def _signed(builder: "CertificateBuilder", key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key that is in no file: the library takes only names of files."""
    fd = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(fd, pem)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def roots(ca_file: str | None) -> bytes:
    """Return what this machine trusts, and the certificates of `ca_file`. Raises `UsageError`."""
    found = next((path for path in SYSTEM_ROOTS if Path(path).is_file()), None)
    system = Path(found).read_bytes() if found else b""
    if ca_file is None:
        return system
    try:
        return system.rstrip(b"\n") + b"\n" + Path(ca_file).read_bytes()
    except OSError as error:
        raise UsageError(f"ca_file: {ca_file} cannot be read: {error.strerror}") from error
