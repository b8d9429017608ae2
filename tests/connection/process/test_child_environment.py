import pytest

from fairlead.connection.process.child import child_environment


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


PROXIES = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]


@pytest.mark.requirement("HARD-6", "HARD-84")
@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize(
    "value",
    [
        "http://user:password@proxy.example:3128",
        "http://user@proxy.example:3128",
        "http://:password@proxy.example",
        "http://token:@proxy.example",
        "HTTP://User:Password@PROXY.example/",
        "user:password@proxy.example:3128",
        "//user:password@proxy.example",
        "socks5h://user:password@127.0.0.1:1080",
        "http://us%65r:p%40ss@proxy.example",
        "http://user:password%40proxy.example:3128",
        "http://user%3Apassword%2540proxy.example",
        "http://user:password%25252540proxy.example",
        "http://user:password\uff20proxy.example",
        "http://user:password\ufe6bproxy.example",
        "http:\\\\user:password@proxy.example",
        " http://user:password@proxy.example",
        "http://proxy.example:3128,http://user:password@other.example",
    ],
)
def test_a_proxy_with_credentials_stays_here_unless_it_is_declared(name: str, value: str) -> None:
    assert child_environment({}, {name: value, "PATH": "/bin"}) == {"PATH": "/bin"}
    assert child_environment({name: value}, {name: value}) == {name: value}


@pytest.mark.parametrize("name", [*PROXIES, "NO_PROXY", "no_proxy"])
@pytest.mark.parametrize("value", ["http://proxy.example:3128", "proxy.example", "socks5://[::1]:1080", ""])
def test_a_proxy_without_credentials_is_passed_on(name: str, value: str) -> None:
    assert child_environment({}, {name: value}) == {name: value}


@pytest.mark.requirement("HARD-6", "HARD-84")
def test_a_package_index_with_an_encoded_password_stays_here() -> None:
    index = "first=https://index.example/simple second=https://user:pw%40index.example/simple"

    assert child_environment({}, {"UV_INDEX": index, "npm_config_registry": "https://u@npm.example"}) == {}
