"""SASL and TLS against a real broker's own listeners, and what one reads when they do not let one in."""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from kafka import KafkaAdminClient
from kafka.admin import UserScramCredentialUpsertion

from consumers.kafka.client import AccessRefused, BrokerUnreachable, check_access
from consumers.kafka.publish import publish
from consumers.kafka.source import KafkaSource
from consumers.kafka.topics import ensure_topics
from consumers.writers.dead_letter import DeadLetterWriter
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.rules import ConfigError
from stream_engine.localkafka import SecureListener, TemporaryKafka
from stream_engine.util.ports import free_port
from stream_engine.util.secret import Secret

PASSWORD = "correct-horse"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KEY_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    plain: str
    sasl: str
    tls: str
    certificates: Path


def make_certificates(folder: Path) -> None:
    """An authority, and a server's and a client's certificate of it; the client's key has a password. Keys are
    PKCS#8, the only kind that Kafka takes as PEM."""
    authority_key = rsa.generate_private_key(65537, 2048)
    authority = sign("test-authority", authority_key, None, authority_key)
    (folder / "ca.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    for name in ("server", "client"):
        key = rsa.generate_private_key(65537, 2048)
        secret = BestAvailableEncryption(PASSWORD.encode()) if name == "client" else NoEncryption()
        encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
        certificate = sign(name, key, authority, authority_key).public_bytes(Encoding.PEM)
        (folder / f"{name}.key").write_bytes(encoded)
        (folder / f"{name}.pem").write_bytes(certificate)
        (folder / f"{name}-all.pem").write_bytes(encoded + certificate)


def sign(
    name: str, key: rsa.RSAPrivateKey, authority: x509.Certificate | None, authority_key: rsa.RSAPrivateKey
) -> x509.Certificate:
    """A certificate of two days for ``key``, the authority's own where there is none yet; the others are of
    127.0.0.1. Extensions are those that a strict check of a chain wants."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        x509.CertificateBuilder(subject if authority is None else authority.subject, subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if authority is None:
        allowed = dict.fromkeys(KEY_USES, False) | {"key_cert_sign": True, "crl_sign": True}
        builder = builder.add_extension(x509.KeyUsage(**allowed), critical=True)
    else:
        address = x509.IPAddress(ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def test_the_certificates_need_no_command_and_stand_a_strict_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    make_certificates(tmp_path)
    authority, client = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes()) for name in ("ca.pem", "client.pem")
    )
    client.verify_directly_issued_by(authority)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "server-all.pem")
    shake_hands(context, server, "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, server, "127.0.0.2")
    with pytest.raises(ssl.SSLError):
        server.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key", "battery-staple")
    server.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key", PASSWORD)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, address: str) -> None:
    """In memory. Raises SSLError where one end does not trust the other."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=address), server.wrap_bio(up, down, server_side=True)]
    while ends:
        for end in tuple(ends):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                ends.remove(end)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    security = "org.apache.kafka.common.security"
    sasl = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "plain.sasl.jaas.config": f'{security}.plain.PlainLoginModule required user_desk="{PASSWORD}";',
        "scram-sha-256.sasl.jaas.config": f"{security}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{security}.scram.ScramLoginModule required;",
    }
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server-all.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }
    sasl_port, tls_port = free_port(), free_port()
    listeners = SecureListener("SASL_PLAINTEXT", sasl_port, sasl), SecureListener("SSL", tls_port, tls)
    with TemporaryKafka(*listeners) as own:
        with KafkaAdminClient(bootstrap_servers=own.bootstrap) as admin:
            users = [UserScramCredentialUpsertion("desk", name, PASSWORD) for name in MECHANISMS[1:]]
            # In one request the broker takes only one change of a user.
            for user in users:
                assert admin.alter_user_scram_credentials([user]) == {"desk": None}
        yield SecuredBroker(own.bootstrap, f"127.0.0.1:{sasl_port}", f"127.0.0.1:{tls_port}", folder)


def sasl_settings(broker: SecuredBroker, mechanism: str, password: str = PASSWORD) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=broker.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,  # type: ignore[arg-type]
        sasl_username="desk",
        sasl_password=Secret(password),
    )


def tls_settings(broker: SecuredBroker, **changes: object) -> KafkaSettings:
    folder = broker.certificates
    settings = KafkaSettings(
        bootstrap_servers=broker.tls,
        security_protocol="SSL",
        ssl_cafile=folder / "ca.pem",
        ssl_certfile=folder / "client.pem",
        ssl_keyfile=folder / "client.key",
        ssl_key_password=Secret(PASSWORD),
    )
    return replace(settings, **changes)  # type: ignore[arg-type]


