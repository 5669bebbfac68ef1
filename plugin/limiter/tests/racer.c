/* racer.c - who gets the last byte? Each round as many as there are ask for all that is left, at once:
 * exactly one gets it. `racer threads 4 1000`, `racer processes 4 1000`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

#define RACERS_MAX 64

struct race {
	pthread_barrier_t barrier;
	int winners, rounds, racers, arrived;
	size_t bytes;
};

static struct race *race;

/* Those that wake from the barrier do so one after the other: spin until all are awake. */
static void meet(int round)
{
	pthread_barrier_wait(&race->barrier);
	__atomic_add_fetch(&race->arrived, 1, __ATOMIC_ACQ_REL);
	for (int spins = 0; spins >= 0; spins++) {
		if (__atomic_load_n(&race->arrived, __ATOMIC_ACQUIRE) >= (round + 1) * race->racers)
			return;
		if (spins > 20000)
			sched_yield();
	}
}

static void run(void)
{
	__typeof__(&cuMemAlloc_v2) alloc = CU(cuMemAlloc_v2);
	__typeof__(&cuMemFree_v2) release = CU(cuMemFree_v2);

	unsigned int random = (unsigned int)(uintptr_t)&release;

	for (int round = 0; round < race->rounds; round++) {
		CUdeviceptr at;
		CUresult ret;

		meet(round);
		random = random * 1664525 + 1013904223;
		for (volatile unsigned int wait = random >> 16 & 127; wait > 0; wait--)
			;	/* the last to arrive is the first to go on: mix them */
		ret = alloc(&at, race->bytes);
		if (ret == CUDA_SUCCESS)
			__atomic_add_fetch(&race->winners, 1, __ATOMIC_RELAXED);
		else
			MUST(ret == CUDA_ERROR_OUT_OF_MEMORY);
		pthread_barrier_wait(&race->barrier);
		MUST(__atomic_load_n(&race->winners, __ATOMIC_RELAXED) == round + 1);
		if (ret == CUDA_SUCCESS)
			MUST(release(at) == CUDA_SUCCESS);
	}
}

static void *thread(void *context)
{
	MUST(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	run();
	return NULL;
}

static void threads(void)
{
	pthread_t all[RACERS_MAX];
	CUcontext context;

	client_start();
	race->bytes = client_free();
	MUST(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
	for (int i = 0; i < race->racers; i++)
		MUST(pthread_create(&all[i], NULL, thread, context) == 0);
	for (int i = 0; i < race->racers; i++)
		pthread_join(all[i], NULL);
}

static void processes(void)
{
	pid_t racers[RACERS_MAX];
	int status, failed = 0;

	for (int i = 0; i < race->racers; i++) {
		racers[i] = fork();
		if (racers[i] != 0)
			continue;
		client_start();
		pthread_barrier_wait(&race->barrier);	/* every context is counted */
		race->bytes = client_free();
		pthread_barrier_wait(&race->barrier);
		run();
		_exit(0);
	}
	while (wait(&status) > 0)
		if (status != 0 && failed++ == 0)
			for (int i = 0; i < race->racers; i++)
				kill(racers[i], SIGTERM);	/* they would wait for it */
	MUST(failed == 0);
}

int main(int argc, char **argv)
{
	pthread_barrierattr_t shared;

	if (argc < 4)
		return 2;
	race = mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	race->racers = atoi(argv[2]);
	race->rounds = atoi(argv[3]);
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&race->barrier, &shared, (unsigned int)race->racers);
	client_open("libcuda.so.1");
	if (strcmp(argv[1], "threads") == 0)
		threads();
	else
		processes();
	printf("%d\n", race->winners);
	return 0;
}
