import threading

from edgegpu_plugin.extender.bind import FifoLocks

DEADLINE_S = 10.0


def test_turns_come_in_the_order_of_asking() -> None:
    locks = FifoLocks()
    order: list[int] = []
    threads: list[threading.Thread] = []

    def take(number: int) -> None:
        with locks.hold("n", DEADLINE_S) as mine:
            assert mine
            order.append(number)

    with locks.hold("n", 0) as mine:
        assert mine
        for number in range(5):
            thread = threading.Thread(target=take, args=(number,))
            thread.start()
            threads.append(thread)
            assert locks.wait_for_waiters("n", number + 1, DEADLINE_S)
    for thread in threads:
        thread.join(DEADLINE_S)
    assert order == [0, 1, 2, 3, 4]


def test_a_turn_that_does_not_come_is_given_up_and_blocks_nobody() -> None:
    locks = FifoLocks()
    with locks.hold("n", 0):
        with locks.hold("n", 0.01) as mine:
            assert not mine
        with locks.hold("other", 0) as mine:
            assert mine
    with locks.hold("n", 0) as mine:
        assert mine
