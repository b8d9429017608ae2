"""Secrets and results for the tests of the gate."""

import json
from typing import Any

import pytest

from fairlead.catalog.sanitize import cleaner, gate
from fairlead.config.secrets.masking import SECRETS, Masker
from fairlead.policy.results import ResultSource, prepare_result_steps

SECRET = 'gate/To+ken"é-5fW2q9'
PLAIN = "gatetokenZ81kq"
SECRETS.learn(SECRET, PLAIN)
LONGEST_STEP = 0.5
"""Seconds of CPU: far above what a step takes, and far below what the whole would."""


SOURCE = ResultSource(server_id="s", tool="t", trusted=True, limit=100_000)


def block(text: bytes) -> bytes:
    return b'{"content":[{"type":"text","text":"%b"}]}' % text


def prepare(body: dict[str, Any]) -> bytes:
    source = ResultSource(server_id="s", tool="t", trusted=False, limit=None)
    return gate.finish(prepare_result_steps(json.dumps(body).encode(), source)).result.raw


PASSWORD = "Zq7Kp2Lm9Xw4T"  # as many characters as no base64 has
LOOKALIKE = "Zq7Kp2Lm9Xw4TtRb"  # which is valid base64
SECRETS.learn(PASSWORD, LOOKALIKE)


def use_secrets(monkeypatch: pytest.MonkeyPatch, masker: Masker) -> None:
    """Let both modules of the gate know these secrets alone."""
    for module in (gate, cleaner):
        monkeypatch.setattr(module, "SECRETS", masker)
