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
#include "../common/liveness.h"
#include "../common/system.h"
#include "../common/usage_file.h"
#include "must.h"
#include "own_folder.h"

#define KEYS 4096

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

/* Entries that are looked through, changed in place, and taken by what they belong to. */
static void ledger_groups(void)
{
	struct ledger_entry entry;
	uint64_t sum = 0;

	for (uint64_t key = 1; key <= 3000; key++)
		MUST(ledger_put((struct ledger_entry){ .key = key, .bytes = 1, .of = 10 + key % 3,
						       .kind = LEDGER_POOLED }));
	MUST(!ledger_get(LEDGER_POOL, 7, &entry) && !ledger_set(LEDGER_POOL, 7, 1, &entry));
	MUST(ledger_set(LEDGER_POOLED, 7, 5, &entry) && entry.bytes == 1);
	MUST(ledger_get(LEDGER_POOLED, 7, &entry) && entry.bytes == 5 && entry.of == 11);
	for (unsigned int at = 0; ledger_next(LEDGER_POOLED, &at, &entry);)
		sum += entry.bytes;
	MUST(sum == 3004);
	swept = 0;
	ledger_take_context(11, sweep);	/* what is of a pool is of no context */
	MUST(swept == 0);
	for (int of = 10; of < 13; of++)
		for (int i = 0; i < 1000; i++)
			MUST(ledger_take_of(LEDGER_POOLED, (uint64_t)of, &entry) &&
			     entry.of == (uint64_t)of);
	for (int of = 10; of < 13; of++)
		MUST(!ledger_take_of(LEDGER_POOLED, (uint64_t)of, &entry));
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
	MUST(out[0].core == 0);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 core_percent=30 policy=strict\n", out) == 1);
	MUST(out[0].core == 30);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " policy=elastic memory_bytes=7 core_percent=1\n", out) == 1);
	MUST(out[0].core == 1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 policy=off core_percent=30\n", out) == 1);
	MUST(out[0].core == 0);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 core_percent=100\n", out) == 1);
	MUST(out[0].core == 0);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 core_percent=0\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 core_percent=101\n", out) == -1);
	MUST(out[0].charge == 0 && out[0].charge_until_ms == 0 && out[0].uncounted_bytes == 0);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 uncounted_bytes=5\n", out) == 1);
	MUST(out[0].memory_bytes == 7 && out[0].uncounted_bytes == 5);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 uncounted_bytes=-5\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 core_percent=30 charge_permille=850 "
		    "charge_until_ms=1234567\n", out) == 1);
	MUST(out[0].charge == 850 && out[0].charge_until_ms == 1234567);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 charge_permille=0\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 charge_permille=1001\n", out) == -1);
	MUST(parsed("edgegpu-limits 1\ncard " UUID " memory_bytes=7 charge_until_ms=-1\n", out) == -1);
	for (int i = 0; i < 100000; i++) {	/* no text makes it read or write where it must not */
		static const char bits[] = "card \nGPU-0f memory_bytes=context1 9edgegpu-limits core_percent";
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

	uint64_t granted = 0;

	for (int i = 0; i < 3; i++)
		if (usage_reserve(card, 1000, 2000)) {
			granted += 1000;
			MUST(granted <= 2000 && usage_total(card) >= granted);
		}
	usage_processes(card, list, 4);
	usage_release(card, granted);
	usage_contexts(card, 1);
	if (usage_bucket(card) != NULL)
		bucket_wait(usage_bucket(card), 30, bucket_now());
}

#define SECOND 1000000000ull
#define MS 1000000ull

static uint64_t word(void)
{
	return (uint64_t)draw() << 40 ^ (uint64_t)draw() << 20 ^ draw();
}

