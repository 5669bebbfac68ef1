/* compute.c - programs that keep a card busy: `compute share NS DEPTH SECONDS [PROCESSES [AFTER]]`, of which
 * the first AFTER seconds are not measured, and others below.
 *
 * What is measured is work: kernels and their time on the simulated card, against the time that went by. That
 * begins before the first kernel is launched, and ends when one more is let in after the last is over: so what the
 * last ones cost has been paid for. A program that the machine keeps waiting, at whatever moment, is given
 * less for it and never more. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

typedef struct CUmod_st *CUmodule;
typedef struct CUgraph_st *CUgraph;

CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleGetFunction(void **out, CUmodule module, const char *name);
CUresult cuStreamCreate(CUstream *out, unsigned int flags);
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority);
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);
CUresult cuDeviceGetDevResource(CUdevice device, void *out, int type);
CUresult cuDevResourceGenerateDesc(void **out, void *all, unsigned int number);
CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned int flags, int priority);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned int flags);
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned int flags);

#define NS 1000000000ull

#define STREAMS 2
#define GRAPHS 600
#define RESOURCE_BYTES 144		/* of a CUdevResource */

struct shared {				/* between the processes of one run */
	int ready, over;
	uint64_t began, ended, count;
};

struct windows {			/* one after the other, with nothing between them */
	pthread_mutex_t lock;
	uint64_t began, length, count;
};

/* How a program launches: "share", plainly; "own", it asks for multiprocessors of its own choice; "none" and "other",
 * while no context or another one is current; "priority", in streams of the highest and the lowest one in turn;
 * "green" and "in-green", in a stream of a green context, with the primary one or the green one current; "legacy" and
 * "per-thread", in the default stream, by its handle and without one in turn. */
static const char *const ways[] = { "share", "own", "none", "other", "priority", "green", "in-green", "legacy",
				    "per-thread", NULL };
static const char *way = "share";
static __typeof__(&cuLaunchKernel) launch_kernel;
static void *spin;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS + (uint64_t)now.tv_nsec;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

static void load(void)
{
	CUmodule module;

	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	MUST(CU(cuModuleGetFunction)(&spin, module, "sim_spin") == CUDA_SUCCESS);
	launch_kernel = CU(cuLaunchKernel);
}

static bool is(const char *one)
{
	return strcmp(way, one) == 0;
}

static void start(void)
{
	client_open("libcuda.so.1");
	client_start();
	if (is("own")) {	/* whether the driver gives them does not matter */
		CUcontext context;

		CU(cuCtxCreate_v3)(&context, NULL, 1, 0, 0);
	}
	load();
}

