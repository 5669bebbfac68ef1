/* unit.c - the ledger, the limits file and the usage file by themselves, without a driver: `unit FOLDER`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/ledger.h"
#include "../common/limits.h"
#include "../common/settings.h"
#include "../common/usage_file.h"

#define MUST(what)                                                                                \
	do {                                                                                      \
		if (!(what)) {                                                                    \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);        \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#define KEYS 4096

static const char *test_folder;

const char *setting_folder(void)
{
	return test_folder;
}

_Bool setting_path(char *out, unsigned long size, const char *folder, const char *name)
{
	return (unsigned long)snprintf(out, size, "%s/%s", folder, name) < size;
}

static unsigned int drawn = 1;

static unsigned int draw(void)
{
	drawn = drawn * 1664525 + 1013904223;
	return drawn >> 8;
}

static uint64_t swept;

static void sweep(const struct ledger_entry *entry)
{
	swept += entry->bytes;
}

/* Against a plain array. */
static void ledger(void)
{
	static uint64_t model[KEYS];
	struct ledger_entry entry;
	uint64_t odd = 0;

	for (int i = 0; i < 200000; i++) {
		uint64_t key = draw() % KEYS;

		if (model[key] != 0) {
			MUST(ledger_take(LEDGER_POINTER, key << 9, &entry) && entry.bytes == model[key]);
			model[key] = 0;
		} else {
			model[key] = 1 + draw();
			MUST(ledger_put((struct ledger_entry){ .key = key << 9, .bytes = model[key],
							       .of = 1 + key % 2, .references = 1,
							       .kind = LEDGER_POINTER }));
		}
	}
	for (uint64_t key = 0; key < KEYS; key++) {
		MUST(ledger_has(LEDGER_POINTER, key << 9) == (model[key] != 0));
		MUST(!ledger_has(LEDGER_ARRAY, key << 9));
		odd += key % 2 == 1 ? model[key] : 0;
	}
	ledger_take_context(2, sweep);
	MUST(swept == odd);
	for (uint64_t key = 0; key < KEYS; key++)
		MUST(ledger_has(LEDGER_POINTER, key << 9) == (model[key] != 0 && key % 2 == 0));
}

#define UUID "GPU-00112233-4455-6677-8899-aabbccddeeff"

static int parsed(const char *text, struct limit *out)
{
	char copy[1024];

	snprintf(copy, sizeof(copy), "%s", text);
	return limits_parse(copy, out, 2);
}

static void limits(void)
{
	struct limit out[2];

	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 context_bytes=3 core=30\n", out) == 1);
	MUST(out[0].memory_bytes == 7 && out[0].context_bytes == 3 && out[0].uuid[15] == 0xff);
	MUST(parsed("edgegpu-limits 1\n\nnew word\ncard " UUID " memory_bytes=0\n", out) == 1);
	MUST(parsed("edgegpu-limits 1\n", out) == 0);
	MUST(parsed("", out) == -1);
	MUST(parsed("edgegpu-limits 2\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID "\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID "0 memory_bytes=1\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=-1\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=99999999999999999999\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=1x\n", out) == -1);
	for (int i = 0; i < 100000; i++) {	/* no text makes it read or write where it must not */
		static const char bits[] = "card \nGPU-0f memory_bytes=context1 9edgegpu-limits";
		char text[128] = "edgegpu-limits 1\n";
		unsigned int at = 17, length = 17 + draw() % 100;

		while (at < length)
			text[at++] = bits[draw() % (sizeof(bits) - 1)];
		limits_parse(text, out, 2);
	}
}

static void write_usage(const void *bytes, size_t size)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/usage", test_folder);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	MUST(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	close(fd);
}

