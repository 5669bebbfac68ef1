/* memory_client.c - a program in a pod that asks the driver for card memory; it links nothing of it.
 *
 *   memory_client MIB...          ask for each amount in turn, keep what it gets; a status of CUDA for each
 *   memory_client --keep MIB      ask once, print the status, keep what it got until it is killed
 *   memory_client --draw MIB      take memory for graphics, print 0 or why not, keep it until it is killed
 *   memory_client --rob MIB       a child asks and keeps; wipe its count by ptrace, then ask; a status for each
 *   memory_client --found MIB     as --keep, by the driver's own function, found in this process by the loader's list
 *   memory_client --beside MIB    as --keep, by a copy of the driver in /tmp, when the limiter has been asked before
 *   memory_client --watch MIB     ask and give back ten times a second; the time in ms and the status at each change
 *
 * The variable DRIVER names the file that it opens in place of libcuda.so.1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
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

static void begin(void)
{
	void *context;
	int status = function("cuInit")(0);

	if (status == 0)
		status = function("cuDevicePrimaryCtxRetain")(&context, 0);
	if (status == 0)
		status = function("cuCtxSetCurrent")(context);
	if (status != 0) {
		printf("start %d\n", status);
		exit(1);
	}
}

static void *load(const char *file)
{
	void *found = dlopen(file, RTLD_NOW);

	if (found == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	return found;
}

static void start(void)
{
	const char *named = getenv("DRIVER");

	driver = load(named != NULL ? named : "libcuda.so.1");
	begin();
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

static void ask(unsigned long long bytes)
{
	unsigned long long at;

	printf("%d\n", function("cuMemAlloc_v2")(&at, bytes));
	fflush(stdout);
}

static void wipe(const char *maps, const char *memory)
{
	static char zeros[1 << 16];
	unsigned long from, to;
	char line[4096];
	FILE *file = fopen(maps, "r");
	int target = open(memory, O_RDWR);

	while (file != NULL && fgets(line, sizeof line, file) != NULL) {
		if (strstr(line, "/run/edgegpu/container/usage") == NULL || sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		for (; from < to; from += sizeof zeros)
			if (pwrite(target, zeros, to - from < sizeof zeros ? to - from : sizeof zeros, (off_t)from) < 0)
				perror("pwrite");
	}
}

static void rob(unsigned long long bytes)
{
	char maps[64], memory[64];
	pid_t child = fork();

	if (child == 0) {
		start();
		ask(bytes);
		for (;;)
			pause();
	}
	sleep(2);
	if (ptrace(PTRACE_ATTACH, child, NULL, NULL) != 0 || waitpid(child, NULL, 0) != child) {
		perror("ptrace");
		exit(2);
	}
	snprintf(maps, sizeof maps, "/proc/%d/maps", child);
	snprintf(memory, sizeof memory, "/proc/%d/mem", child);
	wipe(maps, memory);
	ptrace(PTRACE_DETACH, child, NULL, NULL);
	start();
	ask(bytes);
	for (;;)
		pause();
}

static void *own_driver(void)
{
	struct link_map *one;

	if (dlinfo(driver, RTLD_DI_LINKMAP, &one) != 0)
		exit(2);
	while (one->l_prev != NULL)
		one = one->l_prev;
	while (one != NULL && strstr(one->l_name, "/run/edgegpu/container/driver/libcuda.so") == NULL)
		one = one->l_next;
	return load(one != NULL ? one->l_name : "no driver in this process");
}

static void keep_past(unsigned long long bytes, void *past)
{
	driver = past;
	begin();
	ask(bytes);
	for (;;)
		pause();
}

static void draw(unsigned int mib)
{
	void *graphics = dlopen("libGLX_nvidia.so.0", RTLD_NOW);
	int (*take)(unsigned int) = graphics != NULL ? (int (*)(unsigned int))dlsym(graphics, "sim_draw") : NULL;

	if (take == NULL)
		printf("%s\n", dlerror());
	else
		printf("%d\n", take(mib));
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	int keep;

	if (argc == 3 && strcmp(argv[1], "--rob") == 0)
		rob(strtoull(argv[2], NULL, 10) << 20);
	if (argc == 3 && strcmp(argv[1], "--draw") == 0)
		draw((unsigned int)atoi(argv[2]));
	start();
	if (argc == 3 && strcmp(argv[1], "--found") == 0)
		keep_past(strtoull(argv[2], NULL, 10) << 20, own_driver());
	if (argc == 3 && strcmp(argv[1], "--beside") == 0)
		keep_past(strtoull(argv[2], NULL, 10) << 20, load("/tmp/libcuda.so.1"));
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
