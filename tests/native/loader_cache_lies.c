/* loader_cache_lies.c - `loader_cache_lies SEED ROUNDS FILE...`: broken caches and documents for the hook's readers.
 *
 * Each file is read in every shortened form and in ROUNDS changed ones. What is read goes into memory of just its length
 * and what is written into just the room, so that a sanitizer sees the byte before and behind. A cache that was made is
 * read again and has to stay what it is. Prints how many caches and texts were taken, of all. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "json.h"

static const struct library LIBRARIES[] = {
	{ "libcuda.so.1", "/usr/lib64/libcuda.so.1" },
	{ "libcuda.so", "/usr/lib64/libcuda.so" },
	{ "", "" },
	{ "libz9.so.18446744073709551616", "/z" },
};
#define COUNT (sizeof(LIBRARIES) / sizeof(*LIBRARIES))

static uint64_t state;
static unsigned long tries, taken;

static uint64_t draw(uint64_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % below;
}

static void must(int holds, const char *what)
{
	if (holds)
		return;
	printf("%s\n", what);
	exit(1);
}

static void as_cache(const unsigned char *data, size_t length)
{
	size_t room = draw(8) == 0 ? draw(length + 600) : length + 600, made, again;
	unsigned char *old = malloc(length), *new = malloc(room), *second;

	memcpy(old, data, length);
	made = cache_merge(old, length, LIBRARIES, COUNT, new, room);
	must(made <= room, "more was written than there is room for");
	if (made > 0) {
		second = malloc(made + 600);
		again = cache_merge(new, made, LIBRARIES, COUNT, second, made + 600);
		must(again >= made, "what was made is not read");
		must(memcmp(new + 20, second + 20, 4) == 0, "entries came twice");
		free(second);
		taken++;
	}
	free(old);
	free(new);
}

static void as_document(const unsigned char *data, size_t length)
{
	size_t room = 1 + draw(64);
	char *document = malloc(length), *out = malloc(room);

	memcpy(document, data, length);
	if (json_text(document, length, draw(2) ? "root" : NULL, draw(2) ? "path" : "bundle", out, room)) {
		must(memchr(out, '\0', room) != NULL, "a text has no end");
		taken++;
	}
	free(document);
	free(out);
}

static void both(const unsigned char *data, size_t length)
{
	tries++;
	as_cache(data, length);
	as_document(data, length);
}

static void change(unsigned char *data, size_t *length)
{
	static const uint32_t odd[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xffffffe8, 48, 24 };
	size_t at = draw(*length);

	if (draw(3) == 0)
		at = draw(*length < 96 ? *length : 96);
	switch (draw(5)) {
	case 0:
		data[at] ^= (unsigned char)(1u << draw(8));
		break;
	case 1:
		data[at] = (unsigned char)draw(256);
		break;
	case 2:
		at &= ~(size_t)3;
		if (*length - at >= 4)
			memcpy(data + at, &odd[draw(8)], 4);
		break;
	case 3:
		*length = 1 + draw(*length);
		break;
	default:
		memmove(data + at, data + draw(*length - at) + at, 1);
	}
}

static void of_file(const char *name, unsigned long rounds)
{
	static unsigned char data[1 << 16], copy[1 << 16];
	FILE *file = fopen(name, "rb");
	unsigned long before = taken;
	size_t length = file == NULL ? 0 : fread(data, 1, sizeof(data), file);

	must(length > 0 && feof(file), "a file cannot be read");
	fclose(file);
	for (int i = 0; i < 64 && taken == before; i++)	/* a document has two texts of four, and not for each room */
		both(data, length);
	must(taken > before, "a file that is sound is not taken");
	for (size_t shorter = 0; shorter < length; shorter += length > 4096 ? 1 + draw(64) : 1)
		both(data, shorter);
	for (unsigned long round = 0; round < rounds; round++) {
		size_t changed = length;

		memcpy(copy, data, length);
		for (uint64_t times = 1 + draw(4); times > 0; times--)
			change(copy, &changed);
		both(copy, changed);
	}
}

/* Too short for changes to hit. */
static void of_documents(void)
{
	static const char *const broken[] = {
		"{\"bundle\":\"\\u\"", "{\"bundle\":\"\\u00\"", "{\"bundle\":\"\\", "{\"bundle\":", "{\"bundle\"", "\"", "{",
	};

	for (int i = 0; i < 64 * (int)(sizeof(broken) / sizeof(*broken)); i++)
		as_document((const unsigned char *)broken[i / 64], strlen(broken[i / 64]));
}

int main(int count, char **words)
{
	must(count > 3, "SEED ROUNDS FILE...");
	state = strtoull(words[1], NULL, 10);
	of_documents();
	for (int i = 3; i < count; i++)
		of_file(words[i], strtoul(words[2], NULL, 10));
	printf("%lu %lu\n", taken, tries);
	return 0;
}
