/* main.c - `edgegpu-selftest WORK`: does the limiter hold on this machine, and what does it cost?
 *
 * For each card that WORK/request names, a process takes a little card memory: first by the driver
 * itself, then with the limiter in its way and a limit that leaves room for three allocations of four. It also
 * loads a module and times a tenth of a second of kernels, which are held to CORE_PERCENT there. While that
 * one holds what it got, a second process tries. Each process is bounded in time, none takes
 * more than a context and 128 MiB, and a card that is nearly full is left alone. What was seen is
 * printed as JSON and stands in WORK/result; the device plugin judges it (edgegpu_plugin/selftest/observation.py).
 *
 * Exit status: 0 there is a result, 1 there is none, 2 the request cannot be read. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "selftest.h"
#include "usage.h"

#define LOOK_NS 2000000

static struct setup setup;
static struct card_outcome cards[CARDS_TRIED];
static struct run *seen;		/* of the first process and of the second; shared with both */
static int go_end = -1;			/* whose closing is the word to go on: no child keeps it open */

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Not before others, as the plugin is while kubelet starts, and the first to go when memory is short. */
static void be_modest(void)
{
	struct sched_param none = { 0 };
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	sched_setscheduler(0, SCHED_OTHER, &none);
	setpriority(PRIO_PROCESS, 0, 0);
	if (fd >= 0) {
		if (write(fd, "800", 3) < 0)
			perror("edgegpu-selftest: oom_score_adj");
		close(fd);
	}
}

/* Nothing of the caller's environment chooses cards, servers or libraries. */
static void set_environment(const char *card)
{
	clearenv();
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);	/* the driver starts nvidia-modprobe */
	setenv("CUDA_VISIBLE_DEVICES", card, 1);
	setenv("CUDA_CACHE_DISABLE", "1", 1);
}

static pid_t begin(const char *card)
{
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(setup.seconds + 5);	/* should the parent be stopped */
		if (go_end >= 0)
			close(go_end);
		set_environment(card);
	}
	return child;
}

static bool has_ended(pid_t child, struct outcome *out)
{
	int status;

	if (waitpid(child, &status, WNOHANG) != child)
		return false;
	out->ended = WIFSIGNALED(status) ? ENDED_SIGNAL : ENDED_EXIT;
	out->number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
	return true;
}

/* Until the process has ended, or is at a step; false: it has ended. One that is late is killed, and
 * left behind where the kernel cannot end it: it may hang in the driver. */
static bool wait_for(pid_t child, enum step step, const struct run *run, double until_s, struct outcome *out)
{
	const struct timespec pause = { 0, LOOK_NS };

	while (now_s() < until_s) {
		if (has_ended(child, out))
			return false;
		if (step < STEP_DONE && __atomic_load_n(&run->step, __ATOMIC_ACQUIRE) >= step)
			return true;
		nanosleep(&pause, NULL);
	}
	kill(child, SIGKILL);
	for (double end_s = now_s() + 2; now_s() < end_s && !has_ended(child, out);)
		nanosleep(&pause, NULL);
	out->ended = ENDED_LATE;
	out->number = (int)setup.seconds;
	return false;
}

static void run_second(const char *card, const struct libraries *libraries, struct outcome *out)
{
	pid_t child;

	memset(&seen[1], 0, sizeof(seen[1]));
	child = begin(card);
	if (child == 0)
		program_second(libraries, &seen[1]);
	if (child > 0)
		wait_for(child, STEP_DONE, &seen[1], now_s() + setup.seconds, out);
	out->run = seen[1];
}

