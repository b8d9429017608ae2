"""An S3-compatible server of the tests' own, on a free port, which checks the signature of every request.

It is moto's, in a process and an environment of its own (`tests/tools/install`). Its checks begin once a user
with a key and a bucket are there. It verifies signatures with botocore, which we do not use.
"""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.redis_server import free_port

TOOLS = Path(os.environ.get("FAIRLEAD_TEST_TOOLS") or Path(__file__).parents[1] / ".test-tools").absolute()
PYTHON = TOOLS / "moto" / "bin" / "python"
PATIENCE = 60.0
BUCKET = "team-artifacts"

_SET_UP = """
import boto3, json, sys
url, bucket = sys.argv[1:]
options = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
iam = boto3.client("iam", **options)
iam.create_user(UserName="fairlead")
key = iam.create_access_key(UserName="fairlead")["AccessKey"]
allowed = ["s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:ListBucket"]
policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": allowed, "Resource": "*"}]}
iam.put_user_policy(UserName="fairlead", PolicyName="artifacts", PolicyDocument=json.dumps(policy))
boto3.client("s3", **options).create_bucket(Bucket=bucket)
print(json.dumps([key["AccessKeyId"], key["SecretAccessKey"]]))
"""
_SET_UP_REQUESTS = 4


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """A server with one bucket, and the key of a user who may use it."""

    url: str
    access_key: str
    secret_key: str
    process: subprocess.Popen[bytes]

    def settings(self, **changes: str) -> dict[str, Any]:
        """The section `artifacts.s3` for it."""
        given = {"endpoint": self.url, "bucket": BUCKET, "access_key": self.access_key}
        return {**given, "secret_key": self.secret_key, **changes}


@contextlib.contextmanager
def s3_server(folder: Path) -> Generator[S3Server]:
    """Run one for the length of the block; the test is skipped where it is not installed."""
    if not PYTHON.exists():
        pytest.skip("moto is not installed: run tests/tools/install")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {"PATH": os.environ["PATH"], "INITIAL_NO_AUTH_ACTION_COUNT": str(_SET_UP_REQUESTS)}
    env["HOME"] = str(folder)
    process = subprocess.Popen(
        [PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd=folder,
    )
    try:
        _wait_for(url, process)
        done = subprocess.run(
            [PYTHON, "-c", _SET_UP, url, BUCKET],
            capture_output=True,
            env=env,
            timeout=PATIENCE,
            check=True,
        )
        access_key, secret_key = json.loads(done.stdout)
        yield S3Server(url=url, access_key=access_key, secret_key=secret_key, process=process)
    finally:
        process.kill()
        process.wait(PATIENCE)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            # Not an action: it does not count as one that needs no signature.
            urllib.request.urlopen(f"{url}/moto-api/", timeout=PATIENCE).close()
            return
        assert process.poll() is None, "the S3 server ended"
        assert time.monotonic() < deadline, "the S3 server does not start"
        time.sleep(0.05)
