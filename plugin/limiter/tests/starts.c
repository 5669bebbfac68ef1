/* starts.c - what beginning costs: `starts init LIBRARY COUNT` and `starts exec ROUNDS PROGRAM…`.
 *
 * init: so many processes load the library and make a context at the same moment; prints the microseconds
 * that each took. exec: runs the program again and again; prints the microseconds of each run. */
#define _GNU_SOURCE
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

#define COUNT_MAX 1024

extern char **environ;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Nobody begins before the last one is there: the end of the pipe is the sign for all. */
static void begin(const char *library, int ready, int sign, double *took)
{
	double began;
	char none = 0;

	MUST(write(ready, &none, 1) == 1 && read(sign, &none, 1) == 0);
	began = now_us();
	client_open(library);
	client_start();
	*took = now_us() - began;
	MUST(write(ready, &none, 1) == 1 && read(STDIN_FILENO, &none, 1) == 0);
}

static void await(int ready, int count)
{
	char none;

	for (int i = 0; i < count; i++)
		MUST(read(ready, &none, 1) == 1);
}

/* All keep their contexts until the last one has his: the end of standard input ends them. */
static int init(const char *library, int count)
{
	int ready[2], sign[2], end[2], status;
	double *took = mmap(NULL, COUNT_MAX * sizeof(*took), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	MUST(count <= COUNT_MAX && took != MAP_FAILED);
	MUST(pipe(ready) == 0 && pipe(sign) == 0 && pipe(end) == 0);
	for (int i = 0; i < count; i++) {
		if (fork() != 0)
			continue;
		close(sign[1]);
		close(end[1]);
		MUST(dup2(end[0], STDIN_FILENO) == STDIN_FILENO);
		begin(library, ready[1], sign[0], &took[i]);
		_exit(0);
	}
	await(ready[0], count);
	close(sign[1]);
	await(ready[0], count);
	close(end[1]);
	for (int i = 0; i < count; i++)
		MUST(wait(&status) > 0 && status == 0);
	for (int i = 0; i < count; i++)
		printf("%.1f\n", took[i]);
	return 0;
}

static int exec(int rounds, char **words)
{
	for (int i = 0; i < rounds; i++) {
		double began = now_us();
		int status;
		pid_t pid;

		MUST(posix_spawn(&pid, words[0], NULL, NULL, words, environ) == 0);
		MUST(waitpid(pid, &status, 0) == pid && status == 0);
		printf("%.1f\n", now_us() - began);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "init") == 0)
		return init(argv[2], atoi(argv[3]));
	if (argc >= 4 && strcmp(argv[1], "exec") == 0)
		return exec(atoi(argv[2]), argv + 3);
	return 2;
}
