/* stepped.c - kills a process at one instruction after the other of the limiter's: `stepped POINTS`.
 *
 * A child allocates and frees, step by step; of the instructions of the limiter's library in that POINTS are chosen, and
 * at each a child of its own is killed. Within a second this process, which uses the card too, must be able to take all
 * that the child had. It says how many instructions there were. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

#define BYTES (10 * MIB)
#define PATIENCE_NS 1000000000ull

static uint64_t code_begin, code_end;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int child(void)
{
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuMemFree_v2) release;
	CUdeviceptr at;

	client_open("libcuda.so.1");
	client_start();
	alloc = CU(cuMemAlloc_v2);
	release = CU(cuMemFree_v2);
	MUST(alloc(&at, BYTES) == CUDA_SUCCESS && release(at) == CUDA_SUCCESS);
	MUST(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	raise(SIGSTOP);
	MUST(alloc(&at, BYTES) == CUDA_SUCCESS && release(at) == CUDA_SUCCESS);
	raise(SIGSTOP);
	return 0;
}

/* Where the library's code lies in the child. */
static void find_code(pid_t pid)
{
	char path[64], line[512], rights[8];
	unsigned long begin, end;
	FILE *maps;

	code_begin = code_end = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "r");
	MUST(maps != NULL);
	while (fgets(line, sizeof(line), maps) != NULL) {
		if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) != 3 || strstr(line, "/lib/libcuda.so.1") == NULL ||
		    strchr(rights, 'x') == NULL || code_end != 0)
			continue;
		code_begin = begin;
		code_end = end;
	}
	fclose(maps);
	MUST(code_end != 0);
}

static pid_t start_child(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execl("/proc/self/exe", "stepped", "child", (char *)NULL);
		_exit(3);
	}
	MUST(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	find_code(pid);
	return pid;
}

/* Until so many instructions of the library were done; returns how many. */
static long step(pid_t pid, long most)
{
	long done = 0;
	int status;

	while (done < most) {
		uint64_t at;

		MUST(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid);
		MUST(WIFSTOPPED(status));
		if (WSTOPSIG(status) == SIGSTOP)
			break;
		MUST(WSTOPSIG(status) == SIGTRAP);
		at = (uint64_t)ptrace(PTRACE_PEEKUSER, pid, offsetof(struct user_regs_struct, rip), NULL);
		if (at >= code_begin && at < code_end)
			done++;
	}
	return done;
}

static void end(pid_t pid)
{
	int status;

	MUST(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

/* All that was free before is to be had, at once or within a second: before a refusal it is looked who lives. */
static void check(uint64_t free_bytes, long point)
{
	uint64_t began = now_ns();
	CUdeviceptr at;
	CUresult ret;

	do
		ret = CU(cuMemAlloc_v2)(&at, free_bytes);
	while (ret != CUDA_SUCCESS && now_ns() - began < PATIENCE_NS);
	if (ret != CUDA_SUCCESS) {
		printf("killed at instruction %ld: %llu bytes free, not %llu\n", point,
		       (unsigned long long)client_free(), (unsigned long long)free_bytes);
		exit(1);
	}
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == free_bytes);
}

int main(int argc, char **argv)
{
	long points = argc > 1 ? atol(argv[1]) : 0, all;
	uint64_t free_bytes;
	pid_t pid;

	if (points == 0)
		return child();
	client_open("libcuda.so.1");
	client_start();
	free_bytes = client_free();
	pid = start_child();
	all = step(pid, 1000000);
	end(pid);
	check(free_bytes, all);
	for (long i = 0; i < points; i++) {
		long point = 1 + i * all / points;

		pid = start_child();
		step(pid, point);
		end(pid);
		check(free_bytes, point);
	}
	printf("%ld\n", all);
	return 0;
}
