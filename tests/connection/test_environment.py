import pytest

from fairlead.connection.environment import child_environment


@pytest.mark.requirement("HARD-6", "NEED-23")
@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "NPM_TOKEN",
        "npm_config__auth",
        "npm_config_//registry.npmjs.org/:_authToken",
        "UV_PUBLISH_TOKEN",
        "UV_INDEX_PRIVATE_PASSWORD",
        "PIP_KEYRING_PROVIDER",
        "SSH_AUTH_SOCK",
        "NODE_OPTIONS",
        "PYTHONPATH",
        "LD_PRELOAD",
        "FAIRLEAD_CONFIG_JSON",
        "MY_PATH",
        "PATH_TO_KEY",
        "HOMELAB",
    ],
)
def test_what_programs_do_not_need_stays_here(name: str) -> None:
    assert child_environment({}, {name: "secret", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "LC_ALL",
        "XDG_CONFIG_HOME",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "HTTPS_PROXY",
        "https_proxy",
        "no_proxy",
        "npm_config_cache",
        "npm_config_registry",
        "UV_CACHE_DIR",
        "UV_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "SYSTEMROOT",
    ],
)
def test_what_programs_need_is_passed_on(name: str) -> None:
    assert child_environment({}, {name: "value"}) == {name: "value"}


@pytest.mark.requirement("NEED-23")
def test_what_is_declared_is_there_and_wins() -> None:
    environment = child_environment({"GITHUB_TOKEN": "t", "PATH": "/opt"}, {"PATH": "/bin", "TOKEN": "x"})

    assert environment == {"GITHUB_TOKEN": "t", "PATH": "/opt"}


@pytest.mark.requirement("HARD-6", "NEED-23")
def test_a_package_index_with_a_password_stays_here() -> None:
    index = "https://user:password@index.example/simple"

    assert child_environment({}, {"UV_INDEX_URL": index, "PIP_INDEX_URL": index}) == {}


def test_a_shell_function_is_never_passed_on() -> None:
    assert child_environment({}, {"TERM": "() { :; }; rm -rf /"}) == {}
