/* captures.c - programs that capture while another thread launches and is measured: `captures WHAT [DRIVER]`. Each graph has
 * the kernels that were launched into it, and nothing else. Afterwards they print the percent of the card that plain
 * kernels get, so that a limit that captures left without effect is seen. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

typedef struct CUmod_st *CUmodule;

CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleGetFunction(void **out, CUmodule module, const char *name);
CUresult cuStreamCreate(CUstream *out, unsigned int flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuStreamIsCapturing(CUstream stream, int *status);

enum { GLOBAL, THREAD_LOCAL, RELAXED };

#define INVALIDATED 901
#define KERNELS 20
#define ROUNDS 10
#define US 1000ull
#define MS 1000000ull
#define MEASURED_NS (1500 * MS)	/* what was saved up before it, 20 ms, adds less than two points */
#define PAID_NS (800 * MS)

static void *spin;
static __typeof__(&cuLaunchKernel) launch_kernel;
static int measuring;			/* the thread beside is to go on; atomic */
static unsigned int launches;		/* of that thread; atomic */
static pid_t launcher;			/* the thread that launches one kernel; atomic */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

static void pause_us(long us)
{
	nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL);
}

static CUresult launch(CUstream stream, uint64_t ns)
{
	void *params[] = { &ns };

	return launch_kernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static CUstream new_stream(void)
{
	CUstream stream;

	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	return stream;
}

static void *beside(void *unused)
{
	CUstream stream;
	(void)unused;

	client_start();
	stream = new_stream();
	while (__atomic_load_n(&measuring, __ATOMIC_SEQ_CST)) {
		MUST(launch(stream, 100 * US) == CUDA_SUCCESS);
		__atomic_add_fetch(&launches, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static pthread_t start_beside(void)
{
	pthread_t thread;

	__atomic_store_n(&measuring, 1, __ATOMIC_SEQ_CST);
	MUST(pthread_create(&thread, NULL, beside, NULL) == 0);
	return thread;
}

static void stop_beside(pthread_t thread)
{
	__atomic_store_n(&measuring, 0, __ATOMIC_SEQ_CST);
	MUST(pthread_join(thread, NULL) == 0);
}

static void begin(CUstream stream, int mode)
{
	MUST(CU(cuStreamBeginCapture_v2)(stream, mode) == CUDA_SUCCESS);
}

static void fill(CUstream stream)
{
	for (int i = 0; i < KERNELS; i++)
		MUST(launch(stream, 20 * US) == CUDA_SUCCESS);
}

/* Returns the nodes of the graph. */
static size_t ended(CUstream stream)
{
	CUgraph graph;
	size_t nodes;

	MUST(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	MUST(CU(cuGraphGetNodes)(graph, NULL, &nodes) == CUDA_SUCCESS);
	return nodes;
}

static void *end(void *stream)
{
	client_start();
	MUST(ended(stream) == KERNELS);
	return NULL;
}

/* A capture that another thread ends, and what cannot begin. */
static void handed(CUstream stream)
{
	pthread_t thread;

	for (int i = 0; i < ROUNDS; i++) {
		begin(stream, RELAXED);
		MUST(CU(cuStreamBeginCapture_v2)(NULL, RELAXED) != CUDA_SUCCESS);
		fill(stream);
		MUST(pthread_create(&thread, NULL, end, stream) == 0 && pthread_join(thread, NULL) == 0);
		MUST(CU(cuStreamEndCapture)(stream, &(CUgraph){ NULL }) != CUDA_SUCCESS);
	}
}

/* Two at once; another stream has none to end. */
static void several(CUstream first)
{
	CUstream second = new_stream(), none = new_stream();

	for (int i = 0; i < ROUNDS; i++) {
		begin(first, i % 3);
		begin(second, i % 3);
		MUST(CU(cuStreamEndCapture)(none, &(CUgraph){ NULL }) != CUDA_SUCCESS);
		fill(first);
		end(first);
		fill(second);
		end(second);
	}
}

/* Captures that the program itself makes invalid, or ends with their stream; the next one is whole. */
static void broken(CUstream stream)
{
	CUstream other = new_stream();
	CUgraph graph;

	begin(stream, GLOBAL);
	MUST(CU(cuStreamQuery)(stream) != CUDA_SUCCESS);
	MUST(launch(stream, US) == INVALIDATED);
	MUST(CU(cuStreamEndCapture)(stream, &graph) == INVALIDATED);
	begin(other, RELAXED);
	MUST(CU(cuStreamDestroy_v2)(other) == CUDA_SUCCESS);
	begin(stream, GLOBAL);
	fill(stream);
	end(stream);
}

/* The mode that the program has set for its thread is still set after launches and waits. */
static void modes(CUstream stream)
{
	CUstream other = new_stream();

	for (int mode = GLOBAL; mode <= RELAXED; mode++) {
		int seen = mode;

		MUST(CU(cuThreadExchangeStreamCaptureMode)(&seen) == CUDA_SUCCESS);
		begin(stream, RELAXED);
		fill(other);
		fill(stream);
		end(stream);
		MUST(CU(cuStreamSynchronize)(other) == CUDA_SUCCESS);
		seen = GLOBAL;
		MUST(CU(cuThreadExchangeStreamCaptureMode)(&seen) == CUDA_SUCCESS && seen == mode);
	}
}

/* A capture that calls of other threads would end goes on while the thread beside is measured. */
static void lasting(CUstream stream)
{
	unsigned int before = __atomic_load_n(&launches, __ATOMIC_SEQ_CST);

	begin(stream, GLOBAL);
	while (__atomic_load_n(&launches, __ATOMIC_SEQ_CST) - before < KERNELS)
		pause_us(1000);
	fill(stream);
	end(stream);
}

static void forked(CUstream stream)
{
	int status;
	pid_t child;

	begin(stream, GLOBAL);
	child = fork();
	if (child == 0)
		_exit(0);
	MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	fill(stream);
	end(stream);
}

/* Its thread is about to launch. */
static void launching(void)
{
	__atomic_store_n(&launcher, gettid(), __ATOMIC_SEQ_CST);
}

/* Returns when that thread sleeps in its launch, or has ended: on a busy machine it may take long to come there. */
static void await_sleep(void)
{
	char path[64], line[256], *state;
	FILE *file;
	pid_t thread;

	for (;; pause_us(1000)) {
		thread = __atomic_load_n(&launcher, __ATOMIC_SEQ_CST);
		if (thread == 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
		file = fopen(path, "r");
		if (file == NULL)
			return;
		state = fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
		fclose(file);
		if (state == NULL || state[2] == 'S')
			return;
	}
}

static void *launch_once(void *stream)
{
	client_start();
	launching();
	MUST(launch(stream, US) == CUDA_SUCCESS);
	return NULL;
}

/* The capture begins while a launch into the stream is held. */
static void held(CUstream stream)
{
	pthread_t thread;

	MUST(launch(stream, 200 * MS) == CUDA_SUCCESS && CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
	MUST(pthread_create(&thread, NULL, launch_once, stream) == 0);
	pause_us(20000);
	begin(stream, RELAXED);
	MUST(pthread_join(thread, NULL) == 0);
	MUST(ended(stream) <= 1);
}

/* The capture ends while a launch into the stream is being begun, which somebody has stopped there: the launch runs, so
 * it is held until what ran before is paid for. */
static void over(CUstream stream)
{
	uint64_t began = now_ns();
	pthread_t thread;

	MUST(launch(stream, PAID_NS) == CUDA_SUCCESS && CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
	begin(stream, RELAXED);
	puts("captures");
	getchar();
	MUST(pthread_create(&thread, NULL, launch_once, stream) == 0);
	await_sleep();
	MUST(ended(stream) == 0);
	puts("ended");
	MUST(pthread_join(thread, NULL) == 0);
	printf("%.2f\n", 100.0 * (double)PAID_NS / (double)(now_ns() - began));
}

static void *launch_long(void *stream)
{
	client_start();
	launching();
	MUST(launch(stream, PAID_NS) == CUDA_SUCCESS);
	return NULL;
}

/* The capture ends while a launch into the stream is in the driver, which somebody has stopped there, and another one
 * begins before the launch is over: it ran, so what follows is held until it is paid for. Another stream captures all the
 * while: so there is no moment at which the driver need not be asked. */
static void between(CUstream stream)
{
	CUstream other = new_stream();
	pthread_t thread;
	uint64_t began;

	begin(other, RELAXED);
	begin(stream, RELAXED);
	puts("captures");
	getchar();
	MUST(pthread_create(&thread, NULL, launch_long, stream) == 0);
	await_sleep();
	MUST(ended(stream) == 0);
	puts("ended");
	getchar();
	while (CU(cuStreamQuery)(stream) == CUDA_SUCCESS)
		pause_us(1000);
	began = now_ns();
	begin(stream, RELAXED);
	puts("again");
	getchar();
	await_sleep();
	MUST(ended(stream) == 0 && ended(other) == 0);
	MUST(pthread_join(thread, NULL) == 0);
	MUST(launch(stream, US) == CUDA_SUCCESS && CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
	printf("%.2f\n", 100.0 * (double)PAID_NS / (double)(now_ns() - began));
}

/* The driver's own functions begin and end captures, by which no hook sees them: the first of them is not whole. */
static void unseen(CUstream stream, const char *driver)
{
	void *own = dlopen(driver, RTLD_NOW);
	__typeof__(&cuStreamBeginCapture_v2) own_begin = dlsym(own, "cuStreamBeginCapture_v2");
	__typeof__(&cuStreamEndCapture) own_end = dlsym(own, "cuStreamEndCapture");
	CUgraph graph;
	size_t nodes;

	MUST(own_begin != NULL && own_end != NULL);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(own_begin(stream, RELAXED) == CUDA_SUCCESS);
		fill(stream);
		pause_us(1000);
		MUST(launch(stream, US) == CUDA_SUCCESS);
		MUST(own_end(stream, &graph) == CUDA_SUCCESS);
		MUST(CU(cuGraphGetNodes)(graph, NULL, &nodes) == CUDA_SUCCESS && (i == 0 || nodes == KERNELS + 1));
	}
}

/* The thread beside is in a call of the limiter's, where somebody has stopped it. */
static void await_stop(void)
{
	unsigned int before, now = 0;

	getchar();
	do {
		before = now;
		pause_us(100000);
		now = __atomic_load_n(&launches, __ATOMIC_SEQ_CST);
	} while (before != now);
}

/* A capture begins meanwhile. */
static void stopped(CUstream stream)
{
	await_stop();
	puts("begins");
	begin(stream, GLOBAL);
	puts("began");
	fill(stream);
	getchar();
	end(stream);
}

/* Several begin, and it does not go on for long: it prints how many ms each took. */
static void lost(CUstream stream)
{
	await_stop();
	for (int i = 0; i < 2; i++) {
		uint64_t began = now_ns();

		begin(stream, RELAXED);
		printf("%.0f\n", (double)(now_ns() - began) / MS);
		fill(stream);
		end(stream);
	}
	getchar();
}

static double share(CUstream stream)
{
	uint64_t began, count = 0;

	MUST(launch(stream, MS) == CUDA_SUCCESS && CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
	for (began = now_ns(); now_ns() - began < MEASURED_NS; count++)
		MUST(launch(stream, MS) == CUDA_SUCCESS && CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
	MUST(launch(stream, US) == CUDA_SUCCESS);	/* is let in when all else has been paid for */
	return 100.0 * (double)(count * MS) / (double)(now_ns() - began);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	void (*const plays[])(CUstream) = { handed, several, broken, modes, lasting, forked, held, over, between, stopped,
					    lost };
	static const char *const names[] = { "handed", "several", "broken", "modes", "lasting", "forked", "held", "over",
					     "between", "stopped", "lost" };
	/* Beside the launches of another thread a long one is paid for in parts, and one that is stopped is a long one. */
	bool alone = strcmp(what, "over") == 0 || strcmp(what, "between") == 0;
	CUmodule module;
	CUstream stream;
	pthread_t thread;

	setlinebuf(stdout);
	client_open("libcuda.so.1");
	client_start();
	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	MUST(CU(cuModuleGetFunction)(&spin, module, "sim_spin") == CUDA_SUCCESS);
	launch_kernel = CU(cuLaunchKernel);
	stream = new_stream();
	if (!alone)
		thread = start_beside();
	if (strcmp(what, "unseen") == 0 && argc > 2)
		unseen(stream, argv[2]);
	for (unsigned int i = 0; i < sizeof(plays) / sizeof(plays[0]); i++)
		if (strcmp(what, names[i]) == 0)
			plays[i](stream);
	if (!alone)
		stop_beside(thread);
	printf("%.2f\n", share(stream));
	return 0;
}