static void reserve_some(void)
{
	struct usage_process list[4];
	uint8_t uuid[16] = { 9 };
	int card = usage_card(uuid);

	for (int i = 0; i < 3; i++)
		if (usage_reserve(card, 1000, 2000))
			MUST(usage_total(card) >= 1000);
	usage_processes(card, list, 4);
	usage_release(card, 1000);
	usage_contexts(card, 1);
}

/* Whatever stands in the file: no crash, no hang, and never more than the limit from us. */
static void garbage(void)
{
	struct usage *file = malloc(sizeof(*file));
	int status;

	for (int i = 0; i < 60; i++) {
		memset(file, 0, sizeof(*file));
		for (unsigned int at = 0; at < sizeof(*file); at++)
			if (i % 2 == 0 || draw() % 64 == 0)
				((unsigned char *)file)[at] = (unsigned char)draw();
		if (i % 3 != 0) {
			file->magic = USAGE_MAGIC;
			file->version = USAGE_VERSION;
			file->size = sizeof(*file);
			file->slots = USAGE_SLOTS;
			file->all[draw() % USAGE_SLOTS].tag = 0;
		}
		write_usage(file, sizeof(*file));
		if (fork() == 0) {
			alarm(20);
			reserve_some();
			_exit(0);
		}
		MUST(wait(&status) > 0 && status == 0);
	}
	free(file);
}

/* A lock that another process holds and does not give: nothing is counted past it, and the wait ends. */
static void held_lock(int card)
{
	struct usage *map = usage_map();
	int ready[2], status;
	pid_t child;
	char byte;

	MUST(pipe(ready) == 0);
	child = fork();
	if (child == 0) {
		MUST(usage_reserve(card, 1, UINT64_MAX) && write(ready[1], "r", 1) == 1);
		for (;;)
			pause();
	}
	MUST(read(ready[0], &byte, 1) == 1);
	for (unsigned int i = 0; i < USAGE_SLOTS; i++)
		if (map->all[i].tag != 0 && map->all[i].pid == child)
			map->lock = map->all[i].tag << 16 | (i + 1);
	MUST(map->lock != 0 && !usage_reserve(card, 1, UINT64_MAX));
	/* With its holder it ends. */
	MUST(kill(child, SIGKILL) == 0 && wait(&status) == child);
	MUST(usage_reserve(card, 1, UINT64_MAX) && map->lock == 0);
	usage_release(card, 1);
	MUST(usage_total(card) < 1000);
}

static void slots(void)
{
	struct usage *file = calloc(1, sizeof(*file));
	uint8_t uuid[16] = { 9 };
	int card;

	write_usage(file, sizeof(*file) - 1);
	MUST(usage_card(uuid) == -1);
	MUST(!usage_reserve(0, 1, 100));
	write_usage(file, sizeof(*file));
	card = usage_card(uuid);
	MUST(card == 0 && usage_card(uuid) == 0);
	MUST(usage_reserve(card, 60, 100) && !usage_reserve(card, 41, 100));
	MUST(usage_reserve(card, 40, 100) && usage_total(card) == 100);
	MUST(!usage_reserve(card, UINT64_MAX, 100) && !usage_reserve(card, UINT64_MAX, UINT64_MAX));
	usage_release(card, 100);
	MUST(usage_total(card) == 0);
	/* Somebody wipes our slot: what we hold is counted again. */
	MUST(usage_reserve(card, 70, 100));
	for (unsigned int i = 0; i < USAGE_SLOTS; i++)
		usage_map()->all[i].tag = 0;
	MUST(!usage_reserve(card, 31, 100) && usage_reserve(card, 30, 100));
	/* A killed holder of the lock: its slot is free, the lock is taken from it. */
	usage_map()->lock = 12345ull << 16 | 77;
	usage_release(card, 30);
	MUST(usage_reserve(card, 30, 100) && usage_map()->lock == 0);
	held_lock(card);
	free(file);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	test_folder = argv[1];
	printf("%zu\n", sizeof(struct usage));
	ledger();
	limits();
	garbage();
	slots();
	return 0;
}
