/* calls.c - how long calls of the driver take, without an interpreter around them.
 *
 * `calls first`: seconds from nothing to the first context, as JSON; then it waits for the end of its standard input,
 * so that many started at once stay beside each other. `calls rounds`: prints a line, and for each line of its standard
 * input the nanoseconds of an empty launch, of an allocation with its free, and of both in stream order; the best of
 * several rounds. Between rounds it does nothing for a while: a program with a share must stay below it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 20
#define CALLS 100
#define PAUSE_US 2000
#define BYTES (1u << 20)

static const char *const images[] = {
	".version 6.0\n.target sm_60\n.address_size 64\n.visible .entry nothing() { ret; }\n",
	".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n",
	".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n",
};

static void *driver, *kernel;
static int (*launch)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
		     unsigned int, unsigned int, void *, void **, void **);
static int (*alloc)(uint64_t *, size_t), (*release)(uint64_t), (*synchronise)(void);
static int (*alloc_async)(uint64_t *, size_t, void *), (*release_async)(uint64_t, void *);

static void must(int status, const char *what)
{
	if (status == 0)
		return;
	fprintf(stderr, "%s answers %d\n", what, status);
	exit(1);
}

static void *find(const char *name)
{
	void *found = dlsym(driver, name);

	if (found == NULL) {
		fprintf(stderr, "no %s\n", name);
		exit(1);
	}
	return found;
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void start(void)
{
	void *context;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (driver == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	must(((int (*)(unsigned int))find("cuInit"))(0), "cuInit");
	must(((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
	must(((int (*)(void *))find("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
}

static void load(void)
{
	int (*load_data)(void **, const void *) = (__typeof__(load_data))find("cuModuleLoadData"), status = 1;
	int (*get)(void **, void *, const char *) = (__typeof__(get))find("cuModuleGetFunction");
	void *module;

	for (size_t i = 0; status != 0 && i < sizeof(images) / sizeof(*images); i++)
		status = load_data(&module, images[i]);
	must(status, "cuModuleLoadData");
	must(get(&kernel, module, "nothing"), "cuModuleGetFunction");
	launch = (__typeof__(launch))find("cuLaunchKernel");
	alloc = (__typeof__(alloc))find("cuMemAlloc_v2");
	release = (__typeof__(release))find("cuMemFree_v2");
	alloc_async = (__typeof__(alloc_async))find("cuMemAllocAsync");
	release_async = (__typeof__(release_async))find("cuMemFreeAsync");
	synchronise = (__typeof__(synchronise))find("cuCtxSynchronize");
}

static void empty_launch(void)
{
	must(launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
}

static void pair(void)
{
	uint64_t at;

	must(alloc(&at, BYTES), "cuMemAlloc");
	must(release(at), "cuMemFree");
}

static void async_pair(void)
{
	uint64_t at;

	must(alloc_async(&at, BYTES, NULL), "cuMemAllocAsync");
	must(release_async(at, NULL), "cuMemFreeAsync");
}

static double best_ns(void (*call)(void))
{
	double best = 1e18, began, took;

	for (int i = 0; i < ROUNDS; i++) {
		usleep(PAUSE_US);
		began = now_ns();
		for (int j = 0; j < CALLS; j++)
			call();
		took = (now_ns() - began) / CALLS;
		best = took < best ? took : best;
		must(synchronise(), "cuCtxSynchronize");
	}
	return best;
}

int main(int argc, char **argv)
{
	double began = now_ns();
	char line[64];

	start();
	if (argc > 1 && *argv[1] == 'f') {
		printf("{\"first_call_s\": %.6f}\n", (now_ns() - began) / 1e9);
		fflush(stdout);
		return fgets(line, sizeof(line), stdin) != NULL;
	}
	load();
	best_ns(async_pair);		/* the pool, and code that is loaded when it is first used */
	for (puts("{\"ready\": 1}"); fflush(stdout) == 0 && fgets(line, sizeof(line), stdin) != NULL;)
		printf("{\"launch_ns\": %.2f, \"malloc_free_ns\": %.2f, \"async_pair_ns\": %.2f}\n",
		       best_ns(empty_launch), best_ns(pair), best_ns(async_pair));
	return 0;
}
