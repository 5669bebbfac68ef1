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

/* What follows "name=" in a word; NULL: it is another word. */
static const char *value(const char *word, const char *name)
{
	size_t length = strlen(name);

	return strncmp(word, name, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

static bool parse_word(const char *word, struct limit *out, bool *has_memory, bool *off)
{
	const char *text;
	uint64_t percent, permille;

	if ((text = value(word, "memory_bytes")) != NULL)
		return *has_memory = number(text, &out->memory_bytes);
	if ((text = value(word, "context_bytes")) != NULL)
		return number(text, &out->context_bytes);
	if ((text = value(word, "uncounted_bytes")) != NULL)
		return number(text, &out->uncounted_bytes);
	if ((text = value(word, "core_percent")) != NULL) {
		if (!number(text, &percent) || percent < 1 || percent > 100)
			return false;
		out->core = percent < 100 ? (unsigned int)percent : 0;
	}
	if ((text = value(word, "charge_permille")) != NULL) {
		if (!number(text, &permille) || permille < 1 || permille > 1000)
			return false;
		out->charge = (unsigned int)permille;
	}
	if ((text = value(word, "charge_until_ms")) != NULL)
		return number(text, &out->charge_until_ms);
	if ((text = value(word, "policy")) != NULL) {
		*off = strcmp(text, "off") == 0;
		out->mps = strcmp(text, "mps") == 0;
	}
	return true;
}

static bool parse_card(char **rest, struct limit *out)
{
	char *word = strtok_r(NULL, " ", rest);
	bool has_memory = false, off = false;

	*out = (struct limit){ 0 };
	if (word == NULL || !limits_uuid(word, out->uuid))
		return false;
	while ((word = strtok_r(NULL, " ", rest)) != NULL)
		if (!parse_word(word, out, &has_memory, &off))
			return false;
	if (off)
		out->core = 0;
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
