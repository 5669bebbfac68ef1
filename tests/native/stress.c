/* stress.c - six threads allocate, launch and destroy at once; nothing may be left, and no call may fail. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 6
#define LAUNCHES 20

typedef void *handle;
typedef unsigned long long address;

int cuInit(unsigned int flags);
int cuDevicePrimaryCtxRetain(handle *ctx, int device);
int cuCtxSetCurrent(handle ctx);
int cuCtxSynchronize(void);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
int cuMemAlloc_v2(address *out, size_t bytes);
int cuMemFree_v2(address at);
int cuMemAllocAsync(address *out, size_t bytes, handle stream);
int cuMemFreeAsync(address at, handle stream);
int cuStreamCreate(handle *out, unsigned int flags);
int cuStreamSynchronize(handle stream);
int cuStreamDestroy_v2(handle stream);
int cuEventCreate(handle *out, unsigned int flags);
int cuEventRecord(handle event, handle stream);
int cuEventSynchronize(handle event);
int cuEventDestroy_v2(handle event);
int cuModuleLoadData(handle *module, const void *image);
int cuModuleGetFunction(handle *function, handle module, const char *name);
int cuLaunchKernel(handle function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, handle stream,
		   void **arguments, void **extra);
int cuLaunchHostFunc(handle stream, void (*call)(void *data), void *data);

static handle ctx, function;
static _Atomic int calls;

static void check(int status, const char *what)
{
	if (status == 0)
		return;
	fprintf(stderr, "%s: %d\n", what, status);
	exit(1);
}
#define OK(call) check(call, #call)

static void called(void *data)
{
	(void)data;
	calls++;
}

static void one_round(int number)
{
	handle stream, event;
	address plain, pooled;

	OK(cuStreamCreate(&stream, 1));
	OK(cuEventCreate(&event, 0));
	OK(cuMemAlloc_v2(&plain, 1000));
	OK(cuMemAllocAsync(&pooled, 5000, stream));
	for (int i = 0; i < LAUNCHES; i++)
		OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	OK(cuEventRecord(event, stream));
	OK(cuLaunchHostFunc(stream, called, NULL));
	OK(cuEventSynchronize(event));
	OK(cuMemFreeAsync(pooled, stream));
	OK(cuMemFree_v2(plain));
	if (number % 2 == 1)		/* else it is destroyed with work in it, which is still done */
		OK(cuStreamSynchronize(stream));
	OK(cuEventDestroy_v2(event));
	OK(cuStreamDestroy_v2(stream));
}

static void *work(void *rounds)
{
	OK(cuCtxSetCurrent(ctx));
	for (int i = 0; i < (int)(size_t)rounds; i++)
		one_round(i);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t free_bytes, total, rounds = argc > 1 ? (size_t)atoi(argv[1]) : 1;
	pthread_t threads[THREADS];
	handle module;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoadData(&module, "image"));
	OK(cuModuleGetFunction(&function, module, "step_20us"));
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)rounds);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	while (calls < THREADS * (int)rounds)	/* of streams that are destroyed nobody can wait */
		OK(cuCtxSynchronize());
	OK(cuCtxSynchronize());
	OK(cuMemGetInfo_v2(&free_bytes, &total));
	printf("%d %zu\n", calls, total - free_bytes);
	return 0;
}