/* Somebody works whenever he may, for 20 seconds: how much of 1000 did he get? */
static uint64_t worked(struct bucket *bucket, unsigned int percent, uint64_t kernel, uint64_t now)
{
	uint64_t began = now, done = 0;

	while (now - began < 20 * SECOND) {
		uint64_t wait = bucket_wait(bucket, percent, now);

		now += wait + (wait != 0 ? draw() % MS : 0);	/* it wakes late */
		bucket_charge(bucket, percent, now, kernel);
		now += kernel;
		done += kernel;
	}
	return done * 1000 / (now + bucket_wait(bucket, percent, now) - began);
}

static void shares(void)
{
	static const unsigned int percents[] = { 1, 10, 30, 50, 70, 99 };
	static const uint64_t kernels[] = { 5000, 100000, MS, 50 * MS, 900 * MS };
	uint64_t now = 1000 * SECOND;

	for (unsigned int i = 0; i < 6; i++)
		for (unsigned int j = 0; j < 5; j++) {
			struct bucket bucket = { 0 };
			uint64_t got = worked(&bucket, percents[i], kernels[j], now);

			MUST(got + 5 >= percents[i] * 10 && got <= percents[i] * 10 + 5);
		}
}

static void buckets(void)
{
	struct bucket bucket = { 0 };
	uint64_t now = 1000 * SECOND, later;

	shares();
	/* Idle for an hour: no more than the credit is saved up. */
	bucket_charge(&bucket, 50, now, MS);
	now += 3600 * SECOND;
	MUST(bucket_wait(&bucket, 50, now) == 0);
	bucket_charge(&bucket, 50, now, 25 * MS + 5 * MS);
	MUST(bucket_wait(&bucket, 50, now) == 10 * MS);
	/* Another share scales what is left. */
	MUST(bucket_wait(&bucket, 5, now) == 100 * MS && bucket_wait(&bucket, 100, now) == 5 * MS);
	/* Whatever stands in it: a wait is bounded and ends, and work is charged at last. */
	later = now + 2 * BUCKET_DEBT_NS;
	for (int i = 0; i < 100000; i++) {
		uint64_t before;

		bucket.level = word();
		before = bucket_wait(&bucket, 1 + draw() % 99, now);
		MUST(before <= BUCKET_DEBT_NS && bucket_wait(&bucket, 50, later) == 0);
		bucket_charge(&bucket, 50, later, 10 * SECOND);
		MUST(bucket_wait(&bucket, 50, later) >= 19 * SECOND);
	}
	/* A long kernel at a small share is paid for whole. */
	bucket = (struct bucket){ 0 };
	bucket_charge(&bucket, 1, now, 20 * SECOND);
	MUST(bucket_wait(&bucket, 1, now) == 2000 * SECOND);
	bucket.level = 0;		/* wiped: that buys nothing */
	bucket_charge(&bucket, 50, now, MS);
	MUST(bucket_wait(&bucket, 50, now) == 2 * MS);
}

/* The ns that are charged for a span of a context that nothing else is known of. */
static uint64_t exact(struct cover *cover, uint64_t begin, uint64_t end, uint64_t now)
{
	struct spans fresh = { 1, { { begin, end } } };

	cover_exact(cover, &fresh, now);
	return spans_ns(&fresh);
}

/* The same for one of another context that began up to `late` ns after `begin`. */
static uint64_t certain(struct cover *cover, uint64_t begin, uint64_t end, uint64_t late, uint64_t now)
{
	struct spans fresh = { 1, { { begin, end } } };

	return cover_certain(cover, &fresh, fresh.at[0], late, now);
}

