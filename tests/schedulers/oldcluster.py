"""An API server, a kube-scheduler of an older Kubernetes and our extender, as processes of this machine; no kubelet.

What a kubelet does is done by the tests: they make the Node objects, and take away pods that are being deleted.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import secrets
import shutil
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from kits.cert import make_certs
from lab.labrun import LabError, wait_until
from schedulers.programs import API_VERSION, etcd, program

from edgegpu_installer.scheduler.file import ExtenderEndpoint, render, validate
from edgegpu_sim.ports import answers, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples"
EXTENDER_USER = "system:serviceaccount:edgegpu:edgegpu-server"
ENDS_S = 30
MERGE_PATCH = "application/merge-patch+json"
_FIRST_WITHOUT_OPEN_PORTS = 23
"""The first minor version whose scheduler has no ports that ask for no certificate: they are fixed ones."""


class ApiServer:
    """kube-apiserver over etcd, with rights by RBAC as a cluster has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.tokens = {name: f"t-{secrets.token_hex(16)}" for name in ("admin", "scheduler", "extender")}
        self._processes = ExitStack()
        self._certificate = folder / "pki/apiserver.crt"

    def start(self) -> None:
        """Start both processes, wait until the API is ready, and grant our account what an installation grants it."""
        store, peer = free_port(), free_port()
        urls = [f"--listen-client-urls=http://127.0.0.1:{store}", f"--advertise-client-urls=http://127.0.0.1:{store}"]
        peers = [
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        ]
        own = [f"--initial-cluster=default=http://127.0.0.1:{peer}", f"--data-dir={self.folder / 'etcd'}"]
        self._run("etcd", etcd(), *urls, *peers, *own, "--unsafe-no-fsync")
        groups = {"admin": "system:masters", "scheduler": "", "extender": ""}
        users = {"admin": "admin", "scheduler": "system:kube-scheduler", "extender": EXTENDER_USER}
        rows = [f'{token},{users[name]},{name},"{groups[name]}"' for name, token in self.tokens.items()]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self._run(
            "apiserver",
            program("kube-apiserver", API_VERSION),
            f"--etcd-servers=http://127.0.0.1:{store}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / 'pki'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            # No controller makes accounts or marks nodes here.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
        )
        wait_until(self._ready, what=f"the API server is ready ({self.folder / 'apiserver.log'})", every_s=0.3)
        for item in yaml.safe_load_all((EXAMPLES / "rbac.yaml").read_text()):
            self.apply(item)

    def stop(self) -> None:
        """End both."""
        self._processes.close()

    def request(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """Ask the API as a cluster's admin; returns the answer.

        Raises:
            LabError: it answers with a status of 400 or more, or not at all.
        """
        if not self._certificate.exists():
            raise LabError("the API server has no certificate yet")
        context = ssl.create_default_context(cafile=self._certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        headers = {"Authorization": f"Bearer {self.tokens['admin']}", "Content-Type": kind}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        except OSError as error:
            raise LabError(f"the API server does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise LabError(f"{method} {path}: {answer.status} {text.decode()[:400]}")
        document: Json = json.loads(text) if text[:1] == b"{" else {}
        return document

    def apply(self, item: Json) -> Json:
        """Create an object."""
        group, _, version = item["apiVersion"].rpartition("/")
        namespace = item["metadata"].get("namespace")
        plural = f"{item['kind'].lower()}{'es' if item['kind'].endswith('s') else 's'}"
        prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return self.request("POST", f"{prefix}/{f'namespaces/{namespace}/' if namespace else ''}{plural}", item)

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of a user: admin, scheduler or extender."""
        path = self.folder / f"{user}.kubeconfig"
        certificate = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self._certificate)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "old", "cluster": certificate}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "old", "context": {"cluster": "old", "user": user}}],
            "current-context": "old",
        }
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        return path

    def _ready(self) -> bool:
        self.request("GET", "/readyz")
        self.request("GET", "/api/v1/namespaces/kube-system")
        return bool(self.request("GET", "/apis/scheduling.k8s.io/v1/priorityclasses")["items"])

    def _run(self, name: str, *command: str | Path) -> None:
        self._processes.enter_context(Program(self.folder / f"{name}.log", *command))


class Program:
    """A process whose output goes to a file; it ends with the block."""

    def __init__(self, log: Path, *command: str | Path, env: Mapping[str, str] | None = None) -> None:
        self._log, self._command, self._env = log, command, {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as file:
            self._process = subprocess.Popen(self._command, stdout=file, stderr=file, env=self._env)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs."""
        return None if self._process is None else self._process.poll()


class OldCluster:
    """The API server with a scheduler of one version and our extender, and a namespace for pods."""

    def __init__(self, api: ApiServer, version: str, folder: Path) -> None:
        self.api, self.version, self.folder = api, version, folder
        self.minor = int(version.partition(".")[2])
        self.listen = f"127.0.0.1:{free_port()}"
        self.namespace = ""
        self._numbers = itertools.count(1)
        self._certs = make_certs()
        self._scheduler = ExitStack()
        self._extender = ExitStack()

    def start(self) -> None:
        """Start the extender and the scheduler, which reads the file that an installation writes for its version."""
        self.start_extender()
        file = self.folder / "scheduler.yaml"
        file.write_text(self.scheduler_file())
        command: list[str | Path] = [program("kube-scheduler", self.version), f"--config={file}"]
        command += [f"--secure-port={free_port()}", "--bind-address=127.0.0.1"]
        command += [f"--cert-dir={self.folder / 'pki'}", "--v=3"]
        scheduler = self._scheduler.enter_context(Program(self.folder / "scheduler.log", *command))

        def leads() -> bool:
            text = (self.folder / "scheduler.log").read_text(errors="replace")
            if scheduler.status is not None:
                raise AssertionError(f"the scheduler has ended with {scheduler.status}: {text[-2000:]}")
            return "successfully acquired lease" in text

        wait_until(leads, what=f"the scheduler leads ({self.folder / 'scheduler.log'})", every_s=0.3)

    def stop(self) -> None:
        """End the scheduler, which gives its lease back, and the extender."""
        self._scheduler.close()
        self.stop_extender()

    def scheduler_file(self) -> str:
        """Return the file that an installation writes; for older schedulers with ports that nobody else has."""
        ours = ExtenderEndpoint(
            ca=self._certs.ca, cert=self._certs.client.cert, key=self._certs.client.key, listen=self.listen
        )
        text = render(ours, kubeconfig=str(self.api.kubeconfig("scheduler")), minor=self.minor)
        problems = validate(text, read_file=_read, minor=self.minor)
        assert problems == [], problems
        if self.minor < _FIRST_WITHOUT_OPEN_PORTS:
            for field in ("healthzBindAddress", "metricsBindAddress"):
                text += f'{field}: "127.0.0.1:{free_port()}"\n'
        return text

    def start_extender(self) -> None:
        """Start the plugin's process in the role extender-only."""
        names = {"cert": self._certs.server.cert, "key": self._certs.server.key, "client_ca": self._certs.ca}
        for name, text in names.items():
            (self.folder / name).write_text(text)
        config = {
            "version": 1,
            "node_name": "old",
            "role": "extender-only",
            "extender": {"listen": self.listen, "tls": {name: str(self.folder / name) for name in names}},
            "kubernetes": {"kubeconfig": str(self.api.kubeconfig("extender"))},
            "paths": {"state": str(self.folder / "state"), "run": str(self.folder / "run")},
            "log_level": "debug",
        }
        path = self.folder / "plugin.yaml"
        path.write_text(yaml.safe_dump(config))
        command = (sys.executable, "-m", "edgegpu_plugin", "--config", path)
        self._extender.enter_context(Program(self.folder / "extender.log", *command))
        wait_until(lambda: answers(int(self.listen.partition(":")[2])), what="the extender listens")

    def stop_extender(self) -> None:
        """End the extender."""
        self._extender.close()

    def add(self, item: Json) -> None:
        """Create a Node or a Pod of the cluster's namespace."""
        if item["kind"] == "Pod":
            item["metadata"]["namespace"] = self.namespace
        self.api.apply(item)

    def pod(self, name: str) -> Json:
        """Return a pod."""
        return self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def pods(self) -> dict[str, Json]:
        """Return all pods by name."""
        items = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def remove(self, name: str) -> None:
        """Take a pod away at once, as a kubelet does at the end of its containers."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        self.api.request("DELETE", path, {"gracePeriodSeconds": 0})

    def begin(self) -> None:
        """Go on in a namespace of its own, so that no event of an earlier test is read."""
        self.namespace = f"v{self.minor}-{next(self._numbers)}"
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    def touch(self, node: str) -> None:
        """Change a label of a Node: every scheduler tries again then what it could not place."""
        changed = {"metadata": {"labels": {"touched": secrets.token_hex(4)}}}
        self.api.request("PATCH", f"/api/v1/nodes/{node}", changed, MERGE_PATCH)

    def clear(self) -> None:
        """Take away all pods and nodes."""
        for name in self.pods():
            self.remove(name)
        for node in self.api.request("GET", "/api/v1/nodes")["items"]:
            self.api.request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")

    def wait_bound(self, name: str) -> Json:
        """Wait until a pod is bound, and return it."""

        def probe() -> Json | None:
            item = self.pod(name)
            return item if item["spec"].get("nodeName") else None

        return wait_until(probe, what=f"{name} is bound; its events say {self.words(name)[-600:]!r}", every_s=0.2)

    def words(self, name: str) -> str:
        """Return the messages of a pod's events, a line each."""
        selector = f"involvedObject.name={name}"
        events = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/events?fieldSelector={selector}")
        return "\n".join(event.get("message") or event.get("note") or "" for event in events["items"])

    def wait_log(self, words: str) -> None:
        """Wait until the extender has logged something of a pod of this namespace."""
        log = self.folder / "extender.log"

        def probe() -> bool:
            return any(words in line and self.namespace in line for line in log.read_text().splitlines())

        wait_until(probe, what=f"the extender logs {words!r} of {self.namespace} ({log})", every_s=0.2)

    def wait_words(self, name: str, words: str) -> str:
        """Wait until a pod's events say something; returns them all."""

        def probe() -> str:
            text = self.words(name)
            if words not in text:
                raise LabError(f"they say {text[-600:]!r}")
            return text

        return wait_until(probe, what=f"events of {name} say {words!r}", every_s=0.2)


def _read(path: str) -> bytes | None:
    file = Path(path)
    return file.read_bytes() if file.exists() else None


def lacks() -> list[str]:
    """Return what this machine lacks for the tier, a line each."""
    lines = [] if shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin") else ["Go 1.21 or newer"]
    return lines + [f"the command {name}" for name in ("openssl", "apt-get") if shutil.which(name) is None]
