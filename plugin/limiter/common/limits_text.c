/* limits_text.c - the text of a limits file. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"

bool limits_uuid(const char *text, uint8_t out[16])
{
	unsigned int nibbles = 0;

	if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
		return false;
	memset(out, 0, 16);
	for (text += 4; *text != '\0'; text++) {
		int c = tolower((unsigned char)*text);

		if (c == '-')
			continue;
		if (!isxdigit(c) || nibbles == 32)
			return false;
		c = isdigit(c) ? c - '0' : c - 'a' + 10;
		out[nibbles / 2] |= (uint8_t)(nibbles % 2 != 0 ? c : c << 4);
		nibbles++;
	}
	return nibbles == 32;
}

static bool number(const char *text, uint64_t *out)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0';
}

static bool parse_card(char **rest, struct limit *out)
{
	static const char memory[] = "memory_bytes=", context[] = "context_bytes=";
	char *word = strtok_r(NULL, " ", rest);
	bool has_memory = false;

	*out = (struct limit){ 0 };
	if (word == NULL || !limits_uuid(word, out->uuid))
		return false;
	while ((word = strtok_r(NULL, " ", rest)) != NULL) {
		if (strncmp(word, memory, sizeof(memory) - 1) == 0) {
			has_memory = number(word + sizeof(memory) - 1, &out->memory_bytes);
			if (!has_memory)
				return false;
		} else if (strncmp(word, context, sizeof(context) - 1) == 0 &&
			   !number(word + sizeof(context) - 1, &out->context_bytes)) {
			return false;
		}
	}
	return has_memory;
}

int limits_parse(char *text, struct limit *out, int room)
{
	char *lines, *words, *line = strtok_r(text, "\n", &lines);
	int count = 0;

	if (line == NULL || strcmp(line, "edgegpu-limits 1") != 0)
		return -1;
	while ((line = strtok_r(NULL, "\n", &lines)) != NULL) {
		char *word = strtok_r(line, " ", &words);

		if (word == NULL || strcmp(word, "card") != 0)
			continue;
		if (count == room || !parse_card(&words, &out[count]))
			return -1;
		count++;
	}
	return count;
}
