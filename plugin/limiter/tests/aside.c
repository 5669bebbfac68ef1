/* aside.c - one process holds memory; two put it aside and bring it back without end, two more take memory meanwhile, so
 * many rounds each: `aside HELD_MIB LIMIT_MIB ROUNDS`. It prints how often one of them was told that there is no memory.
 * What the card itself refuses is among those: on a card of that limit it never has to. */
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static CUresult (*go[4])(int pid, void *args);
static unsigned int told;

static unsigned int draw(void)
{
	static unsigned int state;

	state = state == 0 ? (unsigned int)getpid() : state * 1664525 + 1013904223;
	return state >> 8;
}

static bool is_given(CUresult ret)
{
	told += ret == CUDA_ERROR_OUT_OF_MEMORY;
	return ret == CUDA_SUCCESS;
}

/* The calls of two that do this at once come in any order; the driver refuses those out of turn. */
static void move(int pid, int rounds)
{
	enum { LOCK, CHECKPOINT, RESTORE, UNLOCK };

	for (int i = 0; i < rounds; i++)
		is_given(go[draw() % 4](pid, NULL));
	while (!is_given(go[UNLOCK](pid, NULL))) {
		is_given(go[LOCK](pid, NULL));
		is_given(go[CHECKPOINT](pid, NULL));
		is_given(go[RESTORE](pid, NULL));
	}
}

#define LIFE 30				/* rounds of a process that takes memory; then the next */

static void begin(void)
{
	static const char *const names[] = { "Lock", "Checkpoint", "Restore", "Unlock" };
	char name[64];

	client_open("libcuda.so.1");
	while (!client_try_start())	/* others may hold all of it for a moment */
		told++;
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "cuCheckpointProcess%s", names[i]);
		go[i] = (CUresult (*)(int, void *))client_symbol(name);
	}
}

/* In one process after the other: what has ended counts until the driver has taken it back. */
static void take(uint64_t most, int rounds, const int answer[2])
{
	unsigned int sum = 0;

	for (int i = 0; i < rounds; i += LIFE) {
		if (fork() == 0) {
			CUdeviceptr at;

			told = 0;
			begin();
			for (int j = 0; j < LIFE; j++)
				if (is_given(CU(cuMemAlloc_v2)(&at, 1 + draw() * 64ull % most)) && j < LIFE - 1)
					MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
			MUST(write(answer[1], &told, sizeof(told)) == sizeof(told));
			_exit(0);
		}
		MUST(wait(NULL) > 0 && read(answer[0], &told, sizeof(told)) == sizeof(told));
		sum += told;
	}
	told = sum;
}

static int hold(uint64_t bytes, const int ready[2])
{
	pid_t pid = fork();
	CUdeviceptr at;
	char byte;

	if (pid == 0) {
		begin();
		MUST(CU(cuMemAlloc_v2)(&at, bytes) == CUDA_SUCCESS && write(ready[1], "", 1) == 1);
		pause();
	}
	MUST(read(ready[0], &byte, 1) == 1);
	return pid;
}

int main(int argc, char **argv)
{
	uint64_t held = argc == 4 ? strtoull(argv[1], NULL, 10) * MIB : 0, limit = held != 0 ? strtoull(argv[2], NULL, 10) * MIB : 0;
	int ready[2], answer[2], pid, status;
	unsigned int sum = 0;

	MUST(held != 0 && limit > held && pipe(ready) == 0);
	pid = hold(held, ready);
	for (int i = 0; i < 4; i++) {
		if (fork() != 0)
			continue;
		MUST(pipe(answer) == 0);
		if (i < 2) {
			begin();
			move(pid, atoi(argv[3]));
		} else {
			take(limit, atoi(argv[3]), answer);
		}
		MUST(write(ready[1], &told, sizeof(told)) == sizeof(told));
		return 0;
	}
	for (int i = 0; i < 4; i++) {
		MUST(read(ready[0], &told, sizeof(told)) == sizeof(told));
		sum += told;
	}
	for (int i = 0; i < 4; i++)
		MUST(wait(&status) > 0 && status == 0);
	printf("%u\n", sum);
	kill(pid, SIGKILL);
	return 0;
}
