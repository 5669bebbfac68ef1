"""The doctor's clients: the plugin's configuration and status, containerd's file, the API server, the cloud."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from edgegpu_agent.cli.clients.plugin import DEFAULT_CONFIG, SOCKET_NAME, fetch_status
from edgegpu_agent.cli.common import CliError
from edgegpu_base.errors import EdgegpuError
from edgegpu_base.kube import ApiAccess, KubeconfigError, load_kubeconfig
from edgegpu_base.kube.kubeconfig import tls_context
from edgegpu_core.injection import ContainerdSupport
from edgegpu_installer.cluster.https import TlsTarget, ask
from edgegpu_installer.doctor.probe import ApiReply, CloudProbe, PluginSettings, ProbeError
from edgegpu_installer.layout import Layout
from edgegpu_plugin.cards.driver_root import LIBRARY_FOLDERS
from edgegpu_plugin.config.schema import PluginConfig, load
from edgegpu_plugin.containers import runtime
from edgegpu_plugin.containers.cdi import FILE_NAME
from edgegpu_plugin.errors import ConfigError

_CLOUD_S = 10.0


class BoxClients:
    """The doctor's clients for the box below `root`; paths that its files name are below `root` too."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._config, self._problem = _config(self._at(DEFAULT_CONFIG))

    def settings(self) -> PluginSettings:
        """Return the settings of plugin.yaml, defaults included."""
        config = self._config
        tls = config.extender.tls
        return PluginSettings(
            problem=self._problem,
            node=config.node_name,
            has_plugin=config.role.has_plugin,
            has_extender=config.role.has_extender,
            memory_resource=config.resources.memory,
            core_resource=config.resources.core,
            exclude=tuple(config.placement.exclude),
            kubelet_folder=config.kubelet.folder,
            kubelet_resolv_conf=config.kubelet.resolv_conf if config.kubelet.wait_at_start else None,
            kubeconfig=config.kubernetes.kubeconfig,
            driver_root=config.driver.root,
            library_folders=LIBRARY_FOLDERS,
            cdi_file=config.driver.cdi_folder / FILE_NAME,
            listen=config.extender.listen,
            insecure=config.extender.insecure,
            tls=() if config.extender.insecure else (tls.cert, tls.client_ca),
        )

    def status(self) -> Mapping[str, Any]:
        """Return the running plugin's status document."""
        try:
            return fetch_status(self._at(self._config.paths.run / SOCKET_NAME)).raw
        except CliError as error:
            raise ProbeError(error.text, remedy=error.remedy) from error

    def containerd(self, usual: str) -> ContainerdSupport | None:
        """Return what the running containerd says, else its configuration; None where there is neither."""
        named = self._config.driver.containerd_config
        paths = [named] if named else [*([Path(usual)] if usual else ()), *runtime.CONTAINERD_CONFIGS]
        try:
            found = runtime.read_containerd([self._at(path) for path in paths], root=self._root)
        except EdgegpuError as error:
            raise ProbeError(str(error), remedy="sudo systemctl restart --no-block k3s  # writes it anew") from error
        if found is None or not found.path:
            return found
        return replace(found, path=str(Path("/") / Path(found.path).relative_to(self._root)))

    def api(self) -> "DoctorKubeClient":
        """Return a client for the API server."""
        path = self._config.kubernetes.kubeconfig
        try:
            return DoctorKubeClient(load_kubeconfig(self._at(path)))
        except KubeconfigError as error:
            raise ProbeError(str(error), remedy="sudo edgegpu install  # writes the file anew") from error

    def cloud(self) -> CloudProbe | None:
        """Return the state of this box and its cloud; None where the box belongs to none."""
        from edgegpu_agent.cli.clients.agent import read_agent  # noqa: PLC0415  (a box without a cloud needs none of it)

        layout = Layout(self._root)
        if not layout.agent_yaml.exists():
            return None
        seen = read_agent(self._root, None)
        return CloudProbe(
            url=seen.config.cloud.url if seen.config is not None else "",
            ca_sha256=seen.config.cloud.ca_sha256 if seen.config is not None else "",
            problem="" if seen.config is not None else "; ".join(seen.config_problems),
            standing=seen.identity or {},
            agent=seen.agent,
            silence=seen.silence,
            broker=_broker(layout),
            proxy=seen.config is not None and bool(seen.config.cloud.proxy),
        )

    def reach_cloud(self) -> None:
        """Check that the cloud answers by HTTPS, with the address, CA and proxy of agent.yaml."""
        from edgegpu_agent.identity.enrolment_client import CloudClient  # noqa: PLC0415  (with urllib3)
        from edgegpu_agent.identity.errors import IdentityError  # noqa: PLC0415
        from edgegpu_agent.settings import load as load_agent  # noqa: PLC0415

        try:
            cloud = load_agent(Layout(self._root).agent_yaml).cloud
            client = CloudClient(
                url=cloud.url, ca_pem=b"", check_dates=lambda: True, proxy=cloud.proxy, timeout_s=_CLOUD_S
            )
            ca = client.fetch_ca(cloud.ca_sha256) if cloud.ca_sha256 else b""
            replace(client, ca_pem=ca).check()
        except (IdentityError, ConfigError) as error:
            remedy = error.remedy if isinstance(error, IdentityError) else ""
            raise ProbeError(str(error) if not remedy else error.args[0].partition("; ")[0], remedy=remedy) from error

    def _at(self, path: Path) -> Path:
        return self._root / str(path).lstrip("/")


