/* hidden.c - programs that keep what they run from being measured, each in a way of its own: `hidden WAY`. It prints
 * the percent of the card that its long kernels got until they were paid for. */
#define _GNU_SOURCE
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "client.h"

typedef struct CUgraph_st *CUgraph;

CUresult cuModuleGetFunction(void **out, CUmodule module, const char *name);
CUresult cuStreamCreate(CUstream *out, unsigned int flags);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned int flags);

#define SHORT_NS 10000u
#define LONG_MS 200u
#define TIMES 3
#define STREAMS 40			/* more than are known at once */
#define CONTEXTS 40			/* more than were */
#define NOT_READY 600

static __typeof__(&cuLaunchKernel) launch_kernel;
static __typeof__(&cuLaunchKernelEx) launch_kernel_ex;
static __typeof__(&cuStreamSynchronize) synchronize;
static CUstream stream, other;
static void *spin;

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void load(void)
{
	CUmodule module;

	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	MUST(CU(cuModuleGetFunction)(&spin, module, "sim_spin") == CUDA_SUCCESS);
	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
}

static CUresult launch(uint64_t ns)
{
	void *params[] = { &ns };

	return launch_kernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static CUresult launch_long(void)
{
	return launch(LONG_MS * 1000000ull);
}

/* A handler of this program runs before each instruction; it knows when the driver's function begins. */
static uintptr_t begins;
static void (*beginning)(void);

static void trap(int number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	(void)number;
	(void)info;

	if ((uintptr_t)registers[REG_RIP] != begins)
		return;
	registers[REG_EFL] &= ~0x100ll;
	beginning();
}

static void step_to(const char *name, void (*then)(void))
{
	struct sigaction action = { .sa_sigaction = trap, .sa_flags = SA_SIGINFO };
	struct link_map *map;

	MUST(dlinfo(client_library, RTLD_DI_LINKMAP, &map) == 0);
	while (map->l_prev != NULL)
		map = map->l_prev;
	for (; map != NULL; map = map->l_next)
		if (strstr(map->l_name, "libcuda") != NULL && (void *)map != client_library)
			begins = (uintptr_t)dlsym(map, name);
	MUST(begins != 0);
	beginning = then;
	sigaction(SIGTRAP, &action, NULL);
}

static void step(void)
{
	__asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq" : : : "memory", "cc");
}

static void stop(void)
{
	__asm__ volatile("pushfq; andl $~0x100, (%%rsp); popfq" : : : "memory", "cc");
}

/* It is known to take little, and so a segment begins that has more than one launch. */
static void learn(void)
{
	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	for (int i = 0; i < 6; i++)
		MUST(launch(SHORT_NS) == CUDA_SUCCESS && synchronize(stream) == CUDA_SUCCESS);
	MUST(launch(SHORT_NS) == CUDA_SUCCESS);
}

static void event(void)
{
	CUevent done;

	learn();
	MUST(CU(cuEventCreate)(&done, 0) == CUDA_SUCCESS && launch_long() == CUDA_SUCCESS);
	MUST(CU(cuEventRecord)(done, stream) == CUDA_SUCCESS && CU(cuEventSynchronize)(done) == CUDA_SUCCESS);
}

static void query(void)
{
	learn();
	MUST(launch_long() == CUDA_SUCCESS);
	while (CU(cuStreamQuery)(stream) == NOT_READY)
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

/* As one that looks at a flag which its kernel sets. */
static void flag(void)
{
	learn();
	MUST(launch_long() == CUDA_SUCCESS);
	nanosleep(&(struct timespec){ 0, (LONG_MS + 20) * 1000000 }, NULL);
}

/* Nothing is hidden: short kernels, then nothing for a second. */
static void idle(void)
{
	learn();
	nanosleep(&(struct timespec){ 1, 0 }, NULL);
	MUST(synchronize(stream) == CUDA_SUCCESS);
}

static void destroyed(void)
{
	learn();
	MUST(launch_long() == CUDA_SUCCESS && CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
	nanosleep(&(struct timespec){ 0, (LONG_MS + 20) * 1000000 }, NULL);
}

static void waited(void)
{
	MUST(launch_long() == CUDA_SUCCESS && synchronize(stream) == CUDA_SUCCESS);
}

/* There is no memory for anything when the first kernel is launched. */
static void before_memory(void)
{
	struct rlimit room, none = { 4096, 0 };

	MUST(getrlimit(RLIMIT_AS, &room) == 0);
	none.rlim_max = room.rlim_max;
	MUST(setrlimit(RLIMIT_AS, &none) == 0);
	launch(SHORT_NS);
	MUST(setrlimit(RLIMIT_AS, &room) == 0);
}

static void before_contexts(void)
{
	CUcontext context;

	for (int i = 0; i < CONTEXTS; i++) {
		MUST(launch(SHORT_NS) == CUDA_SUCCESS && CU(cuCtxPopCurrent_v2)(&context) == CUDA_SUCCESS);
		MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
		load();
	}
}

/* All that are known have work that does not end. */
static void before_streams(void)
{
	CUdeviceptr at;

	MUST(CU(cuMemAlloc_v2)(&at, 4096) == CUDA_SUCCESS);
	for (int i = 0; i < STREAMS; i++) {
		MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
		MUST(CU(cuStreamWaitValue32_v2)(stream, at, 1, 1) == CUDA_SUCCESS);
		if (i < STREAMS - 8)
			MUST(launch(SHORT_NS) == CUDA_SUCCESS && launch(SHORT_NS) == CUDA_SUCCESS);
	}
	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
}

static sigjmp_buf back;

static void leave(void)
{
	siglongjmp(back, 1);
}

/* Launches that do not come back: each has a segment of the stream. */
static void before_jump(void)
{
	step_to("cuLaunchKernel", leave);
	for (int i = 0; i < 4; i++)
		MUST(launch(SHORT_NS) == CUDA_SUCCESS && synchronize(stream) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++)
		if (sigsetjmp(back, 1) == 0) {
			step();
			launch(SHORT_NS);
		}
}

static void end_capture(void)
{
	CUgraph graph;

	CU(cuStreamEndCapture)(stream, &graph);
}

static void before_capture(void)
{
	step_to("cuLaunchKernel", end_capture);
}

/* The capture ends between the hook's look and the launch. */
static void capture(void)
{
	MUST(CU(cuStreamBeginCapture_v2)(stream, 2) == CUDA_SUCCESS);
	step();
	launch_long();
	stop();
	synchronize(stream);
}

static struct CUlaunch_config config = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };

static void change_config(void)
{
	config.stream = stream;
}

static void before_config(void)
{
	step_to("cuLaunchKernelEx", change_config);
	waited();
}

/* The stream of the launch changes between the hook's look and the launch. */
static void configured(void)
{
	uint64_t ns = LONG_MS * 1000000ull;
	void *params[] = { &ns };

	config.stream = other;
	step();
	MUST(launch_kernel_ex(&config, spin, params, NULL) == CUDA_SUCCESS);
	stop();
	MUST(synchronize(stream) == CUDA_SUCCESS && synchronize(other) == CUDA_SUCCESS);
}

/* The next launch has charged what was left open, and a process of its own is let in when all that is owed is paid. */
static void pay(void)
{
	int status;

	learn();
	MUST(synchronize(stream) == CUDA_SUCCESS);
	if (fork() == 0)
		execl("/proc/self/exe", "hidden", "next", (char *)NULL);
	MUST(wait(&status) > 0 && status == 0);
}

static const struct {
	const char *name;
	void (*before)(void), (*once)(void);
} ways[] = {
	{ "event", NULL, event },	{ "query", NULL, query },
	{ "flag", flag, flag },		{ "destroyed", NULL, destroyed },
	{ "idle", NULL, idle },		{ "memory", before_memory, waited },
	{ "contexts", before_contexts, waited }, { "streams", before_streams, waited },
	{ "jump", before_jump, waited }, { "capture", before_capture, capture },
	{ "config", before_config, configured },
};

int main(int argc, char **argv)
{
	double began, took;

	client_open("libcuda.so.1");
	client_start();
	launch_kernel = CU(cuLaunchKernel);
	launch_kernel_ex = CU(cuLaunchKernelEx);
	synchronize = CU(cuStreamSynchronize);
	load();
	if (argc == 2 && strcmp(argv[1], "next") == 0)
		return launch(SHORT_NS);
	MUST(CU(cuStreamCreate)(&other, 1) == CUDA_SUCCESS);
	for (unsigned int i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		if (argc != 2 || strcmp(argv[1], ways[i].name) != 0)
			continue;
		if (ways[i].before != NULL)
			ways[i].before();
		began = now_s();
		for (int j = 0; j < TIMES; j++)
			ways[i].once();
		pay();
		took = now_s() - began;
		printf("%.2f\n", TIMES * LONG_MS / 10.0 / took);
		return 0;
	}
	return 2;
}
