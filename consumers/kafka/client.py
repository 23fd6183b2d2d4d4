"""How every Kafka client of this project is connected: the one place where settings become kafka-python's."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kafka.errors import (
    IllegalSaslStateError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.rules import ConfigError
from stream_engine.util.secret import Secret

T = TypeVar("T")

PROBE = "stream-engine-probe"
ATTEMPT_S = 5.0
RETRY_PAUSE_S = 0.3
_LOG_BYTES = ("kafka.net.connection", "kafka.net.transport", "kafka.protocol.parser")
"""Loggers that write every byte sent when they debug, and so the password; seen with kafka-python 3.0.12."""


class BrokerUnreachable(RuntimeError):
    """No Kafka broker answered at the configured address."""


class AccessRefused(ConfigError):
    """A broker answers and does not let this client in; trying again with the same settings cannot help."""


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Where the brokers are and how to get in: keyword arguments of every kafka-python client.

    Raises ConfigError, naming the setting, where a file that it names cannot be used."""
    options: dict[str, Any] = {
        "bootstrap_servers": [address.strip() for address in settings.bootstrap_servers.split(",")],
        "security_protocol": settings.security_protocol,
    }
    if settings.uses_sasl:
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = _secret(settings, "sasl_password")
        for name in _LOG_BYTES:
            logging.getLogger(name).addFilter(_above_debug)
    if settings.uses_tls:
        options["ssl_context"] = _tls_context(settings)
    return options


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _secret(settings: KafkaSettings, name: str) -> str:
    """The secret of that name, from the environment or its file; "" where there is neither."""
    secret: Secret | None = getattr(settings, name)
    file: Path | None = getattr(settings, f"{name}_file")
    if secret is None and file is not None:
        try:
            secret = Secret(file.read_text("utf-8").rstrip("\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"kafka.{name}_file = {str(file)!r}: {reason}") from None
        if not secret.reveal():
            raise ConfigError(f"kafka.{name}_file = {str(file)!r}: it is empty")
    return "" if secret is None else secret.reveal()


def _tls_context(settings: KafkaSettings) -> ssl.SSLContext:
    # A named file is trusted alone, without the machine's own certificates.
    cafile, certificate = settings.ssl_cafile, settings.ssl_certfile
    context = _load("ssl_cafile", cafile, lambda: ssl.create_default_context(cafile=cafile))
    context.check_hostname = settings.ssl_check_hostname
    if certificate is not None:
        # With a password, even an empty one, OpenSSL does not ask for it on the terminal.
        password = _secret(settings, "ssl_key_password")
        names = "ssl_certfile, kafka.ssl_keyfile, kafka.ssl_key_password"
        _load(names, certificate, lambda: context.load_cert_chain(certificate, settings.ssl_keyfile, password))
    return context


def _load(name: str, file: Path | None, action: Callable[[], T]) -> T:
    try:
        return action()
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or error
        raise ConfigError(f"kafka.{name} = {str(file)!r}: {reason}") from None


def check_access(settings: KafkaSettings, timeout_s: float) -> None:
    """Returns once a broker has let this client in and told about the cluster; tries for ``timeout_s`` seconds.

    kafka-python's own start hides why: it tries a refused password again and again, and then says that it was
    unable to bootstrap.

    Raises AccessRefused at once where trying again cannot help, BrokerUnreachable after ``timeout_s``; both name
    the setting or the address."""
    options = client_options(settings)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            _enter(options, min(ATTEMPT_S, timeout_s))
            return
        except (KafkaError, OSError) as error:
            refusal = _refusal(settings, error)
            if refusal is not None:
                raise AccessRefused(refusal) from None
            if time.monotonic() >= deadline:
                raise BrokerUnreachable(_unreachable(settings, error)) from None
        time.sleep(RETRY_PAUSE_S)


def _enter(options: dict[str, Any], timeout_s: float) -> None:
    """One connection to each bootstrap address until one answers. Raises the last one's KafkaError, or OSError
    where none takes a connection."""
    # Our own connection first: the client leaves its socket open where a connection or a TLS handshake fails.
    addresses = _listening(options["bootstrap_servers"], options.get("ssl_context"), timeout_s)
    options = {**options, "bootstrap_servers": addresses}
    timeout_ms = int(timeout_s * 1000)
    net = NetworkSelector(client_id=PROBE)
    manager = _ProbeManager(net, client_id=PROBE, request_timeout_ms=timeout_ms, **options)

    async def enter() -> None:
        failure: KafkaError = KafkaConnectionError("no address")
        for broker in manager.cluster.bootstrap_brokers():
            try:
                await manager.get_connection(
                    broker.node_id, timeout_ms=timeout_ms, pop_on_close=False, refresh_metadata_on_err=False
                )
                await manager.cluster.refresh_metadata(broker.node_id)
                return
            except KafkaError as error:
                failure = error
        raise failure

    with _quiet:
        try:
            net.run(enter)
        finally:
            manager.close()
            net.close()


class _ProbeManager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no type marker
    """A broker says why it refuses and hangs up at once. Where both arrive together, kafka-python 3.0.12 drops
    what it has just read: the last words are handed over before the end here."""

    async def _build_transport(self, *arguments: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*arguments, **options)
        receive = transport._sock_recv

        def words_first() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, None if data else error

        transport._sock_recv = words_first
        return transport


def _listening(addresses: list[str], tls: ssl.SSLContext | None, timeout_s: float) -> list[str]:
    """Those of the addresses (host:port) that take a connection, and its handshake where there is a TLS context.
    Raises OSError, of which ssl.SSLError is a kind, where none does."""
    taken, refusal = [], OSError("no address")
    for address in addresses:
        name, _, port = address.rpartition(":")
        host = name.strip("[]")
        if not port.isdecimal():
            refusal = OSError(f"{address!r} is not host:port")
            continue
        try:
            with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
                if tls is not None:
                    tls.wrap_socket(connection, server_hostname=host).close()
            taken.append(address)
        except OSError as error:
            refusal = error
    if not taken:
        raise refusal
    return taken


class _Quiet:
    """The client logs each failed attempt as an error; the caller says it once, and better.

    Entered by several threads at a time: the first one's end must not put back what the second has found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._level = logging.NOTSET

    def __enter__(self) -> None:
        logger = logging.getLogger("kafka")
        with self._lock:
            if not self._inside:
                self._level = logger.level
                logger.setLevel(logging.CRITICAL + 1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                logging.getLogger("kafka").setLevel(self._level)


_quiet = _Quiet()


def _refusal(settings: KafkaSettings, error: Exception) -> str | None:
    """What to change, where the broker's answer will not be another one the next time; else None."""
    where = f"the broker at {settings.bootstrap_servers}"
    protocol = f"kafka.security_protocol = {settings.security_protocol}"
    if isinstance(error, SaslAuthenticationFailedError):
        return f"kafka.sasl_username, kafka.sasl_password: {where} refuses them ({settings.sasl_mechanism})"
    if isinstance(error, UnsupportedSaslMechanismError):
        return f"kafka.sasl_mechanism = {settings.sasl_mechanism}: {where} does not offer it"
    if isinstance(error, IllegalSaslStateError):
        return f"{protocol}: {where} takes no SASL on this port"
    if isinstance(error, IncompatibleBrokerVersion):
        return f"kafka.bootstrap_servers: {where} does not tell about the cluster: is this a controller's port?"
    if isinstance(error, ssl.SSLCertVerificationError):
        name = "ssl_check_hostname" if "mismatch" in error.verify_message else "ssl_cafile"
        return f"kafka.{name}: the certificate of {where}: {error.verify_message}"
    return None


def _unreachable(settings: KafkaSettings, error: Exception) -> str:
    return (
        f"no Kafka broker at {settings.bootstrap_servers} that speaks {settings.security_protocol} ({error}): "
        "start one (stream-engine kafka start), or name yours, as host:port, in KAFKA_BOOTSTRAP_SERVERS"
    )
