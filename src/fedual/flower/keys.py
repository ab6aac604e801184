"""A certificate authority, the server's certificate and the sites' keys, with the `cryptography` package."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["make_certificates", "make_site_key"]


def make_certificates(folder: str | Path, hosts: Sequence[str], days: int = 365) -> dict[str, Path]:
    """Make a CA and a server certificate that it signs.

    Args:
        folder: gets `ca.crt` (for everyone), `server.crt` and `server.key` (for the coordinator), and `ca.key`, which
            is needed for further certificates only and best kept elsewhere.
        hosts: names and addresses under which sites reach the server.
        days: how long they are valid.

    Returns:
        The files, by name.

    Raises:
        FileExistsError: one of them exists; keys are never written over.

    Example:
        >>> import tempfile
        >>> sorted(make_certificates(tempfile.mkdtemp(), ["localhost"]))
        ['ca.crt', 'ca.key', 'server.crt', 'server.key']
    """
    files = {name: Path(folder) / name for name in ("ca.crt", "ca.key", "server.crt", "server.key")}
    _refuse_existing(files.values())
    if not hosts:
        raise ValueError("give at least one host name or address under which sites reach the server.")
    ca_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _name("fedual deployment CA")
    usage: dict[str, Any] = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    usage |= {"decipher_only": False}
    signing = x509.KeyUsage(digital_signature=False, key_cert_sign=True, crl_sign=True, **usage)
    serving = x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **usage)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    ca = (
        _certificate(issuer, issuer, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    server = (
        _certificate(_name(hosts[0]), issuer, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(serving, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    _write(files["ca.key"], _pem(ca_key, serialization.PrivateFormat.PKCS8), secret=True)
    _write(files["server.key"], _pem(key, serialization.PrivateFormat.PKCS8), secret=True)
    _write(files["ca.crt"], ca.public_bytes(serialization.Encoding.PEM))
    _write(files["server.crt"], server.public_bytes(serialization.Encoding.PEM))
    return files


def make_site_key(folder: str | Path, site: str) -> tuple[Path, Path]:
    """Make a site's private key `<site>.key`, which never leaves the site, and `<site>.pub` for the coordinator.

    Raises:
        FileExistsError: one of them exists.
    """
    files = Path(folder) / f"{site}.key", Path(folder) / f"{site}.pub"
    _refuse_existing(files)
    key = ec.generate_private_key(ec.SECP384R1())
    _write(files[0], _pem(key, serialization.PrivateFormat.OpenSSH), secret=True)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(files[1], public + f" {site}\n".encode())
    return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(subject: x509.Name, issuer: x509.Name, key: Any, days: int) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _pem(key: Any, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _refuse_existing(files: Any) -> None:
    for file in files:
        if file.exists():
            raise FileExistsError(f"{file} exists; keys are never written over. Name another folder, or remove it.")


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Created with its final rights, so that a secret is at no moment readable by others.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
