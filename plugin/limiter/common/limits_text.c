/* limits_text.c - the text of a limits file. */
#include <string.h>

#include "limits.h"
#include "text.h"

static int nibble_of(char letter)
{
	if (letter >= '0' && letter <= '9')
		return letter - '0';
	if (letter >= 'a' && letter <= 'f')
		return letter - 'a' + 10;
	return letter >= 'A' && letter <= 'F' ? letter - 'A' + 10 : -1;
}

bool limits_uuid(const char *text, uint8_t out[16])
{
	unsigned int nibbles = 0;

	if (text_begins(text, "GPU-") == 0 && text_begins(text, "MIG-") == 0)
		return false;
	memset(out, 0, 16);
	for (text += 4; *text != '\0'; text++) {
		int nibble = nibble_of(*text);

		if (*text == '-')
			continue;
		if (nibble < 0 || nibbles == 32)
			return false;
		out[nibbles / 2] |= (uint8_t)(nibbles % 2 != 0 ? nibble : nibble << 4);
		nibbles++;
	}
	return nibbles == 32;
}

static bool number(const char *text, uint64_t *out)
{
	const char *end;

	return text_number(text, out, &end) && *end == '\0';
}

/* What follows "name=" in a word; NULL: it is another word. */
static const char *value(const char *word, const char *name)
{
	size_t length = text_begins(word, name);

	return length != 0 && word[length] == '=' ? word + length + 1 : NULL;
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
		*off = text_equal(text, "off");
		out->mps = text_equal(text, "mps");
	}
	return true;
}

/* The next piece of *rest that is not empty, with a 0 at its end; NULL: there is none. */
static char *next(char **rest, char end)
{
	char *piece = *rest, *at;

	while (*piece == end)
		piece++;
	for (at = piece; *at != '\0' && *at != end; at++)
		;
	*rest = at;
	if (*at != '\0') {
		*at = '\0';
		*rest = at + 1;
	}
	return *piece != '\0' ? piece : NULL;
}

static bool parse_card(char **rest, struct limit *out)
{
	char *word = next(rest, ' ');
	bool has_memory = false, off = false;

	*out = (struct limit){ 0 };
	if (word == NULL || !limits_uuid(word, out->uuid))
		return false;
	while ((word = next(rest, ' ')) != NULL)
		if (!parse_word(word, out, &has_memory, &off))
			return false;
	if (off)
		out->core = 0;
	return has_memory;
}

int limits_parse(char *text, struct limit *out, int room)
{
	char *lines = text, *line = next(&lines, '\n');
	int count = 0;

	if (line == NULL || !text_equal(line, "edgegpu-limits 1"))
		return -1;
	while ((line = next(&lines, '\n')) != NULL) {
		char *words = line, *word = next(&words, ' ');

		if (word == NULL || !text_equal(word, "card"))
			continue;
		if (count == room || !parse_card(&words, &out[count]))
			return -1;
		count++;
	}
	return count;
}
