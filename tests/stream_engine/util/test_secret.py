"""Secrets that cannot be printed, and the settings of the wire's security that do not fit together."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.rules import ConfigError
from stream_engine.util.secret import Secret

PASSWORD = "correct-horse"
SASL = {
    "STREAM_ENGINE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "STREAM_ENGINE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-256",
    "STREAM_ENGINE_KAFKA_SASL_USERNAME": "desk",
    "STREAM_ENGINE_KAFKA_SASL_PASSWORD": PASSWORD,
}


def test_a_secret_shows_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(PASSWORD)
    shown = [repr(secret), str(secret), f"{secret} {secret!r}", f"{[secret]}", f"{secret.reveal()!r}"]
    with caplog.at_level("DEBUG"):
        logging.getLogger("test").debug("options: %s", {"password": secret.reveal()})
    assert PASSWORD not in " ".join(shown) + caplog.text
    assert "***" in caplog.text
    for encode in (json.dumps, msgspec.json.encode):
        with pytest.raises(TypeError):
            encode({"password": secret})


def test_a_secret_is_its_value() -> None:
    assert Secret(PASSWORD).reveal() == PASSWORD
    assert Secret(PASSWORD) == Secret(PASSWORD) != Secret("other")
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    # A process that is spawned gets its settings by pickle.
    assert pickle.loads(pickle.dumps(Secret(PASSWORD))).reveal() == PASSWORD


def test_settings_with_a_secret_show_it_nowhere() -> None:
    settings = Config.load(env=SASL).kafka
    assert settings.sasl_password == Secret(PASSWORD)
    assert PASSWORD not in repr(settings) + repr(Config.load(env=SASL)) + repr(asdict(settings))


@pytest.mark.parametrize("name", ["sasl_password", "ssl_key_password"])
def test_a_secret_in_a_file_is_refused_and_the_ways_are_named(name: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'[kafka]\n{name} = "{PASSWORD}"\n')
    with pytest.raises(ConfigError) as refused:
        Config.load(file, env={})
    message = str(refused.value)
    assert message.startswith(f"kafka.{name}: ")
    assert f"STREAM_ENGINE_KAFKA_{name.upper()}" in message
    assert f"kafka.{name}_file" in message
    assert PASSWORD not in "".join(traceback.format_exception(refused.value))


def test_a_file_of_the_password_may_be_named_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        '[kafka]\nsecurity_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\nsasl_username = "desk"\n'
        'sasl_password_file = "/run/secrets/kafka"\n'
    )
    assert Config.load(file, env={}).kafka.sasl_password_file == Path("/run/secrets/kafka")


def test_an_empty_variable_is_unset() -> None:
    empty = dict.fromkeys(SASL, "") | {"STREAM_ENGINE_KAFKA_SSL_CAFILE": ""}
    assert Config.load(env=empty).kafka == KafkaSettings()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"SASL_MECHANISM": ""}, "kafka.sasl_mechanism: needed"),
        ({"SASL_MECHANISM": "GSSAPI"}, "kafka.sasl_mechanism = "),
        ({"SASL_USERNAME": ""}, "kafka.sasl_username: needed"),
        ({"SASL_PASSWORD": ""}, "kafka.sasl_password: needed"),
        ({"SASL_PASSWORD_FILE": "/run/secret"}, "kafka.sasl_password: kafka.sasl_password_file is set as well"),
        ({"SECURITY_PROTOCOL": ""}, "kafka.sasl_mechanism: has no effect"),
        ({"SECURITY_PROTOCOL": "SSL"}, "kafka.sasl_mechanism: has no effect"),
        ({"SECURITY_PROTOCOL": "TLS"}, "kafka.security_protocol = "),
        ({"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SSL_CAFILE": "/ca.pem"}, "kafka.ssl_cafile: has no effect"),
        (
            {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SSL_CHECK_HOSTNAME": "false"},
            "kafka.ssl_check_hostname: has no effect",
        ),
        ({"SSL_KEYFILE": "/key.pem"}, "kafka.ssl_keyfile: is of use only with kafka.ssl_certfile"),
        ({"SSL_KEY_PASSWORD": PASSWORD}, "kafka.ssl_key_password: is of use only with kafka.ssl_certfile"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(changes: dict[str, str], named: str) -> None:
    environment = SASL | {f"STREAM_ENGINE_KAFKA_{name}": value for name, value in changes.items()}
    with pytest.raises(ConfigError) as refused:
        Config.load(env=environment)
    assert str(refused.value).startswith(named)
    assert PASSWORD not in str(refused.value)
