"""Asking kubelet who holds what, on a real socket."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from edgegpu_plugin.errors import PodResourcesError
from edgegpu_plugin.kubelet.pods import PodResources
from edgegpu_plugin.pb import PodDevices, pod_resources_handler

HELD = PodDevices("edge", "pod-1", "main", "baidu.com/vcuda-memory", ("GPU-1::m0000", "GPU-1::m0001"))


@pytest.fixture
def serve(short_tmp: Path) -> Iterator[Callable[[Sequence[PodDevices] | Exception | None], Path]]:
    """Serves an answer, an error, or (None) other services only."""
    with ExitStack() as stack:

        def make(answer: Sequence[PodDevices] | Exception | None) -> Path:
            def devices() -> Sequence[PodDevices]:
                if isinstance(answer, Exception):
                    raise answer
                return answer or ()

            server = grpc.server(stack.enter_context(ThreadPoolExecutor(2)))
            if answer is not None:
                server.add_generic_rpc_handlers((pod_resources_handler(devices),))
            path = short_tmp / "kubelet.sock"
            server.add_insecure_port(f"unix://{path}")
            server.start()
            stack.callback(lambda: server.stop(None).wait(30))
            return path

        yield make


def test_what_kubelet_says(serve: Callable[[Sequence[PodDevices]], Path]) -> None:
    assert PodResources(serve([HELD])).list() == (HELD,)


def test_a_kubelet_without_the_service(serve: Callable[[None], Path]) -> None:
    assert PodResources(serve(None)).list() is None


def test_no_socket(short_tmp: Path) -> None:
    assert PodResources(short_tmp / "kubelet.sock").list() is None


def test_a_socket_that_cannot_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "kubelet.sock").symlink_to("x" * 300)
    with pytest.raises(PodResourcesError, match=r"cannot look at .*: File name too long"):
        PodResources(tmp_path / "kubelet.sock").list()


def test_a_kubelet_that_fails(serve: Callable[[Exception], Path]) -> None:
    with pytest.raises(PodResourcesError, match=r"cannot list pods' devices at .*not today.*; is kubelet"):
        PodResources(serve(RuntimeError("not today"))).list()


def test_a_kubelet_that_is_dead(serve: Callable[[Sequence[PodDevices]], Path], short_tmp: Path) -> None:
    served = serve([])
    left = short_tmp / "left.sock"
    served.rename(left)
    client = PodResources(left, timeout_s=5)
    assert client.list() == ()
    left.unlink()
    left.touch()  # a path that nobody listens on
    with pytest.raises(PodResourcesError):
        client.list()
