"""The certificate authority of one run.

Private keys exist in memory only: OpenSSL reads them from a pipe, not from a file.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vestige._runtime.clock import SYSTEM

_VALID_DAYS = 30
_NAME_MAX = 64


class RunAuthority:
    """Issues certificates for the hosts that one proxy intercepts."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Vestige run")])
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = self._builder(self._name, self._key.public_key(), self._identifier)
        self._certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def context_for(self, host: str, http2: bool) -> ssl.SSLContext:
        """Return the TLS context of the server side for a host."""
        context = self._contexts.get((host, http2))
        if context is None:
            if len(self._contexts) >= 1000:
                self._contexts.clear()
            context = self._contexts[host, http2] = self._make_context(host, http2)
        return context

    def _make_context(self, host: str, http2: bool) -> ssl.SSLContext:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:_NAME_MAX])])
        public = self._leaf_key.public_key()
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        leaf = (
            self._builder(subject, public, identifier)
            .add_extension(x509.SubjectAlternativeName([_alternative_name(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        chain = leaf.public_bytes(serialization.Encoding.PEM) + self.pem
        _load_chain(context, chain, key)
        context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
        return context

    def _builder(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        identifier: x509.SubjectKeyIdentifier,
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.fromtimestamp(SYSTEM.now_ns() // 10**9, datetime.UTC)
        authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
            .add_extension(identifier, critical=False)
            .add_extension(authority, critical=False)
        )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _load_chain(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Load certificate and key from pipes: the ssl module reads from paths only."""
    descriptors = []
    try:
        for content in (chain, key):
            read, write = os.pipe()
            descriptors.append(read)
            os.write(write, content)  # Fits into the buffer of a pipe.
            os.close(write)
        context.load_cert_chain(f"/dev/fd/{descriptors[0]}", f"/dev/fd/{descriptors[1]}")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
