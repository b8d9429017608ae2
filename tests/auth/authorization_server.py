"""A real authorization server and a protected MCP server on one port of this machine.

In this process, in a thread of its own:

    with authorization_server(expires_in=1) as server:
        server.behaviour.token_status = 503
        ...
        assert server.count("/token", grant_type="refresh_token") == 1

In a process of its own, for tests that kill things: `authorization_process()`. What `server.behaviour` and
`server.seen` are in the first case, `POST /_behaviour` and `GET /_seen` are in the second.

`Clicking` is a person who clicks on the login page without a browser; a real browser can click there as well.
"""

import base64
import hashlib
import html
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import aiohttp
import anyio
import jwt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from yarl import URL

from tests.auth.dpop_server import DpopRefused, thumbprint_of_proof
from tests.auth.server_behaviour import Behaviour, Form, Grant, RegisteredClient, Seen, mcp_answer
from tests.fixtures.sdk_http import serving

ACCOUNTS = ("ada", "grace")


class Refused(Exception):
    """The token endpoint says no."""

    def __init__(self, error: str, status: int = 400) -> None:
        super().__init__(error)
        self.error, self.status = error, status


class AuthorizationServer:
    """The server: what it was asked, whom it knows, which tokens are good."""

    def __init__(self, **behaviour: Any) -> None:
        self.behaviour = Behaviour(**behaviour)
        self.url = ""
        self.seen: list[Seen] = []
        self.clients: dict[str, RegisteredClient] = {}
        self.codes: dict[str, Grant] = {}
        self.access_tokens: dict[str, Grant] = {}
        self.refresh_tokens: dict[str, Grant] = {}
        self.spent: dict[str, str] = {}
        self.reused = 0
        self.registrations: list[dict[str, Any]] = []
        self.trusted: list[AuthorizationServer] = [self]
        """Whose tokens the MCP server accepts."""
        self.app = Starlette(routes=[Route("/{path:path}", self._serve, methods=["GET", "POST", "DELETE"])])

    @property
    def issuer(self) -> str:
        return self.url + self.behaviour.issuer_path

    @property
    def mcp_url(self) -> str:
        return f"{self.url}/mcp"

    def count(self, path: str, **form: str) -> int:
        """How often a path was asked for, with at least these parameters."""
        return sum(seen.path == path and form.items() <= seen.form.items() for seen in self.seen)

    def asked(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path == path]

    def add_client(self, client_id: str, **rest: Any) -> RegisteredClient:
        """Make a client known beforehand."""
        self.clients[client_id] = RegisteredClient(client_id=client_id, **rest)
        return self.clients[client_id]

    def expire_access_tokens(self) -> None:
        """From now on every access token is too old."""
        self.access_tokens.clear()

    # Which request goes where

    async def _serve(self, request: Request) -> Response:
        body = (await request.body()).decode()
        is_form = "json" not in request.headers.get("content-type", "")
        form = dict(parse_qsl(body if is_form else "", keep_blank_values=True)) | dict(request.query_params)
        path = request.url.path
        if not path.startswith("/_"):
            self.seen.append(
                Seen(method=request.method, path=path, form=form, headers=dict(request.headers.items()))
            )
        if request.method == "GET":
            return self._read(path, form)
        match path:
            case "/_behaviour":
                for name, value in json.loads(body).items():
                    setattr(self.behaviour, name, value)
                return Response(status_code=204)
            case "/authorize":
                return self._decided(form)
            case "/register" if self.behaviour.registration:
                return self._register(json.loads(body))
            case "/token":
                return await self._token(request, form)
            case "/revoke" if self.behaviour.revocation_status:
                return self._revoke(request, form)
            case "/mcp" if request.method == "POST":
                return self._mcp(request, json.loads(body))
            case _:
                return Response(status_code=404)

    def _read(self, path: str, form: Form) -> Response:
        if path in self.behaviour.metadata_paths:
            return JSONResponse(self.metadata(), status_code=self.behaviour.metadata_status)
        match path:
            case "/.well-known/oauth-protected-resource/mcp" if self.behaviour.resource_metadata:
                return JSONResponse(self.protected_resource())
            case "/authorize" if self.behaviour.login_page:
                return self._login_page(form)
            case "/_seen":
                return JSONResponse([asdict(seen) for seen in self.seen])
            case "/login":
                return HTMLResponse("<form>Please log in</form>")
            case _ if self.behaviour.every_page is not None:
                status, headers, content = self.behaviour.every_page
                return Response(content, status_code=status, headers=headers)
            case _:
                return Response(status_code=404)

    # What it says about itself

    def metadata(self) -> dict[str, Any]:
        behaviour = self.behaviour
        fields = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register" if behaviour.registration else None,
            "revocation_endpoint": f"{self.url}/revoke" if behaviour.revocation_status else None,
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "token_endpoint_auth_methods_supported": behaviour.auth_methods,
            "code_challenge_methods_supported": behaviour.pkce,
            "authorization_response_iss_parameter_supported": behaviour.advertise_iss or None,
            "client_id_metadata_document_supported": behaviour.client_metadata or None,
            "dpop_signing_alg_values_supported": ["ES256"] if behaviour.dpop else None,
        }
        fields |= behaviour.metadata
        return {name: value for name, value in fields.items() if value is not None}

    def protected_resource(self) -> dict[str, Any]:
        fields = {"resource": self.mcp_url, "authorization_servers": [self.issuer]}
        return fields | self.behaviour.resource_overlay

    # The login page

    def _login_page(self, form: Form) -> Response:
        fault = self._fault_of_authorization(form)
        if fault:
            return HTMLResponse(f"<p>{html.escape(fault)}</p>", status_code=400)
        hidden = "".join(
            f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
            for name, value in form.items()
        )
        buttons = "".join(f'<button name="account" value="{name}">{name}</button>' for name in ACCOUNTS)
        return HTMLResponse(
            f'<!doctype html><title>Log in</title><form method="post" action="/authorize">{hidden}{buttons}'
            '<button name="account" value="">Refuse</button></form>'
        )

    def _fault_of_authorization(self, form: Form) -> str | None:
        client = self._client(form.get("client_id", ""))
        if client is None:
            return "unknown client"
        known = [without_port(uri) for uri in client.redirect_uris]
        if known and without_port(form.get("redirect_uri", "")) not in known:
            return "unregistered redirect_uri"
        if form.get("code_challenge_method") != "S256" or len(form.get("code_challenge", "")) != 43:
            return "PKCE with S256 is required"
        return None if form.get("response_type") == "code" else "response_type must be code"

    def _client(self, client_id: str) -> RegisteredClient | None:
        if self.behaviour.client_metadata and client_id.startswith("https://"):
            return RegisteredClient(client_id=client_id)
        return self.clients.get(client_id)

    def _decided(self, form: Form) -> Response:
        fault = self._fault_of_authorization(form)
        if fault:
            return HTMLResponse(f"<p>{html.escape(fault)}</p>", status_code=400)
        answer = {"state": form.get("state", "")}
        if form.get("account") in ACCOUNTS:
            code = secrets.token_urlsafe(16)
            self.codes[code] = Grant(
                account=form["account"],
                client_id=form["client_id"],
                scope=form.get("scope", ""),
                resource=form.get("resource", ""),
                family=secrets.token_hex(8),
                redirect_uri=form["redirect_uri"],
                code_challenge=form["code_challenge"],
            )
            answer["code"] = code
        else:
            answer |= {"error": "access_denied", "error_description": "the person said no"}
        if self.behaviour.iss is not None:
            answer["iss"] = self.behaviour.iss or self.issuer
        answer |= self.behaviour.answer
        return RedirectResponse(str(URL(form["redirect_uri"]).update_query(answer)), status_code=302)

    # Registration

    def _register(self, wanted: dict[str, Any]) -> Response:
        self.registrations.append(wanted)
        if not wanted.get("redirect_uris"):
            return JSONResponse({"error": "invalid_redirect_uri"}, status_code=400)
        auth = self.behaviour.register_as or wanted.get("token_endpoint_auth_method", "client_secret_basic")
        secret = None if auth == "none" else secrets.token_urlsafe(24) + "+/:%"
        client = self.add_client(
            f"client-{secrets.token_hex(4)}",
            auth=auth,
            client_secret=secret,
            redirect_uris=tuple(wanted["redirect_uris"]),
        )
        answer = wanted | {"client_id": client.client_id, "token_endpoint_auth_method": auth}
        if secret is not None:
            answer |= {"client_secret": secret, "client_secret_expires_at": 0}
        answer |= self.behaviour.registration_overlay
        said = {name: value for name, value in answer.items() if value is not None}
        return JSONResponse(said, status_code=self.behaviour.registration_status)

    # Tokens

    async def _token(self, request: Request, form: Form) -> Response:
        behaviour = self.behaviour
        if behaviour.token_hangs:
            await request.receive()
        if behaviour.token_delay:
            await anyio.sleep(behaviour.token_delay)
        if behaviour.token_redirect:
            return RedirectResponse(behaviour.token_redirect, status_code=307)
        if behaviour.token_status != 200:
            return Response("unavailable", status_code=behaviour.token_status)
        if behaviour.token_body is not None:
            return Response(behaviour.token_body, media_type="application/json")
        try:
            if behaviour.token_error:
                raise Refused(behaviour.token_error)
            client = self._authenticated(request, form)
            thumbprint = self._proven(request, f"{self.url}/token")
            grant = self._grant(form, client)
        except DpopRefused as exc:
            headers = {"DPoP-Nonce": behaviour.dpop_nonce} if behaviour.dpop_nonce else {}
            return JSONResponse({"error": str(exc)}, status_code=400, headers=headers)
        except Refused as exc:
            answer = {"error": exc.error, "error_description": f"the test says {exc.error}"}
            return JSONResponse(answer, status_code=exc.status)
        return JSONResponse(self.issue(grant, thumbprint), headers={"Cache-Control": "no-store"})

    def _revoke(self, request: Request, form: Form) -> Response:
        """End a token (RFC 7009). One that nobody knows has ended already."""
        if self.behaviour.revocation_status != 200:
            return Response("unavailable", status_code=self.behaviour.revocation_status)
        try:
            client = self._authenticated(request, form)
        except Refused as exc:
            return JSONResponse({"error": exc.error}, status_code=exc.status)
        for tokens in (self.refresh_tokens, self.access_tokens):
            grant = tokens.get(form["token"])
            if grant is not None and grant.client_id == client.client_id:
                del tokens[form["token"]]
        return Response()

    def issue(self, grant: Grant, thumbprint: str = "") -> dict[str, Any]:
        """Make tokens for a grant, and return what the token endpoint says."""
        behaviour = self.behaviour
        lifetime = float(behaviour.expires_in) if behaviour.expires_in is not None else float("inf")
        access_token = secrets.token_urlsafe(24)
        self.access_tokens[access_token] = replace(
            grant, expires_at=time.time() + lifetime, thumbprint=thumbprint
        )
        answer: dict[str, Any] = {
            "access_token": access_token,
            "token_type": "DPoP" if thumbprint else "Bearer",
        }
        if behaviour.expires_in is not None:
            answer["expires_in"] = behaviour.expires_in
        if grant.scope:
            answer["scope"] = grant.scope
        if behaviour.refresh_tokens and grant.account:
            refresh_token = secrets.token_urlsafe(24)
            self.refresh_tokens[refresh_token] = grant
            answer["refresh_token"] = refresh_token
        return answer | behaviour.token_overlay

    def _grant(self, form: Form, client: RegisteredClient) -> Grant:
        match form.get("grant_type"):
            case "authorization_code":
                return self._redeemed(form, client)
            case "refresh_token":
                return self._refreshed(form["refresh_token"], client)
            case (
                "client_credentials"
                | "urn:ietf:params:oauth:grant-type:jwt-bearer"
                | "urn:ietf:params:oauth:grant-type:token-exchange"
            ):
                return Grant(
                    account="",
                    client_id=client.client_id,
                    scope=form.get("scope", ""),
                    resource=form.get("resource", ""),
                    family=secrets.token_hex(8),
                )
            case _:
                raise Refused("unsupported_grant_type")

    def _redeemed(self, form: Form, client: RegisteredClient) -> Grant:
        grant = self.codes.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).rstrip(b"=").decode()
        if (
            grant is None
            or grant.client_id != client.client_id
            or grant.redirect_uri != form.get("redirect_uri")
            or grant.code_challenge != challenge
        ):
            raise Refused("invalid_grant")
        if grant.resource != form.get("resource", ""):
            raise Refused("invalid_target")
        return grant

    def _refreshed(self, refresh_token: str, client: RegisteredClient) -> Grant:
        family = self.spent.get(refresh_token)
        if family is not None:
            # Somebody kept a copy: nobody of that family is to be believed any more.
            self.reused += 1
            self.refresh_tokens = {
                token: grant for token, grant in self.refresh_tokens.items() if grant.family != family
            }
            raise Refused("invalid_grant")
        grant = self.refresh_tokens.get(refresh_token)
        if grant is None or grant.client_id != client.client_id:
            raise Refused("invalid_grant")
        if self.behaviour.rotate:
            del self.refresh_tokens[refresh_token]
            self.spent[refresh_token] = grant.family
        return grant

    def _authenticated(self, request: Request, form: Form) -> RegisteredClient:
        client_id, secret, method = form.get("client_id", ""), form.get("client_secret"), "none"
        authorization = request.headers.get("authorization", "")
        if authorization.startswith("Basic "):
            pair = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            client_id, secret, method = unquote_plus(pair[0]), unquote_plus(pair[2]), "client_secret_basic"
        elif "client_assertion" in form:
            method = "private_key_jwt"
            unread: dict[str, Any] = jwt.decode(form["client_assertion"], options={"verify_signature": False})
            client_id = str(unread["sub"])
        elif secret is not None:
            method = "client_secret_post"
        client = self._client(client_id)
        if client is None or client.auth != method or client.client_secret != secret:
            raise Refused("invalid_client", 401)
        if method == "private_key_jwt" and not self._is_signed(form["client_assertion"], client):
            raise Refused("invalid_client", 401)
        return client

    def _is_signed(self, assertion: str, client: RegisteredClient) -> bool:
        assert client.public_key is not None
        try:
            claims: dict[str, Any] = jwt.decode(
                assertion,
                client.public_key,
                algorithms=["RS256", "ES256"],
                audience=[self.issuer, f"{self.url}/token"],
                options={"require": ["exp", "iat", "jti", "iss", "sub", "aud"]},
            )
        except jwt.InvalidTokenError:
            return False
        return claims["iss"] == client.client_id

    def _proven(self, request: Request, url: str, access_token: str = "") -> str:
        if not self.behaviour.dpop:
            return ""
        proof = request.headers.get("dpop", "")
        return thumbprint_of_proof(
            proof, method=request.method, url=url, nonce=self.behaviour.dpop_nonce, access_token=access_token
        )

    # The MCP server

    def _mcp(self, request: Request, message: dict[str, Any]) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        grant = next(
            (server.access_tokens[token] for server in self.trusted if token in server.access_tokens), None
        )
        if grant is None or grant.expires_at < time.time() or grant.resource != self.mcp_url:
            return self._challenged(401, self.behaviour.scope, "invalid_token" if token else "")
        if grant.thumbprint:
            try:
                proven = self._proven(request, self.mcp_url, token)
            except DpopRefused as exc:
                return self._challenged(401, "", str(exc), "DPoP")
            if proven != grant.thumbprint or scheme != "DPoP":
                return self._challenged(401, "", "invalid_token", "DPoP")
        params: Mapping[str, Any] = message.get("params") or {}
        needed = (
            self.behaviour.scope.split() + self.behaviour.tool_scopes.get(params.get("name", ""), "").split()
        )
        if self.behaviour.insatiable or not set(needed) <= set(grant.scope.split()):
            return self._challenged(403, " ".join(needed) or "more", "insufficient_scope")
        if "id" not in message:
            return Response(status_code=202)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **mcp_answer(message, grant)})

    def _challenged(self, status: int, scope: str, error: str, scheme: str = "Bearer") -> Response:
        metadata = f"{self.url}/.well-known/oauth-protected-resource/mcp"
        fields = {
            "resource_metadata": metadata if self.behaviour.challenge_metadata else "",
            "scope": scope,
            "error": error,
        }
        text = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value)
        headers = {"WWW-Authenticate": f"{scheme} {text}".strip()}
        if scheme == "DPoP" and self.behaviour.dpop_nonce:
            headers["DPoP-Nonce"] = self.behaviour.dpop_nonce
        return Response(status_code=status, headers=headers)


