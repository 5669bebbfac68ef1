/* memory_client.c - a program in a pod that asks the driver for card memory; it links nothing of it.
 *
 *   memory_client MIB...          ask for each amount in turn, keep what it gets; a status of CUDA for each
 *   memory_client --keep MIB      ask once, print the status, keep what it got until it is killed
 *   memory_client --watch MIB     ask and give back ten times a second; the time in ms and the status at each change
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int (*call)();

static void *driver;

static call function(const char *name)
{
	call found = (call)dlsym(driver, name);

	if (found == NULL) {
		fprintf(stderr, "no %s\n", name);
		exit(2);
	}
	return found;
}

static void start(void)
{
	void *context;
	int status;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (driver == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	status = function("cuInit")(0);
	if (status == 0)
		status = function("cuDevicePrimaryCtxRetain")(&context, 0);
	if (status == 0)
		status = function("cuCtxSetCurrent")(context);
	if (status != 0) {
		printf("start %d\n", status);
		exit(1);
	}
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static void watch(unsigned long long bytes)
{
	struct timespec pause = { 0, 100000000 };
	int last = -1;

	for (;;) {
		unsigned long long at;
		int status = function("cuMemAlloc_v2")(&at, bytes);

		if (status == 0)
			function("cuMemFree_v2")(at);
		if (status != last)
			printf("%lld %d\n", now_ms(), status);
		last = status;
		fflush(stdout);
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	int keep;

	start();
	if (argc == 3 && strcmp(argv[1], "--watch") == 0)
		watch(strtoull(argv[2], NULL, 10) << 20);
	keep = argc == 3 && strcmp(argv[1], "--keep") == 0;
	for (int i = keep ? 2 : 1; i < argc; i++) {
		unsigned long long at;

		printf("%d\n", function("cuMemAlloc_v2")(&at, strtoull(argv[i], NULL, 10) << 20));
	}
	fflush(stdout);
	while (keep)
		pause();
	return 0;
}
