"""Checks of the box's connection to its cloud: the agent, the cloud's HTTPS, the enrolment, the link."""

from collections.abc import Iterator, Mapping
from typing import Any

from edgegpu_installer.doctor.probe import BoxProbe, CloudProbe, ProbeError
from edgegpu_installer.doctor.units import is_known, last_words, service_troubles, unit
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, result_of, skipped, warning
from edgegpu_installer.layout import AGENT_YAML, CLOUD_TOKEN

SERVICE = "edgegpu-agent"
_START = f"sudo systemctl restart {SERVICE}"
_LOG = f"sudo journalctl -u {SERVICE} -e"
_NO_CLOUD = "this box belongs to no cloud"
_WARN_LEFT_S = 14 * 86_400
_UNSEEN_S = 1_500
"""The time of two reported states that no controller answered."""
_FULL = 0.9


def check_agent(probe: BoxProbe) -> CheckResult:
    """Check the agent's service: it finishes changes whose author died, and is the box's end of the link."""
    service = unit(probe, SERVICE)
    if not is_known(service):
        if not probe.installed:
            return skipped("edgegpu is not installed here (see the check `plugin`)")
        return result_of([broken(f"there is no {SERVICE}.service", "sudo edgegpu install")])
    problems = list(service_troubles(probe, service))
    side = probe.cloud
    enrolled = side is not None and side.standing.get("stand") == "enrolled"
    if service.is_running and side is not None and side.agent is None and enrolled:
        problems.append(broken(f"{SERVICE} does not answer: {side.silence}", f"{_START}; {_LOG}"))
    return result_of(problems, ok="runs", details=last_words(probe, SERVICE) if problems else ())


def check_cloud(probe: BoxProbe) -> CheckResult:
    """Check that the cloud's HTTPS can be reached and trusted: a box enrols and renews its certificate there."""
    side = probe.cloud
    if side is None:
        return skipped(_NO_CLOUD)
    if side.problem:
        text = f"sudoedit {AGENT_YAML} && {_START}  # or put the box into its cloud anew: edgegpu agent enrol"
        return result_of([broken(side.problem, text)])
    try:
        probe.reach_cloud()
    except ProbeError as shut:
        return result_of([warning(shut.text, shut.remedy)])
    return result_of([], ok=f"{side.url} answers, and is the one it should be")


def check_enrolment(probe: BoxProbe) -> CheckResult:
    """Check that this box is enrolled, and for how long its certificate is still valid."""
    side = probe.cloud
    if side is None:
        return skipped(_NO_CLOUD)
    said, left_s = side.standing, 0
    problems: list[CheckProblem] = []
    stand = said.get("stand")
    if not said:
        problems.append(broken(f"{SERVICE} does not say whether this box is enrolled", f"{_START}; {_LOG}"))
    elif stand == "waiting for approval":
        words = "in the cloud: edgegpu-cloud pending, then edgegpu-cloud approve ID"
        problems.append(warning("a person has to approve this box in the cloud", words))
    elif stand in {"enrolling", "starting"}:
        problems.append(warning(_sentence(said), "sudo edgegpu doctor --check cloud  # whether it can be reached"))
    elif stand != "enrolled":
        problems.append(broken(_sentence(said), _enrol(side)))
    else:
        left_s = int(said.get("not_after_s") or 0) - int(probe.now().timestamp())
        problems += _certificate(side, left_s)
    who = f"as {said.get('name') or said.get('device')} at {side.url}, for {left_s // 86_400} days yet"
    return result_of(problems, ok=who)


def _certificate(side: CloudProbe, left_s: int) -> Iterator[CheckProblem]:
    said = side.standing
    if left_s <= 0:
        yield broken("the certificate has ended", f"{_START}  # asks for a new one; else {_enrol(side)}")
    elif left_s < _WARN_LEFT_S:
        yield warning(f"the certificate ends in {left_s // 86_400} days", f"{_START}  # asks for a new one")
    if said.get("text"):
        yield warning(str(said["text"]), f"{_START}; sudo edgegpu doctor --check cloud")
    warned = str(said.get("warning") or "")
    if warned and str(CLOUD_TOKEN) in warned:
        yield warning(warned, f"sudo rm {CLOUD_TOKEN}  # the box stays enrolled as it was")
    elif warned:
        yield warning(warned, f"{_START}; {_LOG}")


def check_link(probe: BoxProbe) -> CheckResult:
    """Check that the box is connected to its broker and hears a controller."""
    side = probe.cloud
    if side is None:
        return skipped(_NO_CLOUD)
    if side.standing.get("stand") != "enrolled":
        return skipped("not enrolled (see the check `enrolment`)")
    if side.agent is None:
        return skipped(f"{SERVICE} does not answer (see the check `agent`)")
    agent = side.agent
    problems = list(_down(side) if not agent.get("connected") else _up(agent))
    return result_of(problems, ok=f"connected to {agent.get('route') or side.broker}", details=_refused(agent))


def _down(side: CloudProbe) -> Iterator[CheckProblem]:
    why = (side.agent or {}).get("why_down") or "no reason given"
    if side.proxy:
        words = f"sudo edgegpu install --cloud-proxy http://[USER:PASSWORD@]HOST:PORT  # or none; {_LOG}"
        yield warning(f"not connected to {side.broker}: {why}", words)
        return
    host, _, port = side.broker.rpartition(":")
    test = f"timeout 10 bash -c 'exec 3<>/dev/tcp/{host.strip('[]')}/{port}'"
    yield warning(
        f"not connected to {side.broker}: {why}",
        f"{test} && {_START}  # whether it can be reached; the agent tries again by itself too",
    )


def _up(agent: Mapping[str, Any]) -> Iterator[CheckProblem]:
    if agent.get("route_trouble"):
        yield warning(str(agent["route_trouble"]), f"sudoedit {AGENT_YAML}  # cloud.proxy, cloud.broker")
    unseen_s = int(agent.get("controller_unseen_s") or 0)
    if unseen_s > _UNSEEN_S:
        words = "on the cloud: does `edgegpu-cloud serve` run?"
        yield warning(f"the broker answers, and no controller was heard for {unseen_s // 60} minutes", words)
    if agent.get("journal_full") or float(agent.get("outbox_used") or 0) > _FULL:
        words = "results wait for the controller: on the cloud, does `edgegpu-cloud serve` run?"
        yield warning("too many results wait to be sent: new commands are refused", words)


def _refused(agent: Mapping[str, Any]) -> list[str]:
    found = agent.get("refused") or {}
    return [f"messages that were not believed: {', '.join(f'{name} {n}' for name, n in sorted(found.items()))}"] * bool(
        found
    )


def _sentence(said: Mapping[str, Any]) -> str:
    code = f" ({said['code']})" if said.get("code") else ""
    text = f": {said['text']}" if said.get("text") else ""
    return f"this box is not in its cloud: {said.get('stand')}{code}{text}"


def _enrol(side: CloudProbe) -> str:
    pin = f" --ca-sha256 {side.ca_sha256}" if side.ca_sha256 else ""
    return f"sudo edgegpu agent enrol --url {side.url}{pin}  # asks for a token: `edgegpu-cloud enrol` prints one"