def round_trip(settings: KafkaSettings, prefix: str) -> None:
    """Topics made, a bar published and polled, the dead-letter producer let in: every client there is."""
    settings = replace(
        settings,
        group_id=prefix + "group",
        bars_topic=prefix + "bars",
        partitions=1,
        session_timeout_ms=6_000,
    )
    assert settings.bars_topic in ensure_topics(settings)
    assert publish([("AAPL", {"close": 1.0})], settings, settings.bars_topic) == 1
    DeadLetterWriter(settings).spool.close(5.0)
    source = KafkaSource(settings, [settings.bars_topic])
    try:
        polled: list[bytes | None] = []
        deadline = time.monotonic() + 60.0
        while not polled and time.monotonic() < deadline:
            for event in source.events():
                source.seek(event.partition, 0)
                source.flow({event.partition})
            polled += [record.key for records in source.poll(500, 10).values() for record in records]
    finally:
        source.close(5.0)
    assert polled == [b"AAPL"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_client_gets_in_by_sasl(broker: SecuredBroker, topic_prefix: str, mechanism: str) -> None:
    round_trip(sasl_settings(broker, mechanism), topic_prefix)


def test_every_client_gets_in_by_tls(broker: SecuredBroker, topic_prefix: str, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    settings = tls_settings(broker, ssl_key_password=None, ssl_key_password_file=password)
    round_trip(settings, topic_prefix)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_by_name(
    broker: SecuredBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AccessRefused) as refused:
        ensure_topics(sasl_settings(broker, mechanism, "battery-staple"), timeout_s=30.0)
    message = str(refused.value)
    assert message.startswith("kafka.sasl_username, kafka.sasl_password: ")
    assert "\n" not in message
    assert "battery-staple" not in message + caplog.text
    assert caplog.text == ""  # the client's own complaints would bury it


def test_the_consumer_process_ends_on_a_wrong_password(broker: SecuredBroker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("battery-staple\n")
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f"""
        [kafka]
        bootstrap_servers = "{broker.sasl}"
        security_protocol = "SASL_PLAINTEXT"
        sasl_mechanism = "SCRAM-SHA-512"
        sasl_username = "desk"
        sasl_password_file = "{secret}"
        """
    )
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP_SERVERS"}
    options = ("--config", str(settings), "--log-level", "debug")
    ended = subprocess.run(
        [sys.executable, "-m", "stream_engine.cli", *options, "serve", "consumer"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "kafka.sasl_username, kafka.sasl_password: " in ended.stderr.splitlines()[-1]
    assert "battery-staple" not in ended.stdout + ended.stderr


def test_a_debug_log_of_a_client_that_gets_in_holds_no_password(
    broker: SecuredBroker, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        round_trip(sasl_settings(broker, "PLAIN"), topic_prefix)
    assert "sasl_plain_password" in caplog.text  # kafka-python does log its options
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ssl_cafile": None}, "kafka.ssl_cafile: "),
        ({"bootstrap_servers": "localhost"}, "kafka.ssl_check_hostname: "),
    ],
)
def test_tls_that_does_not_fit_is_refused_by_name(broker: SecuredBroker, changes: dict, named: str) -> None:
    # The certificate names 127.0.0.1 only.
    changes = {
        name: f"{value}:{broker.tls.partition(':')[2]}" if value else value for name, value in changes.items()
    }
    with pytest.raises(AccessRefused) as refused:
        check_access(tls_settings(broker, **changes), 30.0)
    assert str(refused.value).startswith(named)


def test_files_that_cannot_be_used_are_named(broker: SecuredBroker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.ssl_cafile = .*none\.pem': No such file"):
        check_access(tls_settings(broker, ssl_cafile=tmp_path / "none.pem"), 1.0)
    # Without its password the key is refused; nobody is asked for it on the terminal.
    with pytest.raises(ConfigError, match=r"kafka\.ssl_key_password = "):
        check_access(tls_settings(broker, ssl_key_password=None), 1.0)
    empty = tmp_path / "empty"
    empty.touch()
    settings = replace(sasl_settings(broker, "PLAIN"), sasl_password=None, sasl_password_file=empty)
    with pytest.raises(ConfigError, match=r"kafka\.sasl_password_file = .*empty': it is empty"):
        check_access(settings, 1.0)


def test_a_listener_of_another_kind_is_told_apart(broker: SecuredBroker) -> None:
    with pytest.raises(AccessRefused, match=r"kafka\.security_protocol = SASL_PLAINTEXT: .* takes no SASL"):
        check_access(replace(sasl_settings(broker, "PLAIN"), bootstrap_servers=broker.plain), 30.0)
    with pytest.raises(BrokerUnreachable, match="speaks SSL"):
        check_access(tls_settings(broker, bootstrap_servers=broker.plain), 1.0)
    for address in (broker.sasl, broker.tls):
        with pytest.raises(BrokerUnreachable, match="speaks PLAINTEXT"):
            check_access(KafkaSettings(bootstrap_servers=address), 1.0)
