"""Kubeconfig files, service accounts and proxy variables, read as kubectl and client-go read them."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from subnetes.kube.credentials import (
    Basic,
    ClientCertificate,
    Credentials,
    ExecPlugin,
    Proxy,
    Tls,
    Token,
    TokenFile,
)
from subnetes.kube.errors import CredentialsError
from subnetes.kube.kubeconfig import credentials_of, merge
from subnetes.kube.proxies import proxy_from, proxy_of
from subnetes.kube.sources import find_credentials, from_kubeconfig, in_cluster

HERE = Path("/home/u/.kube")


def config(
    user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **context: str
) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **context}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://k8s:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def parse(content: Any, context: str | None = None, **environ: str) -> Credentials:
    return credentials_of(merge([(HERE, content)]), environ, context)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class TestOneFile:
    def test_the_current_context_is_used(self) -> None:
        found = parse(config({"token": "t"}, namespace="ns"))
        assert found == Credentials("https://k8s:6443", Token("t"), namespace="ns")

    def test_another_context_may_be_chosen(self) -> None:
        content = config({"token": "t"})
        content["contexts"].append({"name": "d", "context": {"cluster": "k", "namespace": "other"}})
        assert parse(content, "d") == Credentials("https://k8s:6443", namespace="other")

    @pytest.mark.parametrize(
        ("user", "expected"),
        [
            ({}, None),
            ({"token": "t"}, Token("t")),
            ({"tokenFile": "tok"}, TokenFile(HERE / "tok")),
            ({"tokenFile": "/abs/tok", "token": "t"}, TokenFile(Path("/abs/tok"))),
            ({"username": "u", "password": "p"}, Basic("u", "p")),
            ({"token": "t", "exec": {"command": "x"}}, Token("t")),
        ],
    )
    def test_every_way_to_say_who_we_are(self, user: dict[str, Any], expected: object) -> None:
        assert parse(config(user)).authentication == expected

    def test_certificates_in_the_file_go_before_those_in_others(self) -> None:
        user = {"client-certificate": "c.crt", "client-key": "/k", "client-key-data": b64("key")}
        cluster = {
            "certificate-authority": "ca.crt",
            "certificate-authority-data": b64("ca"),
            "tls-server-name": "api",
        }
        expected = Tls(b"ca", ClientCertificate(HERE / "c.crt", b"key"), "api")
        assert parse(config(user, cluster)).tls == expected

    def test_the_check_of_the_server_can_be_left_out(self) -> None:
        assert parse(config(cluster={"insecure-skip-tls-verify": True})).tls == Tls(verify=False)

    def test_impersonation(self) -> None:
        user = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"why": ["x", "y"]}}
        assert parse(config(user)).impersonation == (
            ("Impersonate-User", "jane"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-why", "x"),
            ("Impersonate-Extra-why", "y"),
        )

    def test_a_proxy_of_the_cluster_goes_before_the_environments(self) -> None:
        cluster = {"proxy-url": "http://user:p%40ss@proxy:3128"}
        found = parse(config(cluster=cluster), HTTPS_PROXY="http://other")
        assert found.proxy == Proxy("http://proxy:3128", "Basic " + b64("user:p@ss"))
        assert parse(config(), HTTPS_PROXY="http://other").proxy == Proxy("http://other")

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            ([], "not a mapping"),
            ({}, "no context is chosen"),
            ({"current-context": "x"}, "there is no context x"),
            ({"contexts": {"a": 1}}, "must be a list of named contexts"),
            ({"users": [{"user": {}}]}, "must be a list of named users"),
            (config() | {"clusters": []}, "there is no cluster k"),
            (config() | {"users": []}, "there is no user u"),
            (config(cluster={"server": ""}), "has no server"),
            (config(cluster={"server": 5}), "must be a string"),
            (config(cluster={"certificate-authority-data": "%%"}), "not base64"),
            (config(cluster={"proxy-url": "socks5://p"}), "only http and https"),
            (config({"token": "t", "username": "u"}), "both a token and a password"),
            (config({"client-certificate": "c"}), "without its key"),
            (config({"auth-provider": {"name": "oidc"}}), "auth-provider"),
            (config({"exec": {"command": "x", "apiVersion": "v7"}}), "needs a command"),
            (config({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}), "needs a command"),
        ],
    )
    def test_what_is_wrong_is_said(self, broken: Any, message: str) -> None:
        with pytest.raises(CredentialsError, match=message):
            parse(broken)


class TestExecPlugins:
    spec: dict[str, Any] = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "bin/login",
        "args": ["--cluster", 7],
        "env": [{"name": "A", "value": "b"}],
        "interactiveMode": "IfAvailable",
        "installHint": "install it",
    }

    def test_a_plugin_with_all_it_has(self) -> None:
        assert parse(config({"exec": self.spec})).authentication == ExecPlugin(
            str(HERE / "bin/login"),
            ("--cluster", "7"),
            {"A": "b"},
            "client.authentication.k8s.io/v1beta1",
            install_hint="install it",
        )

    def test_a_bare_command_is_looked_up_in_the_path(self) -> None:
        found = parse(config({"exec": self.spec | {"command": "login"}})).authentication
        assert isinstance(found, ExecPlugin)
        assert found.command == "login"

    def test_the_cluster_is_described_when_asked_for(self) -> None:
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
        cluster = {
            "certificate-authority-data": b64("ca"),
            "extensions": [{"name": "other", "extension": 1}, extension],
        }
        found = parse(config({"exec": self.spec | {"provideClusterInfo": True}}, cluster)).authentication
        assert isinstance(found, ExecPlugin)
        assert found.cluster_info == {
            "server": "https://k8s:6443",
            "certificate-authority-data": b64("ca"),
            "config": {"audience": "x"},
        }

    def test_a_plugin_that_must_ask_a_person_is_refused(self) -> None:
        with pytest.raises(CredentialsError, match="ask a person"):
            parse(config({"exec": self.spec | {"interactiveMode": "Always"}}))


class TestSeveralFiles:
    def test_the_first_file_wins_whole_entries_and_paths_stay_with_their_file(self) -> None:
        first = {"users": [{"name": "u", "user": {"tokenFile": "t"}}], "current-context": ""}
        second = config({"token": "later", "as": "ignored"}, {"certificate-authority": "ca.crt"})
        found = credentials_of(merge([(Path("/one"), first), (Path("/two"), second)]), {})
        assert found.authentication == TokenFile(Path("/one/t"))
        assert found.impersonation == ()
        assert found.tls.authority == Path("/two/ca.crt")

    def test_the_first_current_context_wins(self) -> None:
        files = [{"current-context": "a"}, {"current-context": "b"}]
        assert merge((HERE, each) for each in files).current_context == "a"


class TestSources:
    def write(self, path: Path, content: object) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))
        return path

    def test_the_kubeconfig_variable_names_several_files_of_which_some_may_be_missing(
        self, tmp_path: Path
    ) -> None:
        user = self.write(tmp_path / "a" / "user", {"users": [{"name": "u", "user": {"tokenFile": "t"}}]})
        rest = self.write(tmp_path / "b" / "rest", config({"token": "x"}))
        environ = {"KUBECONFIG": f"{user}::{tmp_path}/missing:{rest}"}
        found = find_credentials(environ=environ)
        assert found == Credentials("https://k8s:6443", TokenFile(tmp_path / "a" / "t"))

    def test_the_home_folder_is_next(self, tmp_path: Path) -> None:
        self.write(tmp_path / ".kube" / "config", config({"token": "home"}))
        assert find_credentials(environ={"HOME": str(tmp_path)}).authentication == Token("home")

    def test_a_kubeconfig_that_is_named_must_be_there_and_readable(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsError, match="cannot be read"):
            find_credentials(tmp_path / "missing")
        (tmp_path / "bad").write_text("a: [")
        with pytest.raises(CredentialsError, match="cannot be read"):
            from_kubeconfig(tmp_path / "bad")

    def test_without_anything_it_is_said_what_was_tried(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsError, match=r"\.kube/config"):
            find_credentials(environ={"HOME": str(tmp_path)})

    @pytest.mark.parametrize(("host", "server"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")])
    def test_a_pod_uses_its_service_account(self, tmp_path: Path, host: str, server: str) -> None:
        (tmp_path / "token").write_text("t")
        (tmp_path / "namespace").write_text("kube-system\n")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
        assert in_cluster(environ, tmp_path) == Credentials(
            f"https://{server}:443",
            TokenFile(tmp_path / "token"),
            Tls(tmp_path / "ca.crt"),
            namespace="kube-system",
        )

    def test_a_pod_without_a_service_account_is_said(self, tmp_path: Path) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"}
        with pytest.raises(CredentialsError, match="no service account token"):
            in_cluster(environ, tmp_path)
        with pytest.raises(CredentialsError, match="not in a pod"):
            in_cluster({}, tmp_path)


class TestProxyVariables:
    @pytest.mark.parametrize(
        ("server", "no_proxy", "used"),
        [
            ("https://k8s.corp:6443", "", True),
            ("https://localhost:6443", "", False),
            ("https://127.0.0.1:6443", "", False),
            ("https://[::1]:6443", "", False),
            ("https://k8s.corp", "*", False),
            ("https://k8s.corp", "corp", False),
            ("https://corp", "corp", False),
            ("https://corp", ".corp", True),
            ("https://k8s.corp", ".corp", False),
            ("https://k8s.corp", "*.corp", False),
            ("https://K8S.Corp", "other, k8s.corp", False),
            ("https://xcorp", "corp", True),
            ("https://k8s.corp:6443", "k8s.corp:6443", False),
            ("https://k8s.corp:6443", "k8s.corp:443", True),
            ("https://k8s.corp", "k8s.corp:443", False),
            ("https://10.1.2.3:6443", "10.0.0.0/8", False),
            ("https://11.1.2.3:6443", "10.0.0.0/8", True),
            ("https://10.1.2.3", "10.1.2.3", False),
            ("https://[fd00::5]:6443", "fd00::/8", False),
            ("https://[fd00::5]:6443", "[fd00::5]:6443", False),
            ("https://k8s.corp", "10.0.0.0/8, not/a/network", True),
        ],
    )
    def test_no_proxy_is_read_as_go_reads_it(self, server: str, no_proxy: str, used: bool) -> None:
        environ = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": no_proxy}
        assert proxy_from(environ, server) == (Proxy("http://proxy:3128") if used else None)

    def test_the_variable_follows_the_servers_scheme_and_may_be_lower_case(self) -> None:
        environ = {"https_proxy": "https://secure", "HTTP_PROXY": "http://plain"}
        assert proxy_from(environ, "https://a") == Proxy("https://secure")
        assert proxy_from(environ, "http://a") == Proxy("http://plain")
        assert proxy_from({}, "https://a") is None

    def test_a_proxy_needs_a_host(self) -> None:
        with pytest.raises(CredentialsError):
            proxy_of("http://")
