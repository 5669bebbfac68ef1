"""The cleanup after a first installation that was rolled back when its plugin had run: kubelet knows the resources."""

from dataclasses import replace

from edgegpu_core.model import ResourceModel
from edgegpu_installer.changes import Plan, TransactionKind
from edgegpu_installer.layout import LIB
from edgegpu_installer.plan.release import Release
from edgegpu_installer.plan.site import Site
from edgegpu_installer.transaction import farewell, transaction
from edgegpu_installer.transaction.farewell import CDI_SPEC, Farewell
from edgegpu_installer.transaction.prepare import TransactionMachine
from edgegpu_installer.transaction.transaction import TransactionOutcome


def clean_up(site: Site, release: Release, machine: TransactionMachine) -> TransactionOutcome | None:
    """Let edgegpu-farewell wait for kubelet and remove the rest; None when the plugin has not run so far.

    Without it kubelet would offer 0 of the resources for ever, and the CDI spec would stay until the next boot.

    Raises:
        InstallError: the machine cannot be changed.
    """
    if not machine.layout.at(CDI_SPEC).exists():
        return None
    wait = Farewell(
        node=site.node_name,
        kubeconfig=site.kubelet_kubeconfig,
        model=ResourceModel(),
    )
    agent_stays = machine.layout.current.is_symlink()  # then nothing else may be removed
    plan = Plan(
        op=TransactionKind.WITHDRAW if agent_stays else TransactionKind.UNINSTALL,
        files=farewell.files(wait, program=release.farewell, unit=release.farewell_unit),
        folders=("/usr/local/lib", LIB),
        reload=True,
        start=(farewell.UNIT,),
    )
    machine = replace(machine, transaction_id="")  # that one was rolled back
    return transaction.run(plan, machine, verify=lambda _deadline: None, deadline_s=120.0)
