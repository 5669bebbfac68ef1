/* unread.c - a process that cannot read its limits any more: `unread FOLDER`, without a driver. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../common/limits.h"
#include "must.h"
#include "own_folder.h"

#define BEFORE 1000
#define AFTER 200

/* As the plugin does it. */
static void write_limits(int bytes)
{
	char command[512];

	snprintf(command, sizeof(command), "cd '%s' && echo 'edgegpu-limits 1\ncard GPU-09000000-0000-0000-0000-000000000000 memory_bytes=%d core_percent=50' "
		 "> limits.new && mv limits.new limits", test_folder, bytes);
	MUST(system(command) == 0);
}

static void descriptors(rlim_t number)
{
	struct rlimit limit;

	MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = number;
	MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* For so long a program asks again and again. */
static void use(const struct card *card, int ms)
{
	for (; ms > 0; ms -= 50) {
		limits_room(card);
		usleep(50000);
	}
}

static void is(const struct card *card, uint64_t room, unsigned int core)
{
	MUST(limits_room(card) == room && limits_core(card) == core);
}

static void replaced(const struct card *card)
{
	write_limits(BEFORE);
	use(card, 400);
	is(card, BEFORE, 50);
	descriptors(0);
	use(card, 1500);
	is(card, BEFORE, 50);		/* the file that was read is still there */
	descriptors(64);
	write_limits(AFTER);
	descriptors(0);
	use(card, 1500);
	is(card, 0, 1);			/* another one is there */
	descriptors(64);
	use(card, 400);
	is(card, AFTER, 50);
}

static void removed(const struct card *card)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/limits", test_folder);
	MUST(unlink(path) == 0);
	use(card, 300);
	is(card, AFTER, 50);
	use(card, 1200);
	is(card, 0, 1);
	write_limits(BEFORE);
	use(card, 400);
	is(card, BEFORE, 50);
}

int main(int argc, char **argv)
{
	uint8_t uuid[16];
	struct card *card;

	if (argc < 2)
		return 2;
	test_folder = argv[1];
	write_limits(BEFORE);
	MUST(limits_uuid("GPU-09000000-0000-0000-0000-000000000000", uuid));
	card = limits_card(uuid);
	MUST(card_index(card) == 0);
	replaced(card);
	removed(card);
	return 0;
}
