/* scribbled.c - one process reserves while another writes into the usage file: `scribbled FOLDER`.
 *
 * What one was given, by its own sum, stays within the limit, and no call of it hangs or crashes. It says how often it
 * was given something. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../common/usage_file.h"
#include "must.h"
#include "own_folder.h"

#define SECONDS 60
#define ROUNDS 1000000
#define ENOUGH_SECONDS 4		/* on a machine that has other work */
#define LIMIT 100000
#define SLOTS 3				/* the first ones: where the process that reserves has its own */
#define WORDS(bytes) ((bytes) / sizeof(uint64_t))

static unsigned int draw(void)
{
	static unsigned int drawn = 1;

	drawn = drawn * 1664525 + 1013904223;
	return drawn >> 8;
}

/* Most of it makes less count. What makes more count does not stay, or nothing would be given. */
static void scribble(struct usage *map)
{
	uint64_t *words = (uint64_t *)map, first = WORDS(offsetof(struct usage, all));

	for (unsigned int i = 0;; i++) {
		uint64_t in_slots = first + draw() % WORDS(SLOTS * sizeof(struct usage_slot));
		uint64_t anywhere = draw() % WORDS(sizeof(*map));

		__atomic_store_n(&map->all[draw() % SLOTS].cards[0].bytes, 0, __ATOMIC_RELAXED);
		if (i % 16 == 0)
			__atomic_store_n(&words[in_slots], 0, __ATOMIC_RELAXED);
		if (i % 64 == 0)
			__atomic_store_n(&words[in_slots], (uint64_t)draw() << draw() % 40, __ATOMIC_RELAXED);
		if (i % 4096 == 0)
			__atomic_store_n(&words[anywhere], (uint64_t)draw() << draw() % 40, __ATOMIC_RELAXED);
		if (i % 1024 == 0)
			map->high = draw() % 8;
		if (i % 1024 == 65)
			memset(map->all, 0, sizeof(map->all));
	}
}

static void make_file(void)
{
	char path[512];
	int fd;

	MUST(setting_path(path, sizeof(path), test_folder, "usage"));
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	MUST(fd >= 0 && ftruncate(fd, sizeof(struct usage)) == 0);
	close(fd);
}

static pid_t start_scribbler(void)
{
	int ready[2];
	pid_t child;
	char byte;

	MUST(pipe(ready) == 0);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(SECONDS);
		MUST(write(ready[1], "r", 1) == 1);
		scribble(usage_map());
	}
	MUST(child > 0 && read(ready[0], &byte, 1) == 1);
	return child;
}

int main(int argc, char **argv)
{
	uint64_t granted = 0;
	uint8_t uuid[16] = { 9 };
	int card, status, times = 0;
	time_t began;
	pid_t child;

	if (argc < 2)
		return 2;
	alarm(SECONDS);
	test_folder = argv[1];
	make_file();
	card = usage_card(uuid);
	MUST(card == 0 && usage_reserve(card, 1, LIMIT));
	usage_release(card, 1);
	child = start_scribbler();
	began = time(NULL);
	for (int i = 0; i < ROUNDS && time(NULL) - began <= ENOUGH_SECONDS; i++) {
		uint64_t bytes = 1 + draw() % (LIMIT / 8);

		if (usage_reserve(card, bytes, LIMIT)) {
			granted += bytes;
			times++;
		} else {
			usage_release(card, granted);
			granted = 0;
		}
		MUST(granted <= LIMIT);
	}
	MUST(kill(child, SIGKILL) == 0 && wait(&status) == child && WTERMSIG(status) == SIGKILL);
	printf("%d\n", times);
	return 0;
}
