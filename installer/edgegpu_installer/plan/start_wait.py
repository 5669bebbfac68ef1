"""The wait of a starting kubelet for the devices: a link that kubelet alone reads, and k3s's line that names it.

The plugin holds kubelet at the link; edgegpu_plugin/kubelet/start_lease.py says how. The link comes before the line
that names it and goes after it: without the file kubelet starts no pod that gets the machine's DNS.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from edgegpu_installer.changes import FileChange
from edgegpu_installer.layout import START_LINK
from edgegpu_installer.machine.facts import MachineFacts, NodeKind
from edgegpu_installer.machine.k3s import RESOLV_CONF
from edgegpu_installer.plan.plugin_config import resolv_conf
from edgegpu_installer.plan.site import InstallOptions, MachineRole, Site, SiteKind

_KEPT = f"{START_LINK}.machine"
"""Where the plugin keeps the link while kubelet is away and a copy is in its place."""
_LINE = f"""\
# At this file kubelet waits for the devices (edgegpu install --wait-at-start on).
{RESOLV_CONF}: {START_LINK}
"""
_HAND = 'docs/box/restarts.md, "Let kubelet wait for the devices"'
_OPTION = "--wait-at-start"


def waits(site: Site, options: InstallOptions, *, role: MachineRole, config: str | None) -> bool:
    """Return whether kubelet shall wait after this installation; what is not asked for stays as it is.

    Args:
        site: this machine.
        options: what the user asked for.
        role: this machine's role.
        config: the text of the plugin's present configuration; None without one.
    """
    is_here = site.kind is SiteKind.K3S_SERVER and role is MachineRole.SERVER
    if not is_here or not site.takes_drop_in or not site.pod_resolv_conf:
        return False
    return resolv_conf(config) == START_LINK if options.wait_at_start is None else options.wait_at_start


def with_line(site: Site) -> Site:
    """Return the site with k3s's line for the link in our drop-in."""
    return replace(site, drop_in_text=site.drop_in_text + _LINE)


def link(site: Site) -> FileChange:
    """Return the link to the resolv.conf that k3s would give kubelet by itself."""
    return FileChange(START_LINK, link_to=site.pod_resolv_conf)


def removal() -> tuple[FileChange, ...]:
    """Return the changes that remove the link, and what a plugin has left that was killed."""
    return FileChange(START_LINK), FileChange(_KEPT)


def restored(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Return an uninstall's changes with the link last, after k3s's line that names it."""
    listed = tuple(changes)
    others = tuple(change for change in listed if change.path not in {START_LINK, _KEPT})
    return listed if len(others) == len(listed) else (*others, *removal())


def refusals(facts: MachineFacts, options: InstallOptions, *, role: MachineRole) -> Iterator[tuple[str, str, str]]:
    """Yield why what was asked for cannot be done: what, the reason, the remedy."""
    asked = options.wait_at_start
    if asked is None:
        return
    word = f"{_OPTION} {'on' if asked else 'off'}"
    present = resolv_conf(facts.installed.plugin_yaml if facts.installed else None)
    if present not in {"", START_LINK}:
        reason = f"kubelet.resolv_conf in /etc/edgegpu/plugin.yaml is {present}: somebody has set that up by hand"
        yield word, reason, f"leave {_OPTION} out, or first take back what was done by hand: {_HAND}"
    elif not asked and present and role is MachineRole.AGENT:
        reason = "where the role is agent edgegpu leaves k3s's files alone, and its line there needs the link"
        yield word, reason, f"edgegpu install --role server {word}"
    elif asked:
        yield from ((word, reason, remedy) for reason, remedy in _obstacles(facts, role))


def _obstacles(facts: MachineFacts, role: MachineRole) -> Iterator[tuple[str, str]]:
    k3s, by_hand = facts.k3s, f"do it by hand: {_HAND}"
    if k3s is None:
        yield f"edgegpu changes no configuration of kubelet ({facts.kind})", by_hand
    elif role is MachineRole.EXTENDER_ONLY:
        yield "this machine offers no card, so that its kubelet has no devices to wait for", "leave it out"
    elif facts.kind is NodeKind.K3S_AGENT or role is MachineRole.AGENT:
        yield "edgegpu writes nothing that k3s reads where the role is agent, and never restarts it there", by_hand
    elif not k3s.takes_drop_in:
        yield f"k3s {k3s.version} reads no drop-in like ours", by_hand
    elif k3s.resolv_conf.operator:
        last = k3s.resolv_conf.operator[-1]
        yield (
            f"{last.source} gives kubelet {last.text or 'no file'} as its {RESOLV_CONF}, which edgegpu never overrides",
            f"take it out there and restart {k3s.unit.name}, or {by_hand}",
        )
    elif not k3s.resolv_conf.choice:
        yield (
            "neither /etc/resolv.conf nor systemd-resolved's has nameservers for pods alone: k3s gives them 8.8.8.8",
            f"name a server in /etc/resolv.conf that is not on this machine, or {by_hand}",
        )


def overridden(facts: MachineFacts, options: InstallOptions) -> str:
    """Return the file or variable of an operator's resolv-conf beside a link that is to stay; empty without one."""
    operator = facts.k3s.resolv_conf.operator if facts.k3s else ()
    present = resolv_conf(facts.installed.plugin_yaml if facts.installed else None)
    is_beside = options.wait_at_start is None and present == START_LINK and operator
    return operator[-1].source if is_beside else ""
