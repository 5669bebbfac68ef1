/* surroundings.c - a program that changes what it sees of the machine: `surroundings STEP...`, each step NAME or
 * NAME=VALUE. It prints what a step gave, a line each. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

static void change_root(const char *folder)
{
	MUST(chroot(folder) == 0 && chdir("/") == 0);
}

/* FROM:TO */
static void lay_over(char *both)
{
	char *to = strchr(both, ':');

	MUST(to != NULL);
	*to++ = '\0';
	MUST(mount(both, to, NULL, MS_BIND, NULL) == 0);
}

static void allocate(unsigned long long mib)
{
	CUdeviceptr at;

	printf("%d\n", (int)CU(cuMemAlloc_v2)(&at, mib * MIB));
}

static void launch(int count)
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < count; i++)
		MUST(CU(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%.0f\n", (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6);
}

static void step(char *word)
{
	char *value = strchr(word, '=');

	if (value != NULL)
		*value++ = '\0';
	if (strcmp(word, "start") == 0)
		printf("%d\n", client_try_start());
	else if (strcmp(word, "chroot") == 0)
		change_root(value);
	else if (strcmp(word, "over") == 0)
		lay_over(value);
	else if (strcmp(word, "wait") == 0)
		usleep((unsigned int)atoi(value) * 1000);
	else if (strcmp(word, "alloc") == 0)
		allocate((unsigned long long)atoi(value));
	else if (strcmp(word, "launch") == 0)
		launch(atoi(value));
	else if (strcmp(word, "hold") == 0)
		getchar();
	else
		MUST(0);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	client_open("libcuda.so.1");
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "exec") == 0) {
			argv[i] = argv[0];
			execv("/proc/self/exe", argv + i);
			return 3;
		}
		step(argv[i]);
	}
	return 0;
}