def without_port(uri: str) -> tuple[str, str | None, str]:
    """A loopback redirect may come back to any port."""
    parts = urlsplit(uri)
    return parts.scheme, parts.hostname, parts.path


class Clicking:
    """A person at the login page, without a browser: picks an account, or refuses with ""."""

    def __init__(
        self, account: str = "ada", *, redirect_uri: str = "http://127.0.0.1:33418/callback"
    ) -> None:
        self.account = account
        self.visited: list[str] = []
        self._redirect_uri = redirect_uri

    @property
    def redirect_uri(self) -> str:
        return self._redirect_uri

    async def visit(self, url: str) -> str:
        self.visited.append(url)
        form = {**URL(url).query, "account": self.account}
        page = URL(url).with_query(None)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        async with aiohttp.ClientSession() as browser:
            async with browser.get(url) as shown:
                assert shown.status == 200, await shown.text()
            async with browser.post(
                page, data=urlencode(form), headers=headers, allow_redirects=False
            ) as answer:
                return answer.headers["Location"]


@contextmanager
def authorization_server(**behaviour: Any) -> Generator[AuthorizationServer]:
    """Run a server in a thread; give it as it is, for a test to look into and to change."""
    server = AuthorizationServer(**behaviour)
    with serving(server.app) as server.url:
        yield server


@contextmanager
def authorization_process(**behaviour: Any) -> Generator[str]:
    """Run a server in a process of its own, and give its URL."""
    command = [sys.executable, "-m", "tests.auth.authorization_server", json.dumps(behaviour)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main() -> None:
    """Serve until whoever started this closes our standard input."""
    with authorization_server(**json.loads(sys.argv[1])) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