/* second: NULL where there is to be none. */
static void run(const char *card, const struct libraries *libraries, struct outcome *out, struct outcome *second)
{
	double until_s = now_s() + setup.seconds;
	pid_t child;
	bool holds;
	int go[2];

	if (pipe(go) < 0)
		return;
	memset(&seen[0], 0, sizeof(seen[0]));
	go_end = go[1];
	child = begin(card);
	if (child == 0)
		program_first(libraries, &seen[0], go[0], second == NULL);
	close(go[0]);
	holds = child > 0 && wait_for(child, STEP_HOLD, &seen[0], until_s, out);
	if (holds && second != NULL)
		run_second(card, libraries, second);
	close(go[1]);
	go_end = -1;
	if (holds)
		wait_for(child, STEP_DONE, &seen[0], now_s() + setup.seconds, out);
	out->run = seen[0];
}

static bool write_file(const char *name, const char *content, off_t size)
{
	char path[PATH_ROOM + 16];
	int fd;
	bool done;

	snprintf(path, sizeof(path), "%s/%s", setup.work, name);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	done = write(fd, content, strlen(content)) == (ssize_t)strlen(content) &&
	       (size == 0 || ftruncate(fd, size) == 0);
	close(fd);
	return done;
}

/* A container's files, as the plugin makes them: room for a context and for three allocations, a fifth of the time. */
static bool make_container(const char *card, uint64_t context_bytes)
{
	char limits[256];

	snprintf(limits, sizeof(limits), "edgegpu-limits 1\ncard %s memory_bytes=%llu context_bytes=%llu core_percent=%d policy=strict\n", card,
		 (unsigned long long)context_bytes + PAYLOAD, (unsigned long long)context_bytes, CORE_PERCENT);
	return write_file("limits", limits, 0) && write_file("usage", "", sizeof(struct usage));
}

static void try_card(unsigned int number, const struct libraries *driver, const struct libraries *limiter)
{
	const char *card = setup.cards[number];
	struct card_outcome *out = &cards[number];
	int64_t context;

	run(card, driver, &out->native, NULL);
	if (out->native.ended != ENDED_EXIT || out->native.number != 0)
		return;
	context = out->native.run.context_bytes;
	if (make_container(card, context < 0 ? 256 * MIB : (uint64_t)context))
		run(card, limiter, &out->held, &out->second);
}

static bool make_libraries(struct libraries *driver, struct libraries *limiter)
{
	char path[PATH_ROOM + 32];
	int cuda, nvml;

	snprintf(driver->cuda, sizeof(driver->cuda), "%s/libcuda.so.1", setup.driver);
	snprintf(driver->nvml, sizeof(driver->nvml), "%s/libnvidia-ml.so.1", setup.driver);
	snprintf(path, sizeof(path), "%s/libcuda.so.1", setup.limiter);
	cuda = stamp_library(path, setup.work, setup.driver);
	snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", setup.limiter);
	nvml = stamp_library(path, setup.work, setup.driver);
	snprintf(limiter->cuda, sizeof(limiter->cuda), "/proc/self/fd/%d", cuda);
	snprintf(limiter->nvml, sizeof(limiter->nvml), "/proc/self/fd/%d", nvml);
	return cuda >= 0 && nvml >= 0;
}

int main(int argc, char **argv)
{
	struct libraries driver, limiter;
	double until_s = now_s() + ALL_S;

	if (argc != 2 || !request_read(argv[1], &setup)) {
		fprintf(stderr, "edgegpu-selftest: cannot read %s/request; `edgegpu selftest` writes it\n",
			argc > 1 ? argv[1] : "WORK");
		return 2;
	}
	be_modest();
	seen = mmap(NULL, 2 * sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (seen == MAP_FAILED || !make_libraries(&driver, &limiter)) {
		fprintf(stderr, "edgegpu-selftest: cannot copy the limiter's libraries of %s\n", setup.limiter);
		return 1;
	}
	for (unsigned int i = 0; i < setup.count; i++)
		cards[i].native.ended = cards[i].held.ended = cards[i].second.ended = NOT_BEGUN;
	for (unsigned int i = 0; i < setup.count && now_s() < until_s; i++)
		try_card(i, &driver, &limiter);
	if (!answer_write(&setup, cards)) {
		fprintf(stderr, "edgegpu-selftest: cannot write %s/result\n", setup.work);
		return 1;
	}
	return 0;
}
