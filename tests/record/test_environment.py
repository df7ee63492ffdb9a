"""Secrets that the environment holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from vestige.record.redaction.environment_secrets import secrets_in_environment


def test_values_of_secret_names_are_learned_and_harmless_ones_are_not() -> None:
    environ = {
        "ACME_API_KEY": "k9Xw2Tb7Lm4Q",
        "DBPASSWORD": "Tr0ub4dor-3",
        "DATABASE_URL": "postgres://app:s3cr%21t-value9@h/d",
        "API_TOKEN": "disabled",
        "SESSION_SECRET_PATH": "/run/secrets/x1y2z3",
        "SECRET_KEY": "/etc/app/key.pem",
        "MAX_TOKENS": "100000000",
        "DB_PASSWORD": "12345678",
        "AUTH_TOKEN": "short1",
        "COOKIE": "true",
        "SERVICE_TOKEN": "https://example.com/token",
        "HOME": "/home/me1234",
    }

    assert secrets_in_environment(environ) == ("k9Xw2Tb7Lm4Q", "Tr0ub4dor-3", "s3cr!t-value9")


def test_a_recorder_masks_what_its_environment_holds(tmp_path: Path) -> None:
    code = (
        "import vestige, os\n"
        "r = vestige.Recorder()\n"
        "with r.run('a') as run:\n"
        "    run.log.info('the value is ' + os.environ['ACME_API_KEY'])\n"
    )
    environ = {**os.environ, "VESTIGE_HOME": str(tmp_path), "ACME_API_KEY": "plain9Xw2Tb7Lm4Q"}

    subprocess.run([sys.executable, "-c", code], env=environ, check=True)

    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"the value is" in written
    assert b"plain9Xw2Tb7Lm4Q" not in written