_LOOK = "sudo systemctl status 'k3s*'  # on an agent node: is the server up?"
_FOREIGN_CA = frozenset({7, 18, 19, 20, 21})
"""OpenSSL's codes for a certificate by a CA that is not the given one (X509_V_ERR_*, openssl-verification-options)."""


class DoctorKubeClient:
    """A client for the API server with one connection per request; it also returns the Date header."""

    def __init__(self, access: ApiAccess) -> None:
        """Build the client. Raises ProbeError: its certificates or its token cannot be used."""
        self.server = access.server
        try:
            self._way = TlsTarget(context=tls_context(access), server_name=access.server_name)
            token = access.token_file.read_text().strip() if access.token_file else access.token
        except OSError as error:
            raise ProbeError(
                f"cannot use the certificates or the token of the kubeconfig: {error}", remedy="sudo edgegpu install"
            ) from error
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str) -> ApiReply:
        """Send a GET."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> ApiReply:
        """Send a POST."""
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> ApiReply:
        try:
            answer = ask(self.server + path, self._way, method=method, body=body, headers=self._headers)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code not in _FOREIGN_CA:
                raise ProbeError(f"cannot trust the API server {self.server}: {error}", remedy=_LOOK) from error
            raise ProbeError(
                f"the API server {self.server} is of another cluster than /etc/edgegpu/kubeconfig: "
                f"k3s was installed again ({error.verify_message})",
                remedy="sudo edgegpu install  # writes rights, kubeconfig and the scheduler's file anew",
            ) from error
        except OSError as error:
            raise ProbeError(
                f"cannot reach the API server {self.server}: {error}",
                remedy=_LOOK,
            ) from error
        return ApiReply(answer.status, _object(answer.body), _date(answer.headers.get("Date")))


def _broker(layout: Layout) -> str:
    from edgegpu_agent.cli.setup.enrol_options import stored_identity  # noqa: PLC0415  (with cryptography)

    identity = stored_identity(layout)
    if identity is None:
        return ""
    broker = identity.device.broker
    return f"{f'[{broker.host}]' if ':' in broker.host else broker.host}:{broker.port}"


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:  # /readyz and errors of proxies are plain text
        return {"message": text.decode(errors="replace")[:400]}
    return value if isinstance(value, dict) else {}


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None


def _config(path: Path) -> tuple[PluginConfig, str]:
    try:
        return load(path), ""
    except ConfigError as error:
        return PluginConfig(version=1), str(error)