static void launch(CUstream stream, uint64_t ns)
{
	void *params[] = { &ns };
	static unsigned int number;

	if (is("per-thread") && number++ % 2 == 0)
		MUST(CU(cuLaunchKernel_ptsz)(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL) == CUDA_SUCCESS);
	else
		MUST(launch_kernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
}

static void green_stream(CUstream *out)
{
	unsigned char resource[RESOURCE_BYTES];
	CUcontext context;
	CUgreenCtx green;
	void *description;

	MUST(CU(cuDeviceGetDevResource)(0, resource, 1) == CUDA_SUCCESS);
	MUST(CU(cuDevResourceGenerateDesc)(&description, resource, 1) == CUDA_SUCCESS);
	MUST(CU(cuGreenCtxCreate)(&green, description, 0, 1) == CUDA_SUCCESS);
	MUST(CU(cuGreenCtxStreamCreate)(out, green, 1, 0) == CUDA_SUCCESS);
	MUST(CU(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS);
	if (is("in-green"))
		MUST(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
}

/* The streams to launch to in turn; returns how many. */
static unsigned int make_streams(CUstream streams[STREAMS])
{
	int least, greatest;

	if (is("priority")) {
		MUST(CU(cuCtxGetStreamPriorityRange)(&least, &greatest) == CUDA_SUCCESS && greatest < least);
		MUST(CU(cuStreamCreateWithPriority)(&streams[0], 1, greatest) == CUDA_SUCCESS);
		MUST(CU(cuStreamCreateWithPriority)(&streams[1], 1, least) == CUDA_SUCCESS);
		return 2;
	}
	if (is("legacy")) {
		streams[0] = NULL;
		streams[1] = (CUstream)1;
		return 2;
	}
	if (is("per-thread"))
		streams[0] = (CUstream)2;
	else if (is("green") || is("in-green"))
		green_stream(&streams[0]);
	else
		MUST(CU(cuStreamCreate)(&streams[0], 0) == CUDA_SUCCESS);
	return 1;
}

/* What is current while streams of the first context are launched to. */
static void leave_context(void)
{
	CUcontext context = NULL;

	if (is("other"))
		MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
	else if (is("none"))
		MUST(CU(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS);
}

/* Launches kernels, so many before it waits for them, and tells of each when it was launched. Returns the first stream. */
static CUstream keep_busy(uint64_t ns, int depth, uint64_t until, void (*let_in)(void *to, uint64_t launched), void *to)
{
	CUstream streams[STREAMS];
	unsigned int number = make_streams(streams), next = 0;

	leave_context();
	while (now_ns() < until) {
		for (int i = 0; i < depth && now_ns() < until; i++) {
			uint64_t launched = now_ns();

			launch(streams[next++ % number], ns);
			let_in(to, launched);
		}
		for (unsigned int i = 0; i < number; i++)
			MUST(CU(cuStreamSynchronize)(streams[i]) == CUDA_SUCCESS);
	}
	return streams[0];
}

static void *shared_page(size_t size)
{
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	MUST(page != MAP_FAILED);
	return page;
}

static uint64_t measured_from;

static void add_work(void *to, uint64_t launched)
{
	struct shared *shared = to;
	uint64_t began = __atomic_load_n(&shared->began, __ATOMIC_SEQ_CST);

	if (launched < measured_from)
		return;
	__atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
	while ((began == 0 || launched < began) &&
	       !__atomic_compare_exchange_n(&shared->began, &began, launched, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* The percent of the card that the processes got together. */
static int share(uint64_t ns, int depth, double seconds, int processes, double after)
{
	struct shared *shared = shared_page(sizeof(*shared));
	CUstream stream;
	int status;

	for (int i = 0; i < processes; i++) {
		if (fork() != 0)
			continue;
		start();
		__atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < processes)
			pause_ms(1);
		measured_from = now_ns() + (uint64_t)(after * 1e9);
		stream = keep_busy(ns, depth, now_ns() + (uint64_t)(seconds * 1e9), add_work, shared);
		if (__atomic_add_fetch(&shared->over, 1, __ATOMIC_SEQ_CST) == processes) {
			launch(stream, 1);	/* is let in when all else has been paid for */
			shared->ended = now_ns();
		}
		_exit(0);
	}
	for (int i = 0; i < processes; i++)
		MUST(wait(&status) > 0 && status == 0);
	printf("%.2f\n", 100.0 * (double)(shared->count * ns) / (double)(shared->ended - shared->began));
	return 0;
}

static uint64_t kernel_ns;

/* A window ends where a kernel is let in, which is the first of the next one. */
static void add_to_window(void *to, uint64_t launched)
{
	struct windows *windows = to;
	uint64_t now;
	(void)launched;

	MUST(pthread_mutex_lock(&windows->lock) == 0);
	now = now_ns();
	if (windows->began == 0)
		windows->began = now;
	if (now - windows->began >= windows->length) {
		printf("%.2f\n", 100.0 * (double)(windows->count * kernel_ns) / (double)(now - windows->began));
		windows->began = now;
		windows->count = 0;
	}
	windows->count++;
	MUST(pthread_mutex_unlock(&windows->lock) == 0);
}

/* The percent that the processes got together in each window, until nobody reads;
 * `compute follow NS SECONDS [DEPTH [PROCESSES]]`. */
static int follow(uint64_t ns, double seconds, int depth, int processes)
{
	struct windows *windows = shared_page(sizeof(*windows));
	pthread_mutexattr_t shared;

	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&windows->lock, &shared);
	windows->length = (uint64_t)(seconds * 1e9);
	kernel_ns = ns;
	setlinebuf(stdout);
	for (int i = 1; i < processes; i++) {
		if (fork() != 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		break;
	}
	start();
	keep_busy(ns, depth, UINT64_MAX, add_to_window, windows);
	return 0;
}

/* A stream waits for a value that another stream writes after its own kernel, many times over. */
static int values(int rounds)
{
	CUstream one, other;
	CUdeviceptr at;

	start();
	MUST(CU(cuMemAlloc_v2)(&at, 4096) == CUDA_SUCCESS);
	MUST(CU(cuStreamCreate)(&one, 1) == CUDA_SUCCESS && CU(cuStreamCreate)(&other, 1) == CUDA_SUCCESS);
	for (int i = 1; i <= rounds; i++) {
		MUST(CU(cuStreamWaitValue32_v2)(one, at, (uint32_t)i, 1) == CUDA_SUCCESS);
		launch(one, 100000);
		launch(one, 1000);
		launch(other, 100000);
		MUST(CU(cuStreamWriteValue32_v2)(other, at, (uint32_t)i, 0) == CUDA_SUCCESS);
		MUST(CU(cuStreamSynchronize)(one) == CUDA_SUCCESS);
	}
	return 0;
}

static int capturing;

static void *beside(void *unused)
{
	CUstream stream;
	(void)unused;

	client_start();
	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	while (__atomic_load_n(&capturing, __ATOMIC_SEQ_CST))
		launch(stream, 200000);
	return NULL;
}

/* Threads launch and measure while another captures: the graph has the kernels, and nothing of ours. It
 * prints the percent that launches of the graph get. */
static int capture(void)
{
	uint64_t began = 0;
	pthread_t thread;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;
	size_t nodes;

	start();
	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	for (int i = 0; i < 3; i++)
		launch(stream, 1000);	/* one may be open when the capture begins */
	for (int mode = 0; mode < 3; mode++) {
		capturing = 1;
		MUST(pthread_create(&thread, NULL, beside, NULL) == 0);
		MUST(CU(cuStreamBeginCapture_v2)(stream, mode) == CUDA_SUCCESS);
		for (int i = 0; i < 100; i++) {
			launch(stream, 20000);
			if (i % 10 == 0)
				pause_ms(1);
		}
		MUST(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
		MUST(CU(cuGraphGetNodes)(graph, NULL, &nodes) == CUDA_SUCCESS && nodes == 100);
		__atomic_store_n(&capturing, 0, __ATOMIC_SEQ_CST);
		MUST(pthread_join(thread, NULL) == 0);
	}
	MUST(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
	for (int i = 0; i <= GRAPHS; i++) {	/* so many that what was saved up before them is a small part */
		MUST(CU(cuGraphLaunch)(exec, stream) == CUDA_SUCCESS);
		if (i == 0)
			began = now_ns();
	}
	printf("%.2f\n", 100.0 * GRAPHS * 2e6 / (double)(now_ns() - began));
	return 0;
}

/* A context ends with its kernel in flight: what ran until then is charged to the next one. It prints for
 * how many ms the next one's kernel was held. */
static int destroy(uint64_t ns)
{
	CUcontext first, second;
	uint64_t began;

	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS);
	MUST(CU(cuCtxCreate_v2)(&first, 0, 0) == CUDA_SUCCESS);
	load();
	launch(NULL, 10 * ns);
	pause_ms((long)(ns / 1000000));
	MUST(CU(cuCtxDestroy_v2)(first) == CUDA_SUCCESS);
	for (int i = 0; i < 100; i++) {	/* more than are known at once */
		MUST(CU(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
		if (i < 99)
			MUST(CU(cuCtxDestroy_v2)(second) == CUDA_SUCCESS);
	}
	load();
	began = now_ns();
	launch(NULL, 1000);
	printf("%.0f\n", (double)(now_ns() - began) / 1e6);
	return 0;
}

/* A context is made, launches a kernel and ends, which waits for the kernel; then the next. So many kernels of 1 us go
 * before it as `before` says, so that the segment is open. It prints the percent of the card that the first kernel had. */
static int renew(uint64_t ns, int before)
{
	CUcontext context;
	uint64_t began = 0;

	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
		load();
		for (int j = 0; j < before; j++)
			launch(NULL, 1000);
		MUST(before == 0 || CU(cuStreamSynchronize)(NULL) == CUDA_SUCCESS);
		if (i == 0)
			began = now_ns();
		launch(NULL, ns);
		if (i == 0)
			MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	}
	printf("%.2f\n", 100.0 * (double)ns / (double)(now_ns() - began));
	return 0;
}

/* More streams than there is room for, of all families; each stream ends with its work. */
static int streams(int rounds)
{
	CUstream stream[48];

	start();
	for (int i = 0; i < rounds; i++) {
		for (int j = 0; j < 48; j++) {
			MUST(CU(cuStreamCreate)(&stream[j], 1) == CUDA_SUCCESS);
			launch(stream[j], 1000);
			launch(stream[j], 1000);
		}
		for (int j = 0; j < 48; j++)
			MUST(CU(cuStreamDestroy_v2)(stream[j]) == CUDA_SUCCESS);
	}
	return 0;
}

static bool is_way(const char *what)
{
	for (const char *const *one = ways; *one != NULL; one++)
		if (strcmp(what, *one) == 0)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (is_way(what) && argc >= 5 && argc <= 7) {
		way = what;
		return share(strtoull(argv[2], NULL, 10), atoi(argv[3]), atof(argv[4]), argc > 5 ? atoi(argv[5]) : 1,
			     argc > 6 ? atof(argv[6]) : 0);
	}
	if (strcmp(what, "follow") == 0 && argc >= 4 && argc <= 6)
		return follow(strtoull(argv[2], NULL, 10), atof(argv[3]), argc > 4 ? atoi(argv[4]) : 1,
			      argc > 5 ? atoi(argv[5]) : 1);
	if (strcmp(what, "values") == 0 && argc == 3)
		return values(atoi(argv[2]));
	if (strcmp(what, "capture") == 0)
		return capture();
	if (strcmp(what, "destroy") == 0 && argc == 3)
		return destroy(strtoull(argv[2], NULL, 10));
	if (strcmp(what, "renew") == 0 && argc == 4)
		return renew(strtoull(argv[2], NULL, 10), atoi(argv[3]));
	if (strcmp(what, "streams") == 0 && argc == 3)
		return streams(atoi(argv[2]));
	return 2;
}
