"""The list of checks: their names, groups, and what each looks at."""

from collections.abc import Callable
from dataclasses import dataclass

from edgegpu_installer.doctor import (
    access,
    box,
    certificates,
    cloud,
    containers,
    driver,
    extender,
    history,
    k3s,
    old_files,
    plugin,
)
from edgegpu_installer.doctor.probe import BoxProbe
from edgegpu_installer.doctor.verdict import CheckResult


@dataclass(frozen=True, slots=True)
class Check:
    """One question to the box."""

    name: str
    group: str
    about: str
    look: Callable[[BoxProbe], CheckResult]
    of_install: bool = True
    """Whether it looks at what an install makes, so that without one there is nothing to say."""


CHECKS = (
    Check("clock", "machine", "the clock is right", box.look_clock, of_install=False),
    Check("disk", "machine", "there is room, and what must be written can be", box.look_disk, of_install=False),
    Check("driver", "machine", "the driver's parts are of one version", driver.look_versions, of_install=False),
    Check("cards", "machine", "the cards that are seen, excluded and offered", driver.look_cards, of_install=False),
    Check("k3s", "cluster", "k3s runs, stays up, and is new enough", k3s.look_k3s, of_install=False),
    Check(
        "kubeconfig", "cluster", "the API server answers, and the account may do what it must", access.look_kubeconfig
    ),
    Check("plugin", "edgegpu", "edgegpu-plugin runs", plugin.look_plugin, of_install=False),
    Check("resources", "edgegpu", "both resources are registered and offered", plugin.look_resources),
    Check("double", "edgegpu", "no other device plugin offers the same cards", plugin.look_double, of_install=False),
    Check("scheduler", "edgegpu", "k3s's scheduler reads edgegpu's file, and a right one", k3s.look_scheduler),
    Check("extender", "edgegpu", "the scheduler reaches the extender", extender.look_extender),
    Check("certificates", "edgegpu", "certificates hold for a while yet", certificates.look_certificates),
    Check("agent", "cloud", "edgegpu-agent runs", cloud.look_agent, of_install=False),
    Check("cloud", "cloud", "the cloud can be reached and trusted", cloud.look_cloud, of_install=False),
    Check(
        "enrolment", "cloud", "this box is enrolled, and its certificate holds", cloud.look_enrolment, of_install=False
    ),
    Check("link", "cloud", "the box is connected, and the controller is heard", cloud.look_link, of_install=False),
    Check("runtime", "containers", "containerd can bring cards into containers", containers.look_runtime),
    Check("cdi", "containers", "the CDI spec is there, with all its files", containers.look_cdi),
    Check("cgroups", "containers", "a daemon-reload leaves running containers their cards", containers.look_cgroups),
    Check("visible", "containers", "no container sees cards that it was not given", containers.look_visible),
    Check("limiter", "containers", "what containers are held to", plugin.look_limiter, of_install=False),
    Check("recover", "install", "a change that fails is undone", history.look_recover),
    Check(
        "transaction",
        "install",
        "the last change of this machine is finished",
        history.look_transaction,
        of_install=False,
    ),
    Check("files", "install", "edgegpu's files are as it wrote them", history.look_files),
    Check(
        "leftovers",
        "install",
        "nothing of older installs or of other products lies about",
        old_files.look_leftovers,
        of_install=False,
    ),
)
"""In the order in which causes come before their consequences."""