static void covers(void)
{
	uint64_t now = 1000 * SECOND;
	struct cover cover = { 0 }, other;
	struct spans fresh;

	/* Each ns is charged once, in whatever order it is reported. */
	MUST(exact(&cover, now - 100 * MS, now - 50 * MS, now) == 50 * MS);
	MUST(exact(&cover, now - 40 * MS, now - 20 * MS, now) == 20 * MS);
	MUST(exact(&cover, now - 110 * MS, now, now) == 40 * MS);
	MUST(exact(&cover, now - 100 * MS, now - 50 * MS, now) == 0);
	/* What is left of a span lies where it lay. */
	cover = (struct cover){ 0 };
	exact(&cover, now - 80 * MS, now - 60 * MS, now);
	fresh = (struct spans){ 1, { { now - 100 * MS, now - 30 * MS } } };
	cover_exact(&cover, &fresh, now);
	MUST(fresh.count == 2 && fresh.at[0].end == now - 80 * MS && fresh.at[1].begin == now - 60 * MS);
	/* Of others' only what is common wherever the span lies is taken off. */
	cover = (struct cover){ 0 };
	MUST(certain(&cover, now - 100 * MS, now - 50 * MS, 0, now) == 50 * MS);
	MUST(certain(&cover, now - 90 * MS, now - 60 * MS, 10 * MS, now) == 0);
	cover = (struct cover){ 0 };
	certain(&cover, now - 100 * MS, now - 50 * MS, 0, now);
	MUST(certain(&cover, now - 60 * MS, now - 40 * MS, 4 * MS, now) == 14 * MS);
	cover = (struct cover){ 0 };
	certain(&cover, now - 3 * MS, now - 2 * MS, 0, now);
	certain(&cover, now - MS, now, 0, now);
	MUST(certain(&cover, now - 3 * MS, now - 2 * MS, 2 * MS, now) == MS);
	/* And what is not certain of a span does not count as charged. */
	cover = (struct cover){ 0 };
	certain(&cover, now - 100 * MS, now - 50 * MS, 10 * MS, now);
	MUST(certain(&cover, now - 100 * MS, now - 50 * MS, 0, now) == 10 * MS);
	cover = (struct cover){ 0 };
	certain(&cover, now - 100 * MS, now - 50 * MS, 50 * MS, now);
	MUST(certain(&cover, now - 100 * MS, now - 50 * MS, 0, now) == 50 * MS);
	/* Two that covered the same at once: it is taken off once. */
	memset(&cover, 0, sizeof(cover));
	memset(&other, 0, sizeof(other));
	certain(&cover, now - 10 * MS, now - 5 * MS, 0, now);
	certain(&other, now - 9 * MS, now - 4 * MS, 0, now);
	cover.stretch[1] = other.stretch[0];
	MUST(certain(&cover, now - 20 * MS, now, 0, now) == 14 * MS);
	/* Whatever stands in it: no more is charged than there is. */
	for (int i = 0; i < 20000; i++) {
		for (int j = 0; j < COVER_STRETCHES; j++)
			cover.stretch[j] = word();
		other = cover;
		MUST(exact(&cover, now - SECOND, now, now) <= SECOND);
		MUST(certain(&other, now - SECOND, now, draw() % SECOND, now) <= SECOND);
	}
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

/* Who could not ask the kernel for its image is not taken for one that was before an exec. */
static void images(void)
{
	struct identity own = identity_own(), other = own;

	MUST(own.image != 0 && !identity_gone(&own, &own, 0));
	other.image++;
	MUST(identity_gone(&other, &own, 0));
	own.image = 0;
	MUST(!identity_gone(&other, &own, 0) && !identity_gone(&own, &other, 0));
}

/* A program that has closed its standard descriptors may write to them all the same. */
static void descriptors(void)
{
	int kept = dup(0), opened;

	MUST(kept > 2 && close(0) == 0);
	opened = system_open("/proc/self/stat", O_RDONLY);
	MUST(opened > 2 && fcntl(0, F_GETFD) == -1 && (fcntl(opened, F_GETFD) & FD_CLOEXEC) != 0);
	MUST(dup2(kept, 0) == 0);
	system_close(opened);
	close(kept);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	test_folder = argv[1];
	printf("%zu\n", sizeof(struct usage));
	ledger();
	ledger_groups();
	limits();
	garbage();
	buckets();
	covers();
	slots();
	images();
	descriptors();
	return 0;
}
